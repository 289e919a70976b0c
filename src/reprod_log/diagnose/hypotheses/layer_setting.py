"""A setting that differs between two paired layers (epsilon, padding, slope, momentum …), where the numbers differ too.

A setting alone proves nothing: it may not matter for this layer. So the rule speaks only when the layer fails alone;
without isolated passes, when it is the first to fail, or its running statistics do.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding, Mend
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.settings import Difference, setting_differences
from reprod_log.messages import message
from reprod_log.recording import Key, ModuleInfo


def look(case: Case) -> Iterable[Finding]:
    if case.material is None:
        return
    failing = _failing_layers(case)
    suspect = _suspect_layers(case)
    for path, (ours, theirs) in case.material.layers.items():
        if path not in failing and path not in suspect:
            continue
        for one in setting_differences(ours, theirs):
            if path in failing:
                yield _finding(path, ours, theirs, one, failing[path])
            elif one.name == "eps":
                yield _finding(path, ours, theirs, one, suspect[path], remark=True)


def _finding(
    path: str, ours: ModuleInfo, theirs: ModuleInfo, one: Difference, keys: tuple[Key, ...], *, remark: bool = False
) -> Finding:
    row = layer_kind(ours.kind)
    known = None if row is None else row.advice.get(one.name)
    hint = "" if known is None else f"{message(known)}; "
    return Finding(
        rule="layer_setting",
        cause=f"{one.name} of {path} differs: {one.ours} in the reference, {one.theirs} in the candidate",
        evidence=f"{ours.type} against {theirs.type}; "
        + (
            "the layer alone is off by a tiny constant"
            if remark
            else "the layer alone does not agree on the same input"
        ),
        confidence="possible" if remark else "consistent",
        advice=f"{hint}in the candidate: {theirs.type}(…, {one.native}={one.right!r}) for {theirs.path}",
        keys=keys[:5],
        kind="remark" if remark else "cause",
        mends=(Mend(path, {one.native: one.right}),),
    )


def _failing_layers(case: Case) -> dict[str, tuple[Key, ...]]:
    """Layers whose error is their own; without isolated passes the first that fails, and those with wrong buffers."""
    found: dict[str, tuple[Key, ...]] = {}
    for path, state in case.states.items():
        if state in ("own", "glue"):
            found[path] = tuple(key for key in case.failed if key.run == "isolated" and key.layer_alone == path)
    first = case.verdict.first_divergence
    if not case.states and first is not None and first.key.phase == "forward":
        found[first.key.path] = (first.key,)
    for key in sorted(case.failed, key=str):
        owner = key.path.rpartition(".")[0]
        if key.phase == "buffer" and not key.run and owner not in case.states:
            found.setdefault(owner, (key,))
    return found


def _suspect_layers(case: Case) -> dict[str, tuple[Key, ...]]:
    found: dict[str, tuple[Key, ...]] = {}
    for key in sorted(case.suspect, key=str):
        if key.run == "isolated":
            layer = key.layer_alone
            found[layer] = (*found.get(layer, ()), key)
    return found
