"""diagnose: rules look for known causes and for passes that prove nothing; they never change the verdict."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module

from reprod_log.diagnose import hypotheses
from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding, Mend
from reprod_log.diagnose.merging import merged
from reprod_log.errors import ValuesNotRecorded

__all__ = ["Case", "Finding", "Mend", "diagnose", "ranked"]

_RANK = {"proven": 0, "consistent": 1, "possible": 2}
_KIND = {"cause": 0, "suspicious pass": 1, "remark": 2}


def diagnose(case: Case) -> tuple[Finding, ...]:
    """What the rules find, the surest causes first."""
    found: list[Finding] = []
    for module in pkgutil.iter_modules(hypotheses.__path__):
        if module.name == "ranks":
            continue
        # A rule that needs values has nothing to say where only sketches or statistics were recorded.
        with suppress(ValuesNotRecorded):
            found += import_module(f"{hypotheses.__name__}.{module.name}").look(case)
    if case.material is not None and case.material.is_joined:
        # Few recordings are of several ranks; the others need not wait for what explains them.
        from reprod_log.diagnose.hypotheses import ranks

        told = list(ranks.look(case))
        superfluous = ranks.superfluous(case, told)
        found = [*(one for one in found if one.rule not in superfluous), *told]
    return ranked(found)


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Causes before suspicions before remarks, each the surest first; one mistake in many layers is said once."""
    return tuple(sorted(merged(findings), key=lambda one: (_KIND[one.kind], _RANK[one.confidence], one.rule)))
