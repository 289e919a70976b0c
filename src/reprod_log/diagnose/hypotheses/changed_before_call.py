"""Weights that the script writes before the layer's first call: an average that is taken too early in the step.

The layer alone, as it was given, agrees; in the program it gives other values for the same input.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    first = case.verdict.first_divergence
    if material is None or first is None:
        return
    key = first.key
    written = [path for path in material.written_by_hand if path.rpartition(".")[0] == key.path]
    in_first_call = key.phase == "forward" and key.step == material.steps[0] and not key.call and not key.run
    if not in_first_call or not written or case.states.get(key.path) != "inherited" or key.role.startswith("input"):
        return
    yield Finding(
        rule="changed_before_call",
        cause=f"the weights of {key.path} are no longer those that were loaded when it is first called: on one side "
        "the script writes them before",
        evidence="alone, with the weights it was given, the layer agrees; in the program it gives other values for the "
        "same input, and its weights change without an optimizer",
        confidence="consistent",
        advice="write them at the same place of the step on both sides (an average of weights is taken after the "
        "optimizer has moved them)",
        keys=(first.key,),
    )
