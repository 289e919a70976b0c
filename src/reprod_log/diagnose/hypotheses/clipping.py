"""Gradient clipping that one side lacks, or does in another way: per tensor, by value, at another norm."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.pairing.values import factor
from reprod_log.recording import Array, Key, Recording


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None:
        return
    alone = {one.key: one.side for one in case.comparison.unmatched}
    for step in material.steps:
        here = [key for key in (*alone, *case.failed) if key.step == step and not key.run]
        if any(key.phase in ("data", "forward", "loss", "backward", "gradient") for key in here):
            return
        clips = [key for key in here if key.phase == "clip"]
        if clips:
            ours, theirs = _way(material.reference, step), _way(material.candidate, step)
            if ours != theirs:
                yield Finding(
                    rule="clipping",
                    cause=f"gradients are clipped differently: {ours} in the reference, {theirs} in the candidate",
                    evidence=f"gradients before and after clipping at step {step}",
                    confidence="consistent",
                    advice="clip_grad_norm_(parameters, c) in torch is paddle.nn.ClipGradByGlobalNorm(c); "
                    "ClipGradByNorm clips each tensor by itself, ClipGradByValue each element",
                    keys=tuple(clips)[:5],
                )
            return


def _way(recording: Recording, step: int) -> str:
    """How a side clipped at a step, in words."""
    pairs = _gradients(recording, step)
    if not pairs:
        return "no clipping"
    ratios = {path: factor(raw, clipped, within=1e-4) for path, (raw, clipped) in pairs.items() if raw.any()}
    if any(ratio is None for ratio in ratios.values()):
        largest = max(float(np.abs(clipped).max()) for _, clipped in pairs.values())
        return f"by value at {largest:.4g}"
    values = [ratio for ratio in ratios.values() if ratio is not None]
    if max(values) - min(values) <= 1e-3 * max(values):
        norm = float(np.sqrt(sum(float(np.vdot(clipped, clipped)) for _, clipped in pairs.values())))
        return f"by global norm at {norm:.3g}"
    norms = [float(np.linalg.norm(clipped)) for path, (_, clipped) in pairs.items() if (ratios.get(path) or 1) < 0.999]
    return f"per tensor at {max(norms, default=0.0):.3g}"


def _gradients(recording: Recording, step: int) -> dict[str, tuple[Array, Array]]:
    found = {}
    for entry in recording.of_run(""):
        key = entry.key
        if key.phase == "clip" and key.step == step and entry.detail == "full":
            raw = Key(key.path, "gradient", step, role="raw")
            if raw in recording:
                found[key.path] = (recording[raw].array().astype(np.float64), entry.array().astype(np.float64))
    return found
