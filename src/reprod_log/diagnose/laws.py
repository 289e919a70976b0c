"""Laws: what an optimizer makes of gradients, as formulas that are run again on what was recorded.

Class names and settings are no evidence: a law is believed when it gives every update of a side to within rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from reprod_log.diagnose.fits import slope_of
from reprod_log.layers.optimizers import group_settings, optimizer_kind
from reprod_log.recording import Array

Kind = Literal["sgd", "adam", "adamax", "rmsprop", "adadelta", "adagrad", "lion"]
Place = Literal["after", "before", "under"]
Correction = Literal["both", "mean", "spread", "none", "first"]


@dataclass(frozen=True)
class Law:
    """One rule of update, but for its decay. What a kind does not use keeps its default."""

    kind: Kind
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    beta1: float = 0.0
    beta2: float = 0.0
    """Of RMSprop and Adadelta, where it is called rho or alpha, as well."""
    eps: float = 0.0
    place: Place = "after"
    """Where epsilon is added: to the root, after or before the bias correction, or under the root."""
    correction: Correction = "both"
    """Which moments are corrected; `first`: always as in the first step."""
    amsgrad: bool = False
    centered: bool = False
    initial_accumulator_value: float = 0.0
    signed: bool = True
    """Of Lion: whether only the sign of the mean counts."""
    trust_ratio: bool = False
    """Whether a step, with its decay, is made as long as the weights are (LAMB)."""
    maximize: bool = False
    repeats: int = 1
    """How often a step is taken with the same gradients."""

    def differences(self, other: Law) -> tuple[str, ...]:
        """Fields in which two laws differ; the kind alone when that differs."""
        if self.kind != other.kind:
            return ("kind",)
        return tuple(one.name for one in fields(self) if getattr(self, one.name) != getattr(other, one.name))


@dataclass(frozen=True)
class Decay:
    """How weights decay: added to the gradient (coupled) or taken off the weights."""

    value: float = 0.0
    coupled: bool = False


@dataclass(frozen=True)
class Trace:
    """A parameter over the steps, as one side saw it."""

    gradients: tuple[Array, ...]
    """What the optimizer was given: clipped where they were."""
    before: tuple[Array, ...]
    updates: tuple[Array, ...]
    rates: tuple[float, ...]
    room: tuple[tuple[float, float], ...]
    """For each step, how far a prediction may be off: by norm (rms) and at most."""

    def first(self, count: int) -> Trace:
        """The first steps of it."""
        parts = (self.gradients, self.before, self.updates, self.rates, self.room)
        return Trace(*(part[:count] for part in parts))  # type: ignore[arg-type]

    def thinned(self, most: int) -> Trace:
        """The trace at a few of its elements: laws without a trust ratio work on each element by itself."""
        step = max(1, self.updates[0].size // most)

        def some(arrays: Sequence[Array]) -> tuple[Array, ...]:
            return tuple(one.reshape(-1)[::step] for one in arrays)

        # Of a few elements the norm tells nothing.
        room = tuple((most, most) for _, most in self.room)
        return Trace(some(self.gradients), some(self.before), some(self.updates), self.rates, room)

    def obeys(self, law: Law, decay: Decay, *, scale: float = 1.0) -> bool:
        """Whether the law gives every update of it to within its room."""
        for made, update, (rms, most) in zip(predicted(law, decay, self), self.updates, self.room, strict=True):
            error = np.abs(scale * made - update)
            if not (error.max(initial=0.0) <= most and float(np.sqrt(np.mean(error * error))) <= rms):
                return False
        return True


def predicted(law: Law, decay: Decay, trace: Trace) -> Iterator[Array]:
    """The updates that the law makes of a trace's gradients, step by step."""
    state: dict[str, Any] = {"count": 0}
    with np.errstate(all="ignore"):
        for gradient, before, rate in zip(trace.gradients, trace.before, trace.rates, strict=True):
            moved = np.zeros_like(gradient)
            for _ in range(law.repeats):
                weight = before + moved
                given = -gradient if law.maximize else gradient
                given = given + decay.value * weight if decay.coupled else given
                state["count"] += 1
                way = _DIRECTIONS[law.kind](law, given, state)
                way = way if decay.coupled else way + decay.value * weight
                moved = moved - rate * (_trusted(way, weight) if law.trust_ratio else way)
            yield moved


def _trusted(way: Array, weight: Array) -> Array:
    sizes = float(np.linalg.norm(weight)), float(np.linalg.norm(way))
    return way * (sizes[0] / sizes[1]) if all(sizes) else way


def _sgd(law: Law, given: Array, state: dict[str, Any]) -> Array:
    if not law.momentum:
        return given
    kept = state.get("kept")
    state["kept"] = given if kept is None else law.momentum * kept + (1 - law.dampening) * given
    return given + law.momentum * state["kept"] if law.nesterov else np.asarray(state["kept"])


def _adam(law: Law, given: Array, state: dict[str, Any]) -> Array:
    mean = state["mean"] = law.beta1 * state.get("mean", 0.0) + (1 - law.beta1) * given
    square = state["square"] = law.beta2 * state.get("square", 0.0) + (1 - law.beta2) * given * given
    if law.amsgrad:
        square = state["most"] = np.maximum(state.get("most", 0.0), square)
    count = 1 if law.correction == "first" else state["count"]
    ours = 1 - law.beta1**count if law.correction in ("both", "mean", "first") else 1.0
    theirs = 1 - law.beta2**count if law.correction in ("both", "spread", "first") else 1.0
    if law.place == "before":
        return np.asarray(mean / ours * np.sqrt(theirs) / (np.sqrt(square) + law.eps))
    root = np.sqrt(square / theirs + law.eps) if law.place == "under" else np.sqrt(square / theirs) + law.eps
    return np.asarray(mean / ours / root)


def _rmsprop(law: Law, given: Array, state: dict[str, Any]) -> Array:
    square = state["square"] = law.beta2 * state.get("square", 0.0) + (1 - law.beta2) * given * given
    if law.centered:
        mean = state["mean"] = law.beta2 * state.get("mean", 0.0) + (1 - law.beta2) * given
        square = square - mean * mean
    made = given / (np.sqrt(square + law.eps) if law.place == "under" else np.sqrt(square) + law.eps)
    state["kept"] = law.momentum * state.get("kept", 0.0) + made
    return np.asarray(state["kept"])


def _adamax(law: Law, given: Array, state: dict[str, Any]) -> Array:
    mean = state["mean"] = law.beta1 * state.get("mean", 0.0) + (1 - law.beta1) * given
    old, new = law.beta2 * state.get("most", 0.0), np.abs(given)
    old, new = (old + law.eps, new) if law.place == "before" else (old, new + law.eps)
    most = state["most"] = np.maximum(old, new)
    return np.asarray(mean / (1 - law.beta1 ** state["count"]) / most)


def _adadelta(law: Law, given: Array, state: dict[str, Any]) -> Array:
    square = state["square"] = law.beta2 * state.get("square", 0.0) + (1 - law.beta2) * given * given
    moved = state.get("moved", 0.0)
    made = np.sqrt(moved + law.eps) / np.sqrt(square + law.eps) * given
    state["moved"] = law.beta2 * moved + (1 - law.beta2) * made * made
    return np.asarray(made)


def _adagrad(law: Law, given: Array, state: dict[str, Any]) -> Array:
    square = state["square"] = state.get("square", law.initial_accumulator_value) + given * given
    return np.asarray(given / (np.sqrt(square) + law.eps))


def _lion(law: Law, given: Array, state: dict[str, Any]) -> Array:
    kept = state.get("kept", 0.0)
    state["kept"] = law.beta2 * kept + (1 - law.beta2) * given
    mixed = law.beta1 * kept + (1 - law.beta1) * given
    return np.sign(mixed) if law.signed else np.asarray(mixed)


_DIRECTIONS = {
    "sgd": _sgd, "adam": _adam, "adamax": _adamax, "rmsprop": _rmsprop, "adadelta": _adadelta, "adagrad": _adagrad,
    "lion": _lion,
}  # fmt: skip
_KINDS: Mapping[str, Kind] = {
    "sgd": "sgd",
    "sgdw": "sgd",
    "adam": "adam",
    "adamw": "adam",
    "adamax": "adamax",
    "rmsprop": "rmsprop",
    "adadelta": "adadelta",
    "adagrad": "adagrad",
    "lion": "lion",
}
"""By the word for an optimizer; those of other kinds have no law here."""
_SHARED = (
    "momentum", "dampening", "nesterov", "beta1", "beta2", "eps", "amsgrad", "centered", "maximize",
    "initial_accumulator_value",
)  # fmt: skip
_PLACES: Mapping[Kind, tuple[Place, ...]] = {"rmsprop": ("after", "under"), "adamax": ("after", "before")}
"""Where frameworks add epsilon, where that is not always to the root."""


def laws_of(settings: Mapping[str, Any]) -> list[tuple[Law, Decay]]:
    """What an optimizer's recorded settings claim: a law for each group, and each way to add epsilon and to decay."""
    kind = _KINDS.get(optimizer_kind(settings))
    found: list[tuple[Law, Decay]] = []
    for group in group_settings(settings) if kind is not None else ():
        known = {name: group[name] for name in _SHARED if name in group}
        known["beta2"] = group.get("beta2", group.get("rho", 0.0))
        law = Law(kind, **known)  # type: ignore[arg-type]
        decay = float(group.get("weight_decay") or 0.0)
        for place in _PLACES.get(law.kind, ("after",)):
            found += ((replace(law, place=place), Decay(decay, coupled)) for coupled in (True, False))
    return list(dict.fromkeys(found))


_MOMENTA = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
_SQUARES = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)
_EPSILONS = tuple(10.0**-power for power in range(12, 1, -1))
_CHANGES: Mapping[Kind, Mapping[str, Sequence[Any]]] = {
    "sgd": {"momentum": _MOMENTA, "nesterov": (False, True), "dampening": (0.0, 0.1, 0.5, 0.9)},
    "adam": {
        "beta1": _MOMENTA,
        "beta2": _SQUARES,
        "eps": _EPSILONS,
        "place": ("after", "before", "under"),
        "correction": ("both", "mean", "spread", "none", "first"),
        "amsgrad": (False, True),
        "trust_ratio": (False, True),
    },
    "rmsprop": {
        "beta2": _SQUARES,
        "eps": _EPSILONS,
        "place": _PLACES["rmsprop"],
        "momentum": _MOMENTA,
        "centered": (False, True),
    },
    "adamax": {"beta1": _MOMENTA, "beta2": _SQUARES, "eps": _EPSILONS, "place": _PLACES["adamax"]},
    "adadelta": {"beta2": _SQUARES, "eps": _EPSILONS},
    "adagrad": {"eps": _EPSILONS, "initial_accumulator_value": (0.0, 0.01, 0.1, 0.5, 1.0)},
    "lion": {"beta1": _MOMENTA, "beta2": _SQUARES, "signed": (True, False)},
}
"""By kind: what is tried in place of each setting."""
_UNKNOWN = (
    Law("sgd"),
    Law("sgd", momentum=0.9),
    *(Law("adam", beta1=0.9, beta2=square, eps=1e-8) for square in (0.999, 0.99, 0.95)),
    *(Law("lion", beta1=0.9, beta2=square) for square in (0.99, 0.98)),
    Law("rmsprop", beta2=0.99, eps=1e-8),
    Law("adagrad", eps=1e-10),
)
"""Where to start when nothing is known of an optimizer."""


def changes(law: Law) -> Iterator[Law]:
    """The law with one thing changed."""
    for name, values in _CHANGES[law.kind].items():
        yield from (replace(law, **{name: value}) for value in values if value != getattr(law, name))
    yield replace(law, maximize=not law.maximize)
    yield replace(law, repeats=2)


def candidates(known: Iterable[Law], *, also: bool = True) -> Iterator[Law]:
    """Laws to try: those that are known, each with one change, with two; then, with `also`, those of other kinds."""
    known = tuple(dict.fromkeys(known))
    tried: set[Law] = set()

    def new(laws: Iterable[Law]) -> Iterator[Law]:
        for one in laws:
            if one not in tried:
                tried.add(one)
                yield one

    yield from new(known)
    for first in known:
        yield from new(changes(first))
    for first in (*known, *(_UNKNOWN if also else ())):
        yield from new(two for one in changes(first) for two in (one, *changes(one)))


@dataclass(frozen=True)
class Fitted:
    """The law that one side obeys, with the decay of each of its parameters."""

    law: Law
    decays: Mapping[str, Decay]


_MOST_ELEMENTS = 64
_MOST_SAMPLED = 8
"""Few elements of few parameters rule nearly every wrong law out; what is left is tried on all."""


def fitted(traces: Mapping[str, Trace], laws: Iterable[Law], decays: Mapping[str, Sequence[Decay]]) -> Fitted | None:
    """The first law that gives every update of every trace; `decays` has those to try for each parameter."""
    sampled = _sample(traces)
    for law in laws:
        few = {path: traces[path] for path in sampled} if law.trust_ratio else sampled
        if all(_decay(law, trace, decays[path]) is not None for path, trace in few.items()):
            found = {path: _decay(law, trace, decays[path]) for path, trace in traces.items()}
            # One number shows no decay of its own, but may have that of the others.
            known = dict.fromkeys(decay for decay in found.values() if decay is not None)
            found |= {
                path: next((one for one in known if traces[path].obeys(law, one)), None)
                for path, decay in found.items()
                if decay is None
            }
            whole = {path: decay for path, decay in found.items() if decay is not None}
            if len(whole) == len(found):
                return Fitted(law, whole)
    return None


def _sample(traces: Mapping[str, Trace]) -> dict[str, Trace]:
    several = {path: trace for path, trace in traces.items() if trace.updates[0].size > 1}
    every = max(1, len(several) // _MOST_SAMPLED)
    return {path: trace.thinned(_MOST_ELEMENTS) for path, trace in list(several.items())[::every]}


def _decay(law: Law, trace: Trace, known: Sequence[Decay]) -> Decay | None:
    """The decay with which a trace obeys the law: a known one, or the one that its first update shows."""
    for decay in known:
        if trace.obeys(law, decay):
            return decay
    made = next(predicted(replace(law, trust_ratio=False), Decay(), trace.first(1)))
    weight, update = trace.rates[0] * trace.before[0], trace.updates[0]
    # A decay is one number; it explains nothing unless it has more numbers to explain. A trust ratio is a second one.
    if not weight.any() or update.size < 2 + law.trust_ratio or not np.isfinite(made).all():
        return None
    if law.trust_ratio:
        (times, both), *_ = np.linalg.lstsq(np.stack([made.ravel(), -weight.ravel()], 1), update.ravel(), rcond=None)
        value = float(both / times) if times else 0.0
    else:
        value = slope_of(weight, made - update)
    value = float(f"{value:.6g}") if np.isfinite(value) else 0.0
    return next((one for one in (Decay(value, True), Decay(value)) if value and trace.obeys(law, one)), None)
