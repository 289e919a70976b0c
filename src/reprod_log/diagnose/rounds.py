"""Rounds: every independent cause, found one after the other.

The first cause hides the others, because everything behind it differs. So the candidate is run once more, every part of
it fed with the reference's values: what fails then is wrong at its own place. What a cause explains is replaced by the
reference's values, and the hypotheses look again, until nothing is left or nothing helps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from reprod_log.diagnose import diagnose
from reprod_log.diagnose.case import Case, CaseData
from reprod_log.diagnose.engine import is_possible
from reprod_log.diagnose.finding import Finding, Fix, ranked, side, told
from reprod_log.diagnose.proof import confirmed
from reprod_log.diagnose.schedules import EXACT
from reprod_log.experiments.passes import FLOAT64, Experiments
from reprod_log.frameworks.side import as_mapping
from reprod_log.frameworks.source_lines import written_at
from reprod_log.frameworks.tensors import cast_floating
from reprod_log.measure.comparison import measure
from reprod_log.messages import Code, Message, Name, Names, Parts, message
from reprod_log.pairing import Pair, Pairing, match
from reprod_log.recording import Array, Entry, Key, Recording
from reprod_log.recording.recording import entry_of
from reprod_log.verdict import CalibratedPolicy, calibrate, judge_calibrated

_MOST_ROUNDS = 6
_OF_UPDATES = ("clip", "update", "optimizer", "parameter")
_OF_SCRIPTS = frozenset({"average_of_weights", "changed_before_call"})
"""Hypotheses about what a script writes from step to step, which begins anew with every step that is fed."""
_ABOUT_LAYERS = ("weights", "layer_setting", "mode", "statistics")


_WORDS = {
    "data": "word.place.data",
    "between": "word.place.between",
    "layer": "word.place.layer",
    "loss": "word.place.loss",
    "backward": "word.place.backward",
    "rate": "word.place.rate",
    "update": "word.place.update",
    "loop": "word.place.loop",
}
"""By the kind of a place."""


class Place(NamedTuple):
    """Where something is wrong by itself: a layer, the code before one, the loss, the loop …"""

    kind: Literal["data", "between", "layer", "loss", "backward", "rate", "update", "loop"]
    path: str = ""


def proven(
    case: Case, findings: Sequence[Finding], runs: Experiments, reference: Recording, candidate: Recording
) -> tuple[Finding, ...]:
    """The findings of every independent mistake, each that a re-run confirms marked as proven."""
    return tuple(_with_lines(one, runs) for one in _every(case, findings, runs, reference, candidate))


def _every(
    case: Case, findings: Sequence[Finding], runs: Experiments, reference: Recording, candidate: Recording
) -> tuple[Finding, ...]:
    found = confirmed(case, findings, runs, reference, candidate)
    if case.verdict.passed or not isinstance(case.policy, CalibratedPolicy) or not case.failed:
        return found
    if runs.weights is not None or runs.emulated or any(one.rule == "scheme" for one in findings):
        # Both programs compute the same, or the candidate cannot compute in float64 what it computes.
        return found
    pairing = match(reference, candidate, rename=runs.rename)
    fed = runs.fed(reference, pairing)
    return _Rounds(case, runs, reference, candidate, pairing, fed).every(found) if fed else found


_WRITTEN_IN = {"loss": "loss", **dict.fromkeys((*_OF_UPDATES, "lr"), "optimizer")}
"""By phase: the part of a side whose code makes what differs; a step of one's own where there is none."""


def _with_lines(finding: Finding, runs: Experiments) -> Finding:
    """A cause in the loss, the optimizer or the schedule, with the lines where both sides write them."""
    part = next((_WRITTEN_IN[key.phase] for key in finding.keys if key.phase in _WRITTEN_IN), None)
    part = "step" if part and finding.rule in _OF_SCRIPTS else part
    if part is None or finding.kind not in ("cause", "hint"):
        return finding
    lines = []
    for name, one in (("reference", runs.ours), ("candidate", runs.theirs)):
        code, what = next(((getattr(one, at), at) for at in (part, "step") if getattr(one, at) is not None), (None, ""))
        line = "" if code is None else written_at(code, one.framework.name)
        if line:
            lines.append(message("word.operator.in_side_at", name=Code(what), side=side(name), line=Code(line)))
    if not lines:
        return finding
    return replace(finding, evidence=(*finding.evidence, message("evidence.written_at", places=tuple(lines))))


@dataclass
class _Rounds:
    """The candidate with its parts fed, of which more and more is replaced by the reference's values."""

    case: Case
    runs: Experiments
    reference: Recording
    candidate: Recording
    pairing: Pairing
    fed: tuple[Entry, ...]

    def every(self, known: Sequence[Finding]) -> tuple[Finding, ...]:
        """The known findings, the causes and hints that they hide, and what all causes together explain."""
        whole = self._seen(frozenset())
        local = _Local(whole, frozenset(as_mapping(self.runs.ours.model)))
        done = {place for one in known if one.kind in ("cause", "hint") for place in local.of_finding(one)}
        fixes = [fix for one in known if one.confidence == "proven" for fix in one.fixes]
        mistakes = {one.mistake for one in known}
        others: list[Finding] = list(known)
        for _ in range(_MOST_ROUNDS):
            left = [place for place in local.places if place not in done]
            if not left:
                break
            case = self._seen(local.hidden(left, fixes), scaled=Place("rate") in done)
            if not case.failed:
                done.update(left)
                continue
            found = confirmed(case, diagnose(case), self.runs, self.reference, case.data.candidate, known=others)
            new = [
                (one, places)
                for one in found
                if one.kind in ("cause", "hint")
                and one.rule not in _OF_SCRIPTS
                and (one.kind == "cause" or is_possible(one, self.case))
                and (places := set(local.of_finding(one)) & set(left))
            ]
            done.update(place for _, places in new for place in places) if new else done.add(left[0])
            for one, _ in new:
                if one.mistake not in mistakes:
                    mistakes.add(one.mistake)
                    others.append(one)
                    fixes += one.fixes if one.confidence == "proven" else ()
        explained = {place for one in others if one.kind == "cause" for place in local.of_finding(one)}
        return ranked([*others, *self._summary(others, [place for place in local.places if place not in explained])])

    def _summary(self, findings: Iterable[Finding], left: Sequence[Place]) -> Iterator[Finding]:
        """What the causes explain, and where they do not: of one that explains all, the verdict tells enough."""
        causes, failing = sum(one.kind == "cause" for one in findings), len(self.case.failed)
        if not causes or (causes == 1 and not left):
            return
        if left:
            yield told("cause.explained.in_part", count=causes, failing=failing, places=Parts(map(_described, left)))
        else:
            yield told("cause.explained", count=causes, failing=failing, sure="proven")

    @cached_property
    def _fed(self) -> Pairing:
        """The pairs of the fed run, with what was run alone and with injected gradients as it was."""
        wide = {entry.key: entry for entry in _summed(self.fed)}
        entries: list[Entry] = []
        # In the order of the recording: layers are paired by it.
        for entry in self.candidate.entries:
            if entry.key.run in ("", FLOAT64):
                made = wide.get(entry.key.in_run(FLOAT64))
                entries += () if made is None else (_as(made, entry),)
            else:
                entries.append(entry)
        known = {entry.key for entry in entries}
        for entry in wide.values():
            entries += (one for one in (_narrow(entry), entry) if one.key not in known)
        candidate = replace(self.candidate, entries=tuple(entries), source="")
        found = match(self.reference, candidate, rename=self.runs.rename)
        # A layer whose output differs while what follows is right would be taken for another way of writing.
        again = {(pair.reference.key, pair.candidate.key): pair for pair in found.pairs}
        raw = {entry.key: entry for entry in entries}
        pairs = [
            again.get((pair.reference.key, key)) or Pair(pair.reference, raw[key], pair.how, pair.confidence, pair.view)
            for pair in self.pairing.pairs
            # A part of a weight that is larger on the other side has its partner through the map alone.
            if (key := pair.candidate.key) in raw
            and ((pair.reference.key, key) in again or prod(raw[key].shape) == prod(pair.candidate.shape))
        ]
        known, taken = {pair.reference.key for pair in pairs}, {pair.candidate.key for pair in pairs}
        pairs += [pair for pair in found.pairs if pair.reference.key not in known and pair.candidate.key not in taken]
        return replace(self.pairing, pairs=tuple(pairs))

    def _seen(self, hidden: Collection[Key], *, scaled: bool = False) -> Case:
        """The case of the fed run, with the reference's values under the keys that are hidden.

        With `scaled`, updates are those that the reference's learning rates would have made.
        """
        rates = _ratios(self._fed) if scaled else {}
        pairs = []
        for pair in self._fed.pairs:
            key, made = pair.reference.key, pair.candidate
            if scaled and key.phase in _OF_UPDATES:
                ratio = rates.get(key.step or 0)
                is_known = key.phase == "optimizer" or (key.phase == "update" and ratio is not None)
                made = _times(made, ratio or 1.0) if key.phase == "update" else made
                made = made if is_known and not key.run.startswith("injected") else _as(pair.reference, made)
            if _judged_as(key) in hidden:
                made = _as(pair.reference, made)
            pairs.append(Pair(pair.reference, made, pair.how, pair.confidence, pair.view))
        # What only one side has stays so whatever the other is fed: the first look told what there is to tell of it.
        pairing = replace(self._fed, pairs=tuple(pairs), only_in_reference=(), only_in_candidate=())
        # Several weights may be parts of one.
        entries = {pair.candidate.key: pair.candidate for pair in pairs}
        candidate = replace(self.candidate, entries=tuple(entries.values()), source="")
        comparison = measure(pairing)
        floor = calibrate(pairing, reference=self.reference, candidate=candidate, comparison=comparison)
        assert isinstance(self.case.policy, CalibratedPolicy)
        verdict = judge_calibrated(comparison, floor, self.case.policy)
        data = CaseData(self.reference, candidate, pairing, fed=True)
        return replace(self.case, comparison=comparison, verdict=verdict, floor=floor, recorded=data)


class _Local:
    """Which failures of the fed run are of which place."""

    def __init__(self, case: Case, roots: Collection[str]) -> None:
        self._case, self._roots = case, roots
        self._first = case.data.steps[0] if case.data.steps else 0
        ran = [key.path for key in case.judgements if key.phase == "forward" and not key.run]
        self._order = {path: place for place, path in reversed(list(enumerate(ran)))}
        """When each module was called first, and last."""
        self._last = {path: place for place, path in enumerate(ran)}
        self._misfed = {
            key.path
            for key in case.failed
            if self._is_early(key) and key.phase == "forward" and key.role.startswith("input")
        }
        self._by_key = {key: self._place(key) for key in case.failed}
        found = dict.fromkeys(place for place in self._by_key.values() if place is not None)
        self.places = [place for place in sorted(found, key=self._time) if not self._follows(place, found)]

    def of_finding(self, finding: Finding) -> Iterator[Place]:
        """The places that a finding is about."""
        yield from (Place("layer", fix.layer) for fix in finding.fixes)
        names = [*_names(finding.cause)]
        if not names and finding.rule in _ABOUT_LAYERS:
            yield from (place for place in self.places if place.kind == "layer")
        for path in names:
            yield from _about(path)
        for key in finding.keys:
            if not key.phase:
                yield from _about(key.path)
                continue
            place = self._by_key.get(key) or self._place(key)
            if place is not None:
                yield place
            if key.run.startswith("isolated"):
                yield from self._inside(key)

    def hidden(self, left: Collection[Place], fixes: Iterable[Fix]) -> frozenset[Key]:
        """The failures that do not belong to the places that are left to look at."""
        fixed = {fix.layer for fix in fixes}
        gone = [
            place.path
            for place in self.places
            if place not in left and place.kind in ("layer", "between") and place.path not in fixed
        ]
        around = {
            layer
            for place in left
            if place.kind in ("between", "layer", "backward")
            for layer in _containers(place.path)
            if not any(path == layer or _is_inside(path, layer) for path in gone)
        }
        return frozenset(
            key
            for key, place in self._by_key.items()
            if place not in left and not (key.run == "isolated" and place is None and key.layer_alone in around)
        )

    def _inside(self, key: Key) -> Iterator[Place]:
        """The first place inside a region whose operators were searched: the search names one."""
        inner = [
            place
            for place in self.places
            if place.kind == ("backward" if key.phase == "backward" else "between")
            and _is_inside(place.path, key.layer_alone)
        ]
        yield from inner[:1]

    def _is_early(self, key: Key) -> bool:
        return not key.run and key.step == self._first

    def _place(self, key: Key) -> Place | None:
        if key.phase == "data":
            return Place("data")
        if key.phase == "lr":
            return Place("rate")
        if key.phase in _OF_UPDATES:
            return Place("update")
        if key.run:
            return self._alone(key) if key.run == "isolated" else None
        if key.step != self._first:
            early = Key(key.path, key.phase, self._first, key.call, key.role)
            return None if early in self._case.failed or key.phase in ("forward", "buffer") else Place("loop")
        if key.phase == "loss" or (key.phase == "backward" and key.path in self._roots):
            return Place("loss")
        layer = key.path if key.phase in ("forward", "backward") else key.path.rpartition(".")[0]
        if key.phase != "backward" and (misfed := self._misfed_above(layer)) is not None:
            return Place("between", misfed)
        if key.phase == "backward":
            return Place("backward", layer)
        if self._case.states.get(layer) in ("sound", "inherited"):
            # Right alone: what reached it is wrong, where that could not be replaced.
            return Place("backward", layer) if key.phase == "gradient" else None
        return Place("layer", layer)

    def _alone(self, key: Key) -> Place | None:
        state = self._case.states.get(key.layer_alone)
        return Place("layer", key.layer_alone) if state in ("own", "glue") else None

    def _misfed_above(self, layer: str) -> str | None:
        return next((path for path in (*reversed(_containers(layer)), layer) if path in self._misfed), None)

    def _time(self, place: Place) -> tuple[int, int]:
        kinds = ("data", "between", "layer", "loss", "backward", "rate", "update", "loop")
        stage = min(kinds.index(place.kind), 2) if place.kind in ("data", "between", "layer") else 3
        early = 1 if stage in (1, 2) else stage
        return early, self._order.get(place.path, 0) if early == 1 else kinds.index(place.kind)

    def _follows(self, place: Place, places: Collection[Place]) -> bool:
        """Whether another place makes this one fail."""
        inner = [one for one in places if one.kind in ("between", "layer") and one != place]
        if place.kind == "layer" and self._case.states.get(place.path) == "glue":
            return any(_is_inside(one.path, place.path) for one in inner)
        if place.kind == "between" and Place("data") in places:
            return not any(
                self._order.get(path, 0) < self._order.get(place.path, 0)
                for path, state in self._case.states.items()
                if state in ("sound", "own") and path
            )
        if place.kind == "backward":
            mine = self._order.get(place.path, 0)
            return any(self._last.get(one.path, 0) >= mine for one in inner)
        return False


def _described(place: Place) -> Message:
    id = _WORDS[place.kind]
    if place.kind in ("between", "layer", "backward"):
        return message(id, path=Name(place.path) if place.path else message("word.the_output"))
    return message(id)


def _about(path: str) -> Iterator[Place]:
    """The places that the bare name of a layer, or of a tensor of one, may mean."""
    owner = path.rpartition(".")[0]
    yield from (Place("layer", path), Place("layer", owner), Place("between", path), Place("backward", path))


def _containers(path: str) -> list[str]:
    """The regions around a layer, the innermost first and the whole model last."""
    parts = path.split(".") if path else []
    return [".".join(parts[:count]) for count in range(len(parts) - 1, -1, -1)]


def _is_inside(path: str, region: str) -> bool:
    return path != region and (not region or path.startswith(f"{region}."))


def _names(what: Message) -> Iterator[str]:
    for value in what.arguments.values():
        if isinstance(value, Message):
            yield from _names(value)
        elif isinstance(value, Names):
            yield from map(str, value)
        elif isinstance(value, Name):
            yield str(value)


# Values of a run that the reference's take the place of.


def _judged_as(key: Key) -> Key:
    """The key under which an entry is judged: that of the run in its own precision."""
    return key.in_run("" if key.run == FLOAT64 else key.run.removesuffix(f".{FLOAT64}"))


def _as(entry: Entry, like: Entry) -> Entry:
    """The values of an entry under the key and in the dtype of another."""
    if entry.dtype == like.dtype or not like.dtype.startswith("float"):
        return Entry(
            like.key, entry.shape, entry.dtype, entry.read, like.layer_type, entry.detail, entry.hash, dict(like.meta)
        )
    array = cast_floating(entry.array(), like.dtype)
    return Entry(like.key, array.shape, like.dtype, lambda: array, like.layer_type, meta=dict(like.meta))


def _narrow(entry: Entry) -> Entry:
    """The entry of the float64 run as one of a run in float32."""
    if entry.dtype != FLOAT64:
        return replace(entry, key=entry.key.in_run(""))
    array = cast_floating(entry.array(), "float32")
    return Entry(entry.key.in_run(""), array.shape, "float32", lambda: array, entry.layer_type, meta=entry.meta)


def _times(entry: Entry, ratio: float) -> Entry:
    array = entry.array() * np.asarray(ratio, entry.array().dtype)
    return Entry(entry.key, array.shape, entry.dtype, lambda: array, entry.layer_type, meta=dict(entry.meta))


def _ratios(pairing: Pairing) -> dict[int, float | None]:
    """By step: the reference's learning rate over the candidate's; None when groups differ or it is zero."""
    found: dict[int, set[float]] = {}
    for pair in pairing.pairs:
        key = pair.reference.key
        if key.phase == "lr" and key.run == FLOAT64:
            ours, theirs = float(pair.reference.array()), float(pair.candidate.array())
            found.setdefault(key.step or 0, set()).add(ours / theirs if theirs else float("nan"))
    return {step: _only(ratios) for step, ratios in found.items()}


def _only(ratios: Collection[float]) -> float | None:
    """The one ratio there is, to rounding; None when there are several."""
    low, high = min(ratios), max(ratios)
    return low if np.isfinite(low) and low > 0 and high - low <= EXACT * high else None


def _summed(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries, with parameters as the run's own updates make them: each step that is fed began with others."""
    entries = tuple(entries)
    updates = {(entry.key.path, entry.key.step): entry for entry in entries if entry.key.phase == "update"}
    sums: dict[str, Array] = {}
    for entry in entries:
        key = entry.key
        moved = updates.get((key.path, key.step)) if key.phase == "parameter" else None
        if moved is None:
            yield entry
            continue
        now = sums[key.path] + moved.array() if key.path in sums else entry.array()
        sums[key.path] = now
        yield replace(entry_of(key, now), layer_type=entry.layer_type, meta=entry.meta)
