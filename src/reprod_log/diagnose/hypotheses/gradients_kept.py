"""Gradients that were not cleared: a later step's gradient is the sum of its own and those before it."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.errors import listed
from reprod_log.pairing.values import relative
from reprod_log.recording import Key


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None:
        return
    for earlier, step in zip(material.steps, material.steps[1:], strict=False):
        here = case.failed
        if any(key.step is not None and key.step <= earlier and key.phase in ("gradient", "forward") for key in here):
            return
        if any(key.step == step and key.phase in ("forward", "loss", "data") for key in here):
            return
        wrong = [key for key in here if key.step == step and key.phase == "gradient" and not key.run]
        summed = []
        for key in wrong:
            now, before = material.best(key), material.best(Key(key.path, "gradient", earlier, role=key.role))
            clipped = material.best(Key(key.path, "clip", earlier, role="clipped"))
            for kept in (before, clipped):
                if now is not None and kept is not None and relative(now[0] + kept[1], now[1]) < 1e-3:
                    summed.append(key.path)
                    break
        if summed and len(summed) >= len(wrong) / 2:
            yield Finding(
                rule="gradients_kept",
                cause=f"gradients of {listed(summed, most=4)} are not cleared in the candidate: "
                f"at step {step} those of step {earlier} are still in them",
                evidence=f"the candidate's gradient is the reference's plus the one before, for {len(summed)} of "
                f"{len(wrong)} that differ",
                confidence="consistent",
                advice="call optimizer.clear_grad() (zero_grad() in torch) after every step, of every optimizer",
                keys=tuple(wrong)[:5],
            )
        if wrong:
            return
