"""Where updates first differ although what went into them agrees: the optimizer's own error."""

from __future__ import annotations

from dataclasses import dataclass

from reprod_log.diagnose.case import Case
from reprod_log.recording import Key

_OF_OPTIMIZERS = ("update", "optimizer", "parameter")


@dataclass(frozen=True)
class BadUpdates:
    """The first step at which the optimizers do different things with the same gradients."""

    step: int
    paths: tuple[str, ...]
    """Parameters whose update differs, or is there on one side only."""
    agreeing: tuple[str, ...]
    """Parameters whose update agrees at that step."""
    keys: tuple[Key, ...]


def first_bad_update(case: Case) -> BadUpdates | None:
    """None when updates agree, or when gradients or learning rates are already wrong at that step."""
    material = case.material
    if material is None:
        return None
    # A layer that one side writes as a function has no partner and says nothing about the optimizers; a gradient that
    # is lost does.
    paired = {*material.parameters, *map(material.partner, material.parameters)}
    alone = {
        key
        for key in (one.key for one in case.comparison.unmatched)
        if key.phase in _OF_OPTIMIZERS or (key.phase == "gradient" and key.path in paired)
    }
    wrong = {*case.failed, *alone}
    wrong = {key for key in wrong if not key.run}
    for step in material.steps:
        here = {key for key in wrong if key.step == step}
        if any(key.phase in ("data", "forward", "loss", "backward", "gradient", "lr") for key in here):
            return None
        # In an order of its own: sets have another one in every process.
        bad = {
            key.path: key
            for key in sorted(here, key=lambda one: (material.place(one.path), str(one)))
            if key.phase in _OF_OPTIMIZERS
        }
        if bad:
            updated = {
                pair.reference.key.path
                for pair in material.pairing.pairs
                if pair.reference.key.phase == "update"
                and not pair.reference.key.run
                and pair.reference.key.step == step
            }
            agreeing = tuple(path for path in material.parameters if path in updated and path not in bad)
            return BadUpdates(step, tuple(bad), agreeing, tuple(bad.values())[:5])
    return None
