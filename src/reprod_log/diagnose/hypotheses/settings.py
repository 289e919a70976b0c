"""Settings: layers and optimizers that are set differently, lack a parameter, or run in another mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprod_log.diagnose.case import Case, CaseData, shared_weights
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, Fix, side
from reprod_log.diagnose.fits import BadUpdates, first_bad_update
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.optimizers import group_settings, optimizer_kind, optimizer_kinds
from reprod_log.layers.settings import Difference, same_setting, setting_differences
from reprod_log.messages import Code, Message, Name, Number, message
from reprod_log.pairing.values import factor
from reprod_log.recording import Array, Key, ModuleInfo, Recording

# Gradient clipping that one side lacks, or does in another way: per tensor, by value, at another norm.


def _clipping(case: Case) -> Iterable[Finding]:
    alone = [one.key for one in case.comparison.unmatched]
    for step in case.data.steps:
        here = [key for key in (*alone, *case.failed) if key.step == step and not key.run]
        if any(key.phase in ("data", "forward", "loss", "backward", "gradient") for key in here):
            return
        clips = [key for key in here if key.phase == "clip"]
        if clips:
            ours, theirs = (_way_of_clipping(one, step) for one in (case.data.reference, case.data.candidate))
            if ours != theirs:
                yield Finding(
                    rule="clipping",
                    cause=message("cause.clipping", ours=ours, theirs=theirs),
                    evidence=(message("evidence.around_clipping", step=step),),
                    confidence="explained",
                    advice=(message("advice.clip_alike"),),
                    keys=tuple(clips)[:5],
                )
            return


def _way_of_clipping(recording: Recording, step: int) -> Message:
    """How a side clipped at a step."""
    pairs = _clipped_gradients(recording, step)
    if not pairs:
        return message("word.no_clipping")
    ratios = {path: factor(raw, clipped, within=1e-4) for path, (raw, clipped) in pairs.items() if raw.any()}
    if any(ratio is None for ratio in ratios.values()):
        largest = max(float(np.abs(clipped).max()) for _, clipped in pairs.values())
        return message("word.clipped_by_value", limit=str(Number(largest, ".4g")))
    values = [ratio for ratio in ratios.values() if ratio is not None]
    if max(values) - min(values) <= 1e-3 * max(values):
        norm = float(np.sqrt(sum(float(np.vdot(clipped, clipped)) for _, clipped in pairs.values())))
        return message("word.clipped_by_global_norm", limit=str(Number(norm, ".3g")))
    norms = [float(np.linalg.norm(clipped)) for path, (_, clipped) in pairs.items() if (ratios.get(path) or 1) < 0.999]
    return message("word.clipped_per_tensor", limit=str(Number(max(norms, default=0.0), ".3g")))


def _clipped_gradients(recording: Recording, step: int) -> dict[str, tuple[Array, Array]]:
    found = {}
    for entry in recording.of_run(""):
        key = entry.key
        if key.phase == "clip" and key.step == step and entry.detail == "full":
            raw = Key(key.path, "gradient", step, role="raw")
            if raw in recording:
                found[key.path] = (recording[raw].array().astype(np.float64), entry.array().astype(np.float64))
    return found


# A setting that differs between two paired layers (epsilon, padding, slope, momentum …), where the numbers differ too.
# A setting alone proves nothing: it may not matter for this layer. So it is reported only when the layer fails alone;
# without isolated passes, when it is the first to fail, or its running statistics do.


def _layer_setting(case: Case) -> Iterable[Finding]:
    failing = _failing_layers(case)
    suspect = _suspect_layers(case)
    for path, (ours, theirs) in case.data.layers.items():
        if path not in failing and path not in suspect:
            continue
        for one in setting_differences(ours, theirs):
            if path in failing:
                yield _other_setting(path, ours, theirs, one, failing[path])
            elif one.name == "eps":
                yield _other_setting(path, ours, theirs, one, suspect[path], remark=True)


def _other_setting(
    path: str, ours: ModuleInfo, theirs: ModuleInfo, one: Difference, keys: tuple[Key, ...], *, remark: bool = False
) -> Finding:
    call = Code(f"{theirs.type}(…, {one.native}={one.right!r})")
    kind = layer_kind(ours.kind)
    known = None if kind is None else kind.advice.get(one.name)
    return Finding(
        rule="layer_setting",
        cause=message(
            "cause.layer_setting", setting=one.name, path=Name(path), ours=str(one.ours), theirs=str(one.theirs)
        ),
        evidence=(
            message("evidence.types", ours=ours.type, theirs=theirs.type),
            message("evidence.layer_alone_nearly_agrees" if remark else "evidence.layer_alone_differs"),
        ),
        confidence="hint" if remark else "explained",
        advice=(
            *(() if known is None else (message(known),)),
            message("advice.setting_in_candidate", call=call, path=Name(theirs.path)),
        ),
        keys=keys[:5],
        kind="remark" if remark else "cause",
        fixes=(Fix(path, {one.native: one.right}),),
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
    first = data.steps[0] if data.steps else 0
    shared = {one.separate for one in shared_weights(case)}
    theirs = {there.path for _, there in data.layers.values()}
    for one in case.comparison.unmatched:
        key = one.key
        if key.phase != "parameter" or key.run or key.step != first or key.path in shared:
            continue
        owner, _, name = key.path.rpartition(".")
        if owner not in (data.layers if one.side == "reference" else theirs):
            continue
        other = "candidate" if one.side == "reference" else "reference"
        yield Finding(
            rule="missing_parameter",
            cause=message(
                "cause.missing_parameter", layer=Name(owner), name=name, side=side(one.side), other=side(other)
            ),
            evidence=(message("evidence.parameter_alone", path=Name(key.path)),),
            confidence="explained",
            advice=(message("advice.both_or_neither", name=name),),
            keys=(key,),
        )


# Train mode on one side and eval mode on the other: batch norms and dropouts of a model, or of a part of it.


def _mode(case: Case) -> Iterable[Finding]:
    data = case.data
    for path, (ours, _) in data.layers.items():
        row = layer_kind(ours.kind)
        if row is None or not row.mode or not _at_fault(case, path, data.steps[0]):
            continue
        what = "BatchNorm" if row.moving else "dropout"
        modes = _modes(data, path)
        if modes is not None and modes[0] != modes[1]:
            yield _in_another_mode(what, path, *modes)
        elif what == "dropout":
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


def _in_another_mode(what: str, path: str, ours: bool, theirs: bool) -> Finding:
    modes = {True: "train", False: "eval"}
    return Finding(
        rule="mode",
        cause=message("cause.mode", what=what, path=Name(path), ours=modes[ours], theirs=modes[theirs]),
        evidence=(message("evidence.mode_recorded"),),
        confidence="explained",
        advice=(message("advice.same_mode"),),
        keys=(Key(path),),
        fixes=(Fix(path, {"training": ours}),),
    )


def _idle(data: CaseData, path: str) -> Iterable[Finding]:
    given = data.values(Key(path, "forward", data.steps[0], 0, "input.0"))
    made = data.values(Key(path, "forward", data.steps[0], 0, "output"))
    if given is None or made is None:
        return
    idle = [np.array_equal(given[place], made[place]) for place in (0, 1)]
    if idle[0] != idle[1]:
        yield Finding(
            rule="mode",
            cause=message("cause.mode.idle", path=Name(path), side=side("candidate" if idle[1] else "reference")),
            evidence=(message("evidence.output_is_input"),),
            confidence="explained",
            advice=(message("advice.same_mode"),),
            keys=(Key(path),),
        )


# Settings in which the two optimizers differ: kind, momentum, nesterov, decay, betas, epsilon. Reported when updates or
# the optimizer's state differ although the gradients that went in agree.


def _optimizer_setting(case: Case) -> Iterable[Finding]:
    bad = first_bad_update(case)
    if bad is None:
        return
    for name, ours, theirs in case.data.optimizers():
        kinds = optimizer_kind(ours), optimizer_kind(theirs)
        if kinds[0] == kinds[1]:
            yield from _other_values(name, kinds[0], (group_settings(ours), group_settings(theirs)), bad)
            continue
        id = "cause.optimizer_setting.adamw" if set(kinds) == {"adam", "adamw"} else "cause.optimizer_setting.kind"
        yield Finding(
            rule="optimizer_setting",
            cause=message(id, ours=str(ours["type"]), theirs=str(theirs["type"])),
            evidence=(message("evidence.updates_apart", step=bad.step),),
            confidence="explained",
            advice=(message("advice.same_optimizer", name=Name(name)),),
            keys=bad.keys,
        )


def _other_values(
    name: str, kind: str, groups: tuple[list[dict[str, Any]], list[dict[str, Any]]], bad: BadUpdates
) -> Iterable[Finding]:
    ours, theirs = groups
    history = optimizer_kinds()[kind].history if kind in optimizer_kinds() else ()
    if not ours or not theirs:
        return
    for setting in sorted({key for group in (*ours, *theirs) for key in group}):
        here, there = _distinct(ours, setting), _distinct(theirs, setting)
        if not here or not there or all(any(same_setting(a, b) for b in there) for a in here):
            continue
        if setting == "weight_decay" and any(any(same_setting(a, b) for b in there) for a in here):
            # Groups with and without decay on one side and a function on the other: the values tell (update_fit).
            continue
        shown = [tuple(f"{value:g}" for value in values) for values in (here, there)]
        later = bad.step and setting in history
        yield Finding(
            rule="optimizer_setting",
            cause=message("cause.optimizer_setting", setting=setting.replace("_", " "), ours=shown[0], theirs=shown[1]),
            evidence=(message("evidence.updates_apart.later" if later else "evidence.updates_apart", step=bad.step),),
            confidence="explained",
            advice=(message("advice.set_in_optimizer", name=Name(name), value=Code(f"{setting}={here[0]:g}")),),
            keys=bad.keys,
        )


def _distinct(groups: Iterable[Mapping[str, Any]], setting: str) -> list[Any]:
    return list(dict.fromkeys(group[setting] for group in groups if setting in group))


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
        if ours and theirs and ours.kind != theirs.kind and not _reached(case, anchor):
            yield Finding(
                rule="other_layer",
                cause=message(
                    "cause.other_layer", path=Name(path), ours=ours.type, other=Name(other), theirs=theirs.type
                ),
                evidence=(
                    message("evidence.both_come_after", anchor=Name(anchor) if anchor else message("word.the_input")),
                ),
                confidence="explained",
                advice=(message("advice.same_layer", type=Code(ours.type)),),
                keys=(Key(path),),
            )


def _reached(case: Case, anchor: str) -> bool:
    """Whether the layer before it is already wrong."""
    return any(key.path == anchor and key.phase == "forward" and key.step == 0 and not key.run for key in case.failed)


@dataclass(frozen=True)
class _LayerPlace:
    anchor: str
    """The paired layer (the reference's name) that ran before."""
    shape: tuple[int, ...]


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
            found.setdefault(key.path, _LayerPlace(anchor, tuple(sorted(entry.shape))))
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
    Hypothesis("clipping", _clipping),
    Hypothesis("layer_setting", _layer_setting),
    Hypothesis("missing_parameter", _missing_parameter),
    Hypothesis("mode", _mode, Where(steps=1)),
    Hypothesis("optimizer_setting", _optimizer_setting),
    Hypothesis("other_layer", _other_layer),
)
