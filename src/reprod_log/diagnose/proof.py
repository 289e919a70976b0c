"""Proof: a finding that names a layer's setting or weights is tried: the layer alone again, with the fix.

When the error is gone, the cause is proven.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reprod_log.diagnose import operators
from reprod_log.diagnose.case import Case
from reprod_log.diagnose.engine import unexplained
from reprod_log.diagnose.finding import Finding, Fix, ranked, side, told
from reprod_log.diagnose.patches import with_patch
from reprod_log.errors import ReprodLogError
from reprod_log.experiments.differences import slopes
from reprod_log.experiments.passes import FLOAT64, Experiments
from reprod_log.experiments.regions import run_alone
from reprod_log.frameworks.side import Scope
from reprod_log.measure.comparison import Comparison
from reprod_log.messages import Names, Number, message
from reprod_log.pairing import match
from reprod_log.pairing.survey import survey
from reprod_log.pairing.units import BARE
from reprod_log.recording import Array, Entry, Key, Recording
from reprod_log.transfer import TransferReport
from reprod_log.verdict import CalibratedPolicy, Status, calibrate, judge_calibrated


def confirmed(
    case: Case,
    findings: Sequence[Finding],
    runs: Experiments,
    reference: Recording,
    candidate: Recording,
    *,
    known: Sequence[Finding] | None = None,
) -> tuple[Finding, ...]:
    """The findings, each that a re-run confirms marked as proven, with the operators at fault.

    `known` are the findings of earlier rounds; the fixes that are proven are applied to the candidate before its
    operators are looked at.
    """
    findings = ranked([*findings, *transferred_tables(runs.tables)])
    if case.verdict.status is Status.PASS or not isinstance(case.policy, CalibratedPolicy):
        return findings
    wrong = {
        one.key.layer_alone
        for one in case.verdict.judgements
        if one.status is not Status.PASS and one.key.run.startswith("isolated")
    }
    prover = _Prover(runs, reference, candidate, case.policy, wrong)
    tried = prover.together([prover.tried(finding) for finding in findings])
    found = [prover.tried(finding) for finding in operators.operators_at_fault(case, runs, tried, known or ())]
    in_loss = list(operators.operators_of_the_loss(case, runs, reference, tried))
    tried = [one for one in tried if not (in_loss and one.keys == in_loss[0].keys)]
    tried, found = operators.one_of_each(tried, [*found, *in_loss])
    modules = {module.path: module for module in candidate.modules}
    return tuple(with_patch(one, modules, runs.partners) for one in ranked(unexplained([*tried, *found])))


_RIGHT = 1e-4
"""A gradient that finite differences confirm to this share is right; kinks near the input cost some digits."""


class _Prover:
    def __init__(
        self,
        runs: Experiments,
        reference: Recording,
        candidate: Recording,
        policy: CalibratedPolicy,
        wrong: Collection[str],
    ) -> None:
        self._runs, self._policy = runs, policy
        # A layer that agrees alone as it is agrees fixed as well, which proves nothing.
        self._wrong = wrong
        self._reference, self._candidate = _needed(reference), _needed(candidate)

    def tried(self, finding: Finding) -> Finding:
        if finding.rule == "wrong_backward":
            return self._with_slopes(finding)
        if not finding.fixes or finding.confidence == "proven":
            return finding
        found = [self._worst_after(fix) for fix in finding.fixes]
        errors = [worst for worst in found if worst is not None]
        if errors and len(errors) < len(found):
            partly = message("evidence.fixed_in_part", some=len(errors), all=len(found))
            return replace(finding, evidence=(*finding.evidence, partly))
        if errors:
            return _proven(finding, "evidence.fixed_and_agrees", max(errors))
        found = [self._worst_after(fix, back=True) for fix in finding.fixes]
        errors = [worst for worst in found if worst is not None]
        return finding if len(errors) < len(found) else _proven(finding, "evidence.as_wrong", max(errors))

    def together(self, findings: list[Finding]) -> list[Finding]:
        """The findings; several settings of one layer, none of which is enough alone, are tried at once."""
        layers: dict[str, list[Finding]] = {}
        for one in findings:
            if one.confidence == "hint" and len(one.fixes) == 1 and one.fixes[0].settings:
                layers.setdefault(one.fixes[0].layer, []).append(one)
        for layer, members in layers.items():
            settings = {name: value for one in members for name, value in one.fixes[0].settings.items()}
            worst = self._worst_after(Fix(layer, settings)) if len(members) > 1 else None
            if worst is not None:
                done = {id(one): _proven(one, "evidence.fixed_and_agrees", worst) for one in members}
                findings = [done.get(id(one), one) for one in findings]
        return findings

    def _with_slopes(self, finding: Finding) -> Finding:
        """The finding with the word of finite differences about which side is wrong."""
        found = slopes(self._runs, finding.keys[0].path)
        if found is None:
            return finding
        errors = [slope.error for slope in found]
        right = [error < _RIGHT for error in errors]
        if right[0] == right[1]:
            return finding
        wrong = side("candidate" if right[0] else "reference")
        confirmed = message(
            "evidence.finite_differences",
            wrong=wrong,
            error=Number(max(errors), ".1%"),
            right=Number(min(errors), ".0e"),
        )
        return replace(
            finding,
            cause=message("cause.wrong_backward.of_side", cause=finding.cause, side=wrong),
            evidence=(*finding.evidence, confirmed),
            confidence="proven",
        )

    def _worst_after(self, fix: Fix, *, back: bool = False) -> float | None:
        """The largest error of the fixed layer in shares of the limit; None unless all of it passes.

        With `back`, the reference's layer is set as the candidate's is, and must then give what the candidate's gives.
        """
        runs = self._runs
        path = fix.layer if back else runs.partners.get(fix.layer)
        known = runs.calls if back else runs.their_calls.values()
        settings, calls = fix.back if back else fix.settings, [call for call in known if call.path == fix.layer]
        if not calls or path is None or fix.layer not in self._wrong or not (settings or (fix.weights and not back)):
            return None
        entries: list[Entry] = []
        for dtype in (None, FLOAT64):
            scope = Scope(
                run=f"isolated.{dtype}" if dtype else "isolated",
                dtype=dtype,
                state=runs.weights_for(fix.layer) if fix.weights else {},
                settings={path: settings},
            )
            found, _ = run_alone(runs.ours if back else runs.theirs, calls, scope, paths={fix.layer: path})
            entries += found
        return self._worst(fix.layer, tuple(entries), back) if entries else None

    def _worst(self, layer: str, entries: tuple[Entry, ...], back: bool) -> float | None:
        """The largest error of a layer with these entries of a new run in the place of one side's."""
        sides = [self._reference, self._candidate]
        old = sides[not back]
        sides[not back] = replace(old, entries=(*(e for e in old.entries if not e.key.run), *entries), source="")
        try:
            pairing = match(*sides, rename=self._runs.rename)
        except ReprodLogError:
            # A rename map may name entries that are not looked at here.
            return None
        floor = calibrate(pairing, reference=sides[0], candidate=sides[1])
        judged = judge_calibrated(Comparison(()), floor, self._policy)
        mine = [one for one in judged.judgements if one.key.run.startswith("isolated") and one.key.layer_alone == layer]
        if not mine or not all(one.status.passed for one in mine):
            return None
        # What the policy accepts passes with whatever error it has.
        held = [check for one in mine for check in one.checks if check.passed and check.limit]
        return max((check.value / check.limit for check in held), default=0.0)


def _proven(finding: Finding, evidence: str, worst: float) -> Finding:
    agrees = message(evidence, worst=Number(worst, ".1g"))
    return replace(finding, confidence="proven", evidence=(*finding.evidence, agrees))


def _needed(recording: Recording) -> Recording:
    """What lining layers up and comparing them alone needs: the first step and the isolated passes."""
    first = min(recording.steps, default=0)
    kept = tuple(
        entry
        for entry in recording.entries
        if entry.key.run.startswith("isolated")
        or (not entry.key.run and entry.key.step == first and entry.key.phase in ("forward", "parameter", "buffer"))
    )
    return replace(recording, entries=kept)


# Tables of the candidate that the transfer of weights has put others in the place of. Buffers are transferred with the
# weights, because a checkpoint does that, too. But a table that the model's own code computes (positions, a mask, a
# noise schedule) is a part of the port: when it comes out differently there, a comparison with the reference's table
# cannot see it. Whether a buffer is such a table or state of the training nobody can tell from outside, so it is
# reported and not judged.

_ROUNDING = 1e-5
"""Two frameworks compute the same table to this share of its largest value."""


def own_tables(model: Any) -> dict[str, Array]:
    """The values of the model's buffers that belong to no known layer."""
    found = survey(model)
    names = [unit.path for unit in found.units if unit.kind == BARE]
    return {name: found.read(name) for name in names if name not in found.trained}


def replaced_tables(before: Mapping[str, Array], model: Any, report: TransferReport) -> Iterator[str]:
    """Names of the buffers that had clearly other values before they were transferred."""
    now, moved = own_tables(model), {row.target for row in report.rows}
    for name in before:
        if name in moved and name in now and not _alike(before[name], now[name]):
            yield name


def _alike(before: Array, now: Array) -> bool:
    if before.shape != now.shape or before.dtype.kind not in "biuf" or now.dtype.kind not in "biuf":
        return bool(np.array_equal(before, now))
    wide, wanted = before.astype(np.float64), now.astype(np.float64)
    size = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    return bool(np.allclose(wide, wanted, rtol=0.0, atol=_ROUNDING * size, equal_nan=True))


def transferred_tables(names: tuple[str, ...]) -> list[Finding]:
    """The doubt about these buffers, if there are any."""
    if not names:
        return []
    return [told("cause.carried_tables", tuple(map(Key, names)), names=Names(names))]
