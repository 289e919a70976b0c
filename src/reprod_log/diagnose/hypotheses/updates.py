"""Updates: what optimizers do with the same gradients, how gradients are clipped, and gradients that were kept.

Both sides' laws are fitted to their own gradients, parameters and rates. What differs between two laws that give every
update of their side is the cause; settings that only differ on paper are hints.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from reprod_log.diagnose.case import Case, CaseData
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, What, told, what
from reprod_log.diagnose.fits import CLEARLY, ROUNDINGS, epsilon, holds, shown_ratio
from reprod_log.diagnose.laws import Decay, Fitted, Trace, candidates, fitted, laws_of, predicted
from reprod_log.layers.optimizers import averaged, group_settings
from reprod_log.layers.settings import same_setting
from reprod_log.messages import Code, Message, Name, Names, Number, message
from reprod_log.pairing.distance import factor
from reprod_log.recording import Array, Key, Recording

_OF_OPTIMIZERS = ("update", "optimizer", "parameter")


@dataclass(frozen=True)
class BadUpdates:
    """The first step at which the optimizers do different things with the same gradients."""

    step: int
    at: int
    """How many steps there are up to it."""
    paths: tuple[str, ...]
    """Parameters whose update differs, or is there on one side only."""
    agreeing: tuple[str, ...]
    """Parameters whose update agrees at that step."""
    keys: tuple[Key, ...]


def first_bad_update(case: Case) -> BadUpdates | None:
    """None when updates agree, or when gradients or learning rates are already wrong at that step."""
    data = case.data
    # A layer that one side writes as a function has no partner and says nothing about the optimizers; a gradient that
    # is lost does.
    paired = {*data.parameters, *map(data.partner, data.parameters)}
    alone = {
        key
        for key in (one.key for one in case.comparison.unmatched)
        if key.phase in _OF_OPTIMIZERS or (key.phase == "gradient" and key.path in paired)
    }
    wrong = {key for key in (*case.failed, *alone) if not key.run}
    for count, step in enumerate(data.steps, 1):
        here = {key for key in wrong if key.step == step}
        if any(key.phase in ("data", "forward", "loss", "backward", "gradient", "lr") for key in here):
            return None
        # In an order of its own: sets have another one in every process.
        bad = {
            key.path: key
            for key in sorted(here, key=lambda one: (data.place(one.path), str(one)))
            if key.phase in _OF_OPTIMIZERS
        }
        if bad:
            updated = {key.path for key in data.keys("update", step)}
            agreeing = [path for path in data.parameters if path not in bad and path in updated]
            return BadUpdates(step, count, tuple(bad), tuple(agreeing), tuple(bad.values())[:5])
    return None


# What an optimizer does: the laws of both sides, and what differs between them.


def _update_law(case: Case) -> Iterable[Finding]:
    bad = first_bad_update(case)
    if bad is None:
        return
    untrained = [path for path in bad.paths if _untrained(case.data, path, bad.step)]
    if untrained:
        yield told("cause.update_fit.untrained", bad.keys, paths=Names(untrained), step=bad.step)
    if any(key.phase == "clip" and key.step == bad.step for key in case.failed):
        # What the optimizers were given differs, which is what clipping is about.
        return
    wrong = [path for path in bad.paths if path not in untrained]
    found = False
    for name, ours, theirs in case.data.optimizers():
        both = _Both.of(case, name, (ours, theirs), wrong, bad)
        if both is not None:
            causes = list(both.findings(bad))
            found = found or bool(causes)
            yield from causes
    if wrong and not found:
        yield from _on_paper(case, bad)


def _untrained(data: CaseData, path: str, step: int) -> bool:
    key = Key(path, "update", step)
    both = data.best(key)
    if both is not None:
        ours, theirs = both
        # An update that is a decay alone, as before a batch norm, trains nothing.
        before = data.before(path, step)
        decays = before is not None and ours.size > 1 and factor(before[0], ours, within=CLEARLY) is not None
        return bool(ours.any()) and not theirs.any() and not decays
    # Where both have an update whose values were not kept (a sketch or summary) nothing is known.
    return key not in data.pairs and key in data.reference and not data.reference[key].is_zero()


@dataclass(frozen=True)
class _Both:
    """The laws of both sides of one optimizer."""

    name: str
    ours: Fitted
    theirs: Fitted | None
    """None: no law that we know."""
    traces: Mapping[str, Trace]
    """The candidate's, by the reference's names."""
    right: Mapping[str, Trace]
    """The reference's."""
    wrong: tuple[str, ...]

    @classmethod
    def of(
        cls, case: Case, name: str, settings: tuple[Any, Any], wrong: Sequence[str], bad: BadUpdates
    ) -> _Both | None:
        chosen = [path for path in (*wrong, *bad.agreeing) if path in _parameters_of(settings[0], case.data)]
        sides = [
            {
                path: trace
                for path in chosen
                if (trace := _trace(case, path, place, (name, settings[place]))) is not None
            }
            for place in (0, 1)
        ]
        known = [path for path in chosen if path in sides[0] and path in sides[1]]
        mine = tuple(path for path in wrong if path in known)
        if not mine:
            return None
        claimed = [laws_of(one) for one in settings]
        decays = [Decay(), *(decay for one in claimed for _, decay in one)]
        traces = [{path: side[path] for path in known} for side in sides]
        ours = fitted(traces[0], candidates(law for law, _ in claimed[0]), dict.fromkeys(known, decays[::-1]))
        if ours is None:
            return None
        first = {path: [ours.decays[path], *decays] for path in known}
        laws = candidates([ours.law, *(law for law, _ in claimed[1])])
        theirs = fitted(traces[1], laws, first)
        if theirs is not None:
            theirs = _without_idle(ours, theirs, traces[1])
        return cls(name, ours, theirs, traces[1], traces[0], mine)

    def findings(self, bad: BadUpdates) -> Iterator[Finding]:
        if self.theirs is None:
            yield from self._own_rates(bad)
            return
        law = message("evidence.update_law", count=len(next(iter(self.traces.values())).rates))
        fixed = self._fixed(bad.at)
        again = (message("evidence.update_again", count=bad.at),) if fixed else ()
        for one in (*self._settings(), *self._decays()):
            yield told(one, bad.keys, evidence=(law, *again), step=bad.step, sure="proven" if fixed else None)

    def _fixed(self, steps: int) -> bool:
        """Whether the candidate's updates, computed again with the reference's law, are the reference's.

        This is asked up to the first step that differs: behind it both sides have other weights and gradients.
        """
        return all(
            replace(trace.first(steps), updates=self.right[path].first(steps).updates).obeys(
                self.ours.law, self.ours.decays[path]
            )
            for path, trace in self.traces.items()
        )

    def _settings(self) -> Iterator[What]:
        assert self.theirs is not None
        ours, theirs = self.ours.law, self.theirs.law
        for name in ours.differences(theirs):
            here, there = getattr(ours, name), getattr(theirs, name)
            if name in _WORDS:
                # RMSprop corrects nothing.
                id, words = _WORDS["root" if name == "place" and ours.kind == "rmsprop" else name]
                yield what(id, ours=message(words[here]), theirs=message(words[there]))
            elif name == "repeats":
                yield what("cause.update_law.repeats", count=there)
            elif name == "kind":
                yield what("cause.optimizer_setting.kind", ours=here, theirs=there, name=Name(self.name))
            else:
                word = "rho" if name == "beta2" and ours.kind in ("rmsprop", "adadelta") else name
                yield self._setting(word, (_shown(here),), (_shown(there),))

    def _setting(self, name: str, ours: tuple[str, ...], theirs: tuple[str, ...]) -> What:
        value = Code(f"{name}={ours[0]}")
        return what(_SETTING, setting=_in_words(name), ours=ours, theirs=theirs, name=Name(self.name), value=value)

    def _decays(self) -> Iterator[What]:
        assert self.theirs is not None
        ours, theirs = self.ours.decays, self.theirs.decays
        other = [path for path in ours if ours[path] != theirs[path]]
        kinds = {(ours[path].coupled, theirs[path].coupled) for path in other if ours[path].value == theirs[path].value}
        for coupled, there in sorted(kinds):
            words = {True: "word.law.coupled", False: "word.law.decoupled"}
            yield what("cause.update_fit.coupled", ours=message(words[coupled]), theirs=message(words[there]))
        other = [path for path in other if ours[path].value != theirs[path].value]
        if not other:
            return
        # What has no value to decay, or would be the same with the others' decay, says nothing about who else decays.
        usual = Counter(theirs[path] for path in other).most_common(1)[0][0]
        rest = [
            path
            for path in ours
            if path not in other
            and self.traces[path].before[0].any()
            and (ours[path] == usual or not self._obeys(path, usual))
        ]
        decays_here, decays_there = (any(one[path].value for path in other) for one in (ours, theirs))
        if not rest or (decays_here and decays_there):
            values = [tuple(dict.fromkeys(f"{one[path].value:g}" for path in other)) for one in (ours, theirs)]
            yield self._setting("weight_decay", values[0], values[1])
        elif decays_here:
            yield what("cause.update_fit.decay_missing", paths=Names(other))
        else:
            vectors = all(self.traces[path].updates[0].ndim < 2 for path in other)
            id = "cause.update_fit.decay_on_vectors" if vectors else "cause.update_fit.decay_added"
            yield what(id, paths=Names(other))

    def _obeys(self, path: str, decay: Decay) -> bool:
        assert self.theirs is not None
        return self.traces[path].obeys(self.theirs.law, decay)

    def _own_rates(self, bad: BadUpdates) -> Iterator[Finding]:
        """The reference's law with one factor for each parameter that differs: learning rates of their own."""
        ratios: dict[str, float] = {}
        for path in self.wrong:
            trace, decay = self.traces[path], self.ours.decays[path]
            made = next(predicted(self.ours.law, decay, trace))
            ratio = factor(made, trace.updates[0], within=1.0)
            if ratio is None or not trace.obeys(self.ours.law, decay, scale=ratio):
                return
            ratios[path] = ratio
        if bad.agreeing:
            yield told(
                "cause.update_fit.rate" if len(ratios) == 1 else "cause.update_fit.rates",
                bad.keys,
                paths=Names(ratios),
                values=", ".join(f"{path} {shown_ratio(ratio)}" for path, ratio in list(ratios.items())[:4]),
                count=len(bad.agreeing),
            )


_SETTING = "cause.optimizer_setting"
_WORDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "place": (
        "cause.update_law.place",
        {"after": "word.law.place.after", "before": "word.law.place.before", "under": "word.law.place.under"},
    ),
    "root": ("cause.update_law.place", {"after": "word.law.place.root", "under": "word.law.place.under"}),
    "correction": (
        "cause.update_law.correction",
        {
            "both": "word.law.correction.both",
            "mean": "word.law.correction.mean",
            "spread": "word.law.correction.spread",
            "none": "word.law.correction.none",
            "first": "word.law.correction.first",
        },
    ),
}
"""Parts of a law whose values are words: the id of the cause, and those of the words."""


def _in_words(setting: str) -> str:
    return setting.replace("_", " ")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _without_idle(ours: Fitted, theirs: Fitted, traces: Mapping[str, Trace]) -> Fitted:
    """Their law with whatever of the reference's does as well in it: what changes no update is no cause."""
    law = theirs.law
    for name in ours.law.differences(law):
        if name != "kind":
            other = replace(law, **{name: getattr(ours.law, name)})
            if all(trace.obeys(other, theirs.decays[path]) for path, trace in traces.items()):
                law = other
    return Fitted(law, theirs.decays)


def _parameters_of(settings: Mapping[str, Any], data: CaseData) -> frozenset[str]:
    """The reference's parameters that an optimizer was given; all of them where that was not noted."""
    return frozenset(settings.get("parameters") or data.parameters)


def _trace(case: Case, path: str, place: int, optimizer: tuple[str, Mapping[str, Any]]) -> Trace | None:
    """A parameter as one side saw it, in the layout of the reference; None where a part of it was not recorded."""
    data = case.data
    recording = (data.reference, data.candidate)[place]
    rows = []
    for step in data.steps:
        key = Key(path, "update", step)
        both, before = data.moved(path, step), data.before(path, step)
        given = data.best(Key(path, "gradient", step, role="raw"))
        clipped = data.best(Key(path, "clip", step, role="clipped"))
        rate = _rate(data, place, path, step, optimizer)
        if both is None or before is None or given is None or rate is None:
            return None
        if clipped is None and _is_clipped(recording, path if place == 0 else data.partner(path), step):
            # Only this side clipped, so it has no partner: what clipping is about.
            return None
        gradient = (given if clipped is None else clipped)[place]
        room = case.room(key)
        # Updates are differences of parameters, whose rounding is all that is left of small ones.
        rounding = 0.0 if data.has_float64 else epsilon("float32") * float(np.abs(before[place]).max(initial=0.0))
        rows.append((gradient, before[place], both[place], rate, (room[0] + rounding, room[1] + rounding)))
    return Trace(*map(tuple, zip(*rows, strict=True))) if rows else None


def _is_clipped(recording: Recording, path: str, step: int) -> bool:
    return Key(path, "clip", step, role="clipped") in recording


def _rate(data: CaseData, place: int, path: str, step: int, optimizer: tuple[str, Mapping[str, Any]]) -> float | None:
    """The learning rate that a side's optimizer had for a parameter."""
    name, settings = optimizer
    group = _group_of(path if place == 0 else data.partner(path), settings)
    rates = {key.role: both[place] for key, both in data.each("lr", step) if key.path == name}
    found = rates.get(f"group{group}", next(iter(rates.values()), None))
    return None if found is None else float(found.reshape(-1)[0])


def _group_of(parameter: str, settings: Mapping[str, Any]) -> int:
    known = list(settings.get("parameters", ()))
    ends = np.cumsum(settings.get("parameters_in_groups", ()))
    return int(np.searchsorted(ends, known.index(parameter), "right")) if parameter in known else 0


# Settings of both optimizers that differ, where no law tells what they do.


def _on_paper(case: Case, bad: BadUpdates) -> Iterator[Finding]:
    for name, ours, theirs in case.data.optimizers():
        groups = group_settings(ours), group_settings(theirs)
        for setting in sorted({key for side in groups for group in side for key in group}):
            here, there = (list(dict.fromkeys(one[setting] for one in side if setting in one)) for side in groups)
            if not here or not there or all(any(same_setting(a, b) for b in there) for a in here):
                continue
            shown = [tuple(f"{value:g}" for value in values) for values in (here, there)]
            slot = next((slot for slot, name_of in averaged(ours).items() if name_of == setting), "")
            kept = len(here) == len(there) == 1 and _keeps(case, bad, slot, (1 - there[0]) / (1 - here[0] or 1))
            yield told(
                _SETTING,
                bad.keys,
                sure="explained" if kept else "hint",
                setting=_in_words(setting),
                ours=shown[0],
                theirs=shown[1],
                step=bad.step,
                name=Name(name),
                value=Code(f"{setting}={here[0]:g}"),
            )


def _keeps(case: Case, bad: BadUpdates, slot: str, ratio: float) -> bool:
    """Whether what the optimizers keep differs by just this ratio in the first step: it tells the share of the new."""
    keys = [Key(path, "optimizer", case.data.steps[0], role=slot) for path in bad.paths]
    states = [(key, both) for key in keys if key in case.failed and (both := case.data.best(key)) is not None]
    fits = [holds(ratio * ours, theirs, case.near(key, (ours, theirs))) for key, (ours, theirs) in states]
    return bool(slot) and bool(fits) and all(fits)


# Gradient clipping that one side lacks, or does in another way: per tensor, by value, at another norm.


def _clipping(case: Case) -> Iterable[Finding]:
    alone = [one.key for one in case.comparison.unmatched]
    for step in case.data.steps:
        here = [key for key in (*alone, *case.failed) if key.step == step and not key.run]
        if any(key.phase in ("data", "forward", "loss", "backward", "gradient") for key in here):
            return
        # Of a side that does not clip at all only the updates show it.
        clips = [key for key in here if key.phase == "clip"] or [key for key in here if key.phase == "update"]
        if clips:
            ways = [_way_of_clipping(case, place) for place in (0, 1)]
            if None not in ways and ways[0] != ways[1]:
                yield told("cause.clipping", tuple(clips)[:5], ours=ways[0], theirs=ways[1], step=step)
            return


_GLOBAL = {
    2.0: "word.clipped_by_global_norm",
    1.0: "word.clipped_by_sum",
    math.inf: "word.clipped_by_largest",
}
"""By the order of the norm."""
_ADDED = (0.0, 1e-6)
"""What frameworks add to a norm before they divide by it."""


def _way_of_clipping(case: Case, place: int) -> Message | None:
    """How a side clips: the first way that gives every clipped gradient of every step; None when none does."""
    recording = (case.data.reference, case.data.candidate)[place]
    steps = [found for step in case.data.steps if (found := _clipped_gradients(recording, step))]
    if not steps:
        return None
    if not any(after is not raw for step in steps for raw, after in step.values()):
        return message("word.no_clipping")
    for id, limit, made in _ways(steps):
        if all(_holds(one, after) for step in steps for one, (_, after) in zip(made(step), step.values(), strict=True)):
            return message(id, **({} if limit is None else {"limit": str(Number(limit, ".3g"))}))
    return None


_Step = Mapping[str, tuple[Array, Array]]
"""Of one step, by parameter: the gradient before clipping and after it."""


def _ways(steps: Sequence[_Step]) -> Iterator[tuple[str, float | None, Callable[[_Step], list[Array]]]]:
    """Ways to clip with their limit, each with what it makes of the gradients of a step. The limit is what is left."""
    yield "word.no_clipping", None, lambda step: [raw for raw, _ in step.values()]
    most = max(float(np.abs(after).max(initial=0.0)) for step in steps for _, after in step.values())
    yield "word.clipped_by_value", most, lambda step: [np.clip(raw, -most, most) for raw, _ in step.values()]
    for order in _GLOBAL:
        for added in _ADDED:
            norms = [[_norm([both[place] for both in step.values()], order) for place in (0, 1)] for step in steps]
            limit = max(after * (raw + added) / raw for raw, after in norms if raw)
            yield _GLOBAL[order], limit, partial(_all_by_norm, limit=limit, order=order, added=added)
    limit = max(_norm([after], 2) for step in steps for _, after in step.values())
    yield "word.clipped_per_tensor", limit, partial(_each_by_norm, limit=limit)


def _all_by_norm(step: _Step, *, limit: float, order: float, added: float) -> list[Array]:
    whole = _norm([raw for raw, _ in step.values()], order)
    return [min(1.0, limit / (whole + added)) * raw for raw, _ in step.values()]


def _each_by_norm(step: _Step, *, limit: float) -> list[Array]:
    return [min(1.0, limit / (_norm([raw], 2) or limit)) * raw for raw, _ in step.values()]


def _norm(arrays: Sequence[Array], order: float) -> float:
    return float(np.linalg.norm(np.concatenate([one.ravel() for one in arrays]), order))


def _holds(made: Array, clipped: Array) -> bool:
    """Whether a way gives a clipped gradient, to the rounding of its float32 norm."""
    return holds(made, clipped, ROUNDINGS * epsilon("float32") * float(np.abs(clipped).max(initial=0.0)))


def _clipped_gradients(recording: Recording, step: int) -> _Step:
    """Gradients before and after clipping, of every parameter; the same array where it was not clipped."""
    found = {}
    for entry in recording.of_run(""):
        key = entry.key
        if key.phase == "gradient" and key.role == "raw" and key.step == step and entry.detail == "full":
            after = Key(key.path, "clip", step, role="clipped")
            raw = entry.array().astype(np.float64)
            found[key.path] = (raw, recording[after].array().astype(np.float64) if after in recording else raw)
    # A gradient that is zero in truth is rounding, whatever is done with it.
    least = _ZERO * max((float(np.abs(raw).max(initial=0.0)) for raw, _ in found.values()), default=0.0)
    return {path: both for path, both in found.items() if float(np.abs(both[0]).max(initial=0.0)) > least}


_ZERO = 1e-6
"""Of the largest gradient: what rounding leaves of one that is zero in truth."""


# Gradients that were not cleared: a later step's gradient is the sum of its own and those before it.


def _gradients_kept(case: Case) -> Iterable[Finding]:
    data = case.data
    for earlier, step in zip(data.steps, data.steps[1:], strict=False):
        failed = case.failed
        if any(key.step is not None and key.step <= earlier and key.phase in ("gradient", "forward") for key in failed):
            return
        if any(key.step == step and key.phase in ("forward", "loss", "data") for key in failed):
            return
        wrong = [key for key in failed if key.step == step and key.phase == "gradient" and not key.run]
        # What the optimizer does not move it does not clear.
        summed = [key for key in wrong if _is_sum(case, key, earlier) and not _untrained(data, key.path, earlier)]
        if summed and len(summed) >= len(wrong) / 2:
            yield told(
                "cause.gradients_kept",
                tuple(wrong)[:5],
                paths=Names(key.path for key in summed),
                step=step,
                earlier=earlier,
                some=len(summed),
                all=len(wrong),
            )
        if wrong:
            return


def _is_sum(case: Case, key: Key, earlier: int) -> bool:
    now = case.data.best(key)
    before = (Key(key.path, "gradient", earlier, role=key.role), Key(key.path, "clip", earlier, role="clipped"))
    kept = [found for one in before if (found := case.data.best(one)) is not None]
    return now is not None and any(holds(now[0] + one[1], now[1], case.near(key, now)) for one in kept)


# Parameters whose true gradient is zero (a bias before batch norm, a key bias): harmless. Their gradient is rounding
# only, so both sides have different numbers there, and Adam turns these into steps of the learning rate. Reported only
# when such a parameter's entries differ visibly.


def _zero_gradient(case: Case) -> Iterable[Finding]:
    assert case.floor is not None
    found: dict[str, float] = {}
    for one in case.floor.evidence:
        key = one.key
        if one.mode or key.phase != "gradient" or one.float32 is None:
            continue
        passed = key in case.judgements and case.judgements[key].status.passed
        if case.is_rounding(one) and one.float32.rmse > 0 and passed:
            found[key.path] = one.float32.candidate.abs_max
    if found:
        yield told(
            "cause.zero_gradient",
            tuple(map(Key, found))[:5],
            paths=Names(found),
            value=Number(max(found.values()), ".1e"),
        )


HYPOTHESES = (
    Hypothesis("update_fit", _update_law),
    Hypothesis("clipping", _clipping),
    Hypothesis("gradients_kept", _gradients_kept),
    Hypothesis("zero_gradient", _zero_gradient, Where(data=False, floor=True, calibrated=True)),
)
