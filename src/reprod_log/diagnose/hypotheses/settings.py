"""Settings: layers that are set differently, lack a parameter, or run in another mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from reprod_log.diagnose.case import Case, CaseData, shared_weights
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Confidence, Finding, Fix, side, told
from reprod_log.diagnose.fits import by_channel, holds, lines_per_channel
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.settings import Difference, setting_differences
from reprod_log.messages import Code, Name, message
from reprod_log.pairing.distance import SAME, relative
from reprod_log.recording import Entry, Key, ModuleInfo, Recording

# A setting that differs between two paired layers (epsilon, padding, slope, momentum …), where the numbers differ too.
# A setting alone proves nothing: it may not matter for this layer. So it is reported only when the layer fails alone;
# without isolated passes, when it is the first to fail, or its running statistics do.


def _layer_setting(case: Case) -> Iterable[Finding]:
    failing = _failing_layers(case)
    suspect = _suspect_layers(case)
    for path, (ours, theirs) in case.data.layers.items():
        if path not in failing and path not in suspect:
            continue
        back = {one.name: {one.native: one.right} for one in setting_differences(theirs, ours)}
        for one in setting_differences(ours, theirs):
            fix = Fix(path, {one.native: one.right}, back=back.get(one.name, {}))
            if path in failing:
                yield _other_setting(fix, ours, theirs, one, failing[path])
            elif one.name == "eps":
                yield _other_setting(fix, ours, theirs, one, suspect[path], remark=True)


def _other_setting(
    fix: Fix, ours: ModuleInfo, theirs: ModuleInfo, one: Difference, keys: tuple[Key, ...], *, remark: bool = False
) -> Finding:
    call = Code(f"{theirs.type}(…, {one.native}={one.right!r})")
    kind = layer_kind(ours.kind)
    known = None if kind is None else kind.advice.get(one.name)
    return told(
        "cause.layer_setting",
        keys[:5],
        evidence=(
            message("evidence.types", ours=ours.type, theirs=theirs.type),
            message("evidence.layer_alone_nearly_agrees" if remark else "evidence.layer_alone_differs"),
        ),
        advice=(
            *(() if known is None else (message(known),)),
            message("advice.setting_in_candidate", call=call, path=Name(theirs.path)),
        ),
        fixes=(fix,),
        kind="remark" if remark else "cause",
        setting=one.name,
        path=Name(fix.layer),
        ours=str(one.ours),
        theirs=str(one.theirs),
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
            found[key.layer_alone] = (*found.get(key.layer_alone, ()), key)
    return found


# A parameter that only one side has: a bias that was left out, an affine layer that has more than its partner.


def _missing_parameter(case: Case) -> Iterable[Finding]:
    data = case.data
    if data.joined_in_part:
        # A rank's own version of a parameter has no partner, and one that was left out neither; it is not missing.
        return
    shared = {one.separate for one in shared_weights(case)}
    theirs = {there.path for _, there in data.layers.values()}
    for one in case.comparison.unmatched:
        key = one.key
        if key.phase != "parameter" or key.run or key.step != data.first or key.path in shared:
            continue
        owner, _, name = key.path.rpartition(".")
        if owner not in (data.layers if one.side == "reference" else theirs):
            continue
        other = "candidate" if one.side == "reference" else "reference"
        layer = (
            owner if one.side == "reference" else next(p for p, pair in data.layers.items() if pair[1].path == owner)
        )
        yield told(
            "cause.missing_parameter",
            (key,),
            sure="explained" if _tells_apart(case, layer, key, one.side) else "hint",
            layer=Name(owner),
            name=name,
            side=side(one.side),
            other=side(other),
            path=Name(key.path),
        )


def _tells_apart(case: Case, layer: str, parameter: Key, name: str) -> bool:
    """Whether the parameter, added to or multiplied with one side's output, makes the other's: no more is missing."""
    recording = dict(case.data.sides)[name]
    output = Key(layer, "forward", case.data.first, 0, "output")
    alone = output.in_run("isolated")
    key = alone if alone in case.failed else output
    both = case.data.best(key)
    if both is None or recording[parameter].detail != "full":
        return False
    whole, part = both if name == "reference" else both[::-1]
    value = recording[parameter].array().astype(np.float64)
    moved = replace(parameter, phase="update")
    value = value - recording[moved].array() if moved in recording else value
    rows = [by_channel(one, value.size) for one in (whole, part)]
    if rows[0] is None or rows[1] is None or value.ndim != 1:
        return False
    near = case.near(key, both)
    return any(holds(made, rows[0], near) for made in (rows[1] + value[:, None], rows[1] * value[:, None]))


# Train mode on one side and eval mode on the other: batch norms and dropouts of a model, or of a part of it.


def _mode(case: Case) -> Iterable[Finding]:
    data = case.data
    for path, (ours, _) in data.layers.items():
        row = layer_kind(ours.kind)
        if row is None or not row.mode or not _at_fault(case, path, data.steps[0]):
            continue
        modes = _modes(data, path)
        if modes is not None and modes[0] != modes[1]:
            yield _in_another_mode(path, modes, sure=_normalised_otherwise(case, path) if row.moving else None)
        elif not row.moving:
            yield from _idle(data, path)


def _at_fault(case: Case, path: str, step: int) -> bool:
    """Whether a layer is wrong by itself; without having been run alone, whether it gives other values for the same."""
    if path in case.states:
        return case.states[path] in ("own", "glue")
    given, made = (Key(path, "forward", step, 0, role) for role in ("input.0", "output"))
    return made in case.failed and given not in case.failed


def _modes(data: CaseData, path: str) -> tuple[bool, bool] | None:
    """Whether the layer trains, on both sides; None when that was not noted."""
    pair = data.pairs.get(Key(path, "forward", data.steps[0], 0, "output"))
    if pair is None:
        return None
    here, there = (entry.meta.get("training") for entry in (pair.reference, pair.candidate))
    return (here, there) if isinstance(here, bool) and isinstance(there, bool) else None


def _normalised_otherwise(case: Case, path: str) -> Confidence | None:
    """Explained when every channel is the reference's on another line, as other statistics make it."""
    key = Key(path, "forward", case.data.first, 0, "output")
    both = case.data.best(key)
    if both is None or both[0].ndim < 2:
        return None
    return "explained" if lines_per_channel(*both, case.near(key, both), axis=1) else None


def _in_another_mode(path: str, modes: tuple[bool, bool], sure: Confidence | None) -> Finding:
    ours, theirs = modes
    words = {True: "train", False: "eval"}
    return told(
        "cause.mode",
        (Key(path),),
        sure=sure,
        fixes=(Fix(path, {"training": ours}),),
        path=Name(path),
        ours=words[ours],
        theirs=words[theirs],
    )


def _idle(data: CaseData, path: str) -> Iterable[Finding]:
    given = data.values(Key(path, "forward", data.steps[0], 0, "input.0"))
    made = data.values(Key(path, "forward", data.steps[0], 0, "output"))
    if given is None or made is None:
        return
    idle = [np.array_equal(given[place], made[place]) for place in (0, 1)]
    # Another formula may scale the values of a layer that is in eval mode on both sides.
    drops = [bool(np.any((made[place] == 0) & (given[place] != 0))) for place in (0, 1)]
    if (idle[0] and drops[1]) or (idle[1] and drops[0]):
        yield told("cause.mode.idle", (Key(path),), path=Name(path), side=side("candidate" if idle[1] else "reference"))


# Another kind of layer in the same place: ReLU and LeakyReLU, max and average pooling. Layers of different kinds are
# never paired; when both sides have one without a partner between the same two paired layers, give tensors of one
# shape, and what comes after is wrong, they are the suspects.


def _other_layer(case: Case) -> Iterable[Finding]:
    data = case.data
    if not any(key.phase == "forward" for key in case.failed):
        return
    partners = {ours: theirs.path for ours, (_, theirs) in data.layers.items()}
    here = _unpaired(data.reference, set(partners), {path: path for path in partners})
    there = _unpaired(data.candidate, set(partners.values()), {theirs: ours for ours, theirs in partners.items()})
    kinds = _kinds(data)
    for path, other, anchor in _couples(here, there):
        ours, theirs = kinds[0].get(path), kinds[1].get(other)
        if not ours or not theirs or ours.kind == theirs.kind or _reached(case, anchor):
            continue
        if _differ(here[path].made, there[other].made):
            yield told(
                "cause.other_layer",
                (Key(path),),
                sure="explained" if _given_the_same(data, path, other) else "hint",
                path=Name(path),
                ours=ours.type,
                other=Name(other),
                theirs=theirs.type,
                anchor=Name(anchor) if anchor else message("word.the_input"),
                type=Code(ours.type),
            )


def _differ(ours: Entry, theirs: Entry) -> bool:
    """Whether both layers give other numbers, in whatever order: two of another kind may compute the same."""
    if "full" not in (ours.detail, theirs.detail) or ours.detail != theirs.detail:
        return True
    one, other = (np.sort(entry.array().astype(np.float64), None) for entry in (ours, theirs))
    return relative(one, other) > SAME


def _given_the_same(data: CaseData, path: str, other: str) -> bool:
    """Whether both layers give other numbers for the same input: then they are what differs."""
    keys = [Key(one, "forward", data.first, 0, "input.0") for one in (path, other)]
    entries = [side[key] for (_, side), key in zip(data.sides, keys, strict=True) if key in side]
    return len(entries) == len(keys) and entries[0].detail == "full" and not _differ(entries[0], entries[1])


def _reached(case: Case, anchor: str) -> bool:
    """Whether the layer before it is already wrong."""
    return any(key.path == anchor and key.phase == "forward" and key.step == 0 and not key.run for key in case.failed)


@dataclass(frozen=True)
class _LayerPlace:
    anchor: str
    """The paired layer (the reference's name) that ran before."""
    shape: tuple[int, ...]
    made: Entry = field(compare=False)
    """What it gives at its first call."""


def _unpaired(recording: Recording, paired: set[str], names: Mapping[str, str]) -> dict[str, _LayerPlace]:
    """Layers without children and partner, each with its place."""
    parents = {module.path.rpartition(".")[0] for module in recording.modules if module.path}
    found: dict[str, _LayerPlace] = {}
    anchor = ""
    for entry in recording.of_run(""):
        key = entry.key
        if key.phase != "forward" or key.path in parents or key.step or key.role.startswith("input"):
            continue
        if key.path in paired:
            anchor = names[key.path]
        else:
            found.setdefault(key.path, _LayerPlace(anchor, tuple(sorted(entry.shape)), entry))
    return found


def _couples(here: Mapping[str, _LayerPlace], there: Mapping[str, _LayerPlace]) -> Iterable[tuple[str, str, str]]:
    left = dict(there)
    for path, place in here.items():
        fitting = next((other for other, its_place in left.items() if its_place == place), None)
        if fitting is not None:
            del left[fitting]
            yield path, fitting, place.anchor


def _kinds(data: CaseData) -> tuple[dict[str, ModuleInfo], dict[str, ModuleInfo]]:
    ours, theirs = (
        {module.path: module for module in recording.modules if module.kind}
        for recording in (data.reference, data.candidate)
    )
    return ours, theirs


HYPOTHESES = (
    Hypothesis("layer_setting", _layer_setting),
    Hypothesis("missing_parameter", _missing_parameter),
    Hypothesis("mode", _mode, Where(steps=1)),
    Hypothesis("other_layer", _other_layer),
)
