"""Gradients of the reference put into a running model, so that nothing drifts and every step is judged by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reprod_log.experiments.program import Program
from reprod_log.experiments.runs import Inject
from reprod_log.pairing.weight_map import TransferPlan
from reprod_log.recording import Array, Recording
from reprod_log.transfer.frameworks import framework_of


def gradients_by_step(recording: Recording) -> dict[int, dict[str, Array]]:
    """The raw gradients of the plain run, by step and parameter name."""
    found: dict[int, dict[str, Array]] = {}
    for entry in recording.of_run(""):
        if entry.key.phase == "gradient" and entry.key.role == "raw" and entry.key.step is not None:
            found.setdefault(entry.key.step, {})[entry.key.path] = entry.array()
    return found


def inject_into(program: Program, gradients: Mapping[int, Mapping[str, Array]], plan: TransferPlan | None) -> Inject:
    """A function that overwrites a model's gradients with the reference's; `plan` maps them (None: as they are)."""

    def inject(model: Any, step: int) -> None:
        given = gradients.get(step, {})
        if plan is None:
            arrays: Mapping[str, Array] = given
        else:
            moves = [move for move in plan.moves if all(name in given for name in move.sources)]
            arrays = {move.target: move.apply(given.__getitem__) for move in moves}
        for path, module in program.modules(model):
            writer = framework_of(module)
            for name, parameter in program.framework.parameters(module):
                array = arrays.get(f"{path}.{name}" if path else name)
                if array is not None:
                    writer.write_gradient(parameter, array)

    return inject
