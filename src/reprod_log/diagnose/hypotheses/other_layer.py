"""Another kind of layer in the same place: ReLU and LeakyReLU, max and average pooling.

Layers of different kinds are never paired; when both sides have one without a partner between the same two paired
layers, give tensors of one shape, and what comes after is wrong, they are the suspects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Material
from reprod_log.recording import Key, ModuleInfo, Recording


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not any(key.phase == "forward" for key in case.failed):
        return
    partners = {ours: theirs.path for ours, (_, theirs) in material.layers.items()}
    here = _lonely(material.reference, set(partners), {path: path for path in partners})
    there = _lonely(material.candidate, set(partners.values()), {theirs: ours for ours, theirs in partners.items()})
    kinds = _kinds(material)
    for path, other, anchor in _couples(here, there):
        ours, theirs = kinds[0].get(path), kinds[1].get(other)
        if ours and theirs and ours.kind != theirs.kind and not _reached(case, anchor):
            yield Finding(
                rule="other_layer",
                cause=f"{path} is a {ours.type} in the reference; in its place the candidate has {other}, a "
                f"{theirs.type}",
                evidence=f"both come after {anchor or 'the input'}, neither has a partner, and what follows differs",
                confidence="consistent",
                advice=f"use the same layer: {ours.type}",
                keys=(Key(path),),
            )


def _reached(case: Case, anchor: str) -> bool:
    """Whether the layer before it is already wrong."""
    return any(key.path == anchor and key.phase == "forward" and key.step == 0 and not key.run for key in case.failed)


@dataclass(frozen=True)
class _Place:
    anchor: str
    """The paired layer (the reference's name) that ran before."""
    shape: tuple[int, ...]


def _lonely(recording: Recording, paired: set[str], names: Mapping[str, str]) -> dict[str, _Place]:
    """Layers without children and partner, each with its place."""
    parents = {module.path.rpartition(".")[0] for module in recording.modules if module.path}
    found: dict[str, _Place] = {}
    anchor = ""
    for entry in recording.of_run(""):
        key = entry.key
        if key.phase != "forward" or key.path in parents or key.step or key.role.startswith("input"):
            continue
        if key.path in paired:
            anchor = names[key.path]
        else:
            found.setdefault(key.path, _Place(anchor, tuple(sorted(entry.shape))))
    return found


def _couples(here: Mapping[str, _Place], there: Mapping[str, _Place]) -> Iterable[tuple[str, str, str]]:
    left = dict(there)
    for path, place in here.items():
        fitting = next((other for other, its_place in left.items() if its_place == place), None)
        if fitting is not None:
            del left[fitting]
            yield path, fitting, place.anchor


def _kinds(material: Material) -> tuple[dict[str, ModuleInfo], dict[str, ModuleInfo]]:
    ours, theirs = (
        {module.path: module for module in recording.modules if module.kind}
        for recording in (material.reference, material.candidate)
    )
    return ours, theirs
