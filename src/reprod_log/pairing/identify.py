"""Identification: the values that weights of the candidate must have for its tensors to be the reference's.

As far as both programs are linear in an anchored tensor, they are systems that can be asked: with one element of that
tensor set and all others zero, a weight comes out by itself. The candidate holds a different number (a code) in every
element of its weights, so a code that comes out tells which element it is; the reference's tensor in the same place
tells the value this element must have. The reference's weights are all different numbers, so a value tells where it is
stored there. No list of layouts is needed: split, joined, interleaved, flipped, folded and stacked weights are found in
the same way, and a value that is stored nowhere is computed from several weights (a norm folded into the layer before
it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from reprod_log.pairing.anchors import Anchor, Cut, cut, cut_shape, cuts, seen, views
from reprod_log.pairing.graph import Graph
from reprod_log.recording import Array

_PROBES, _LEAST = 320, 5
CALL, _WORK = 3_000, 12_000_000
"""What a call of a kernel costs, and all of one identification, in elements."""
_KERNELS = 48
"""Kernels behind an anchored tensor that are followed."""
LINEAR = 1e-9
_EQUAL = 1e-11
OPTIONS = 48


@dataclass
class LinearPart:
    """Kernels of one side that are linear in some of its tensors."""

    graph: Graph
    fixed: Callable[[int], Array | None]
    """A tensor that the probes leave as it is; None where it is not known yet."""
    places: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """The tensors that are linear in what is probed, in the order of the run."""
    open: set[int] = field(default_factory=set)
    """Tensors of which a setting has a part only (NaN elsewhere), and whose other parts are linear as well."""

    def follow(self, settings: Sequence[Mapping[int, Array]]) -> None:
        """Find the kernels; the settings are nothing, two different ones, and their sum."""
        values = [self._filled(one) for one in settings]
        bent: set[int] = set()
        start = min(self.graph.users.get(number, [len(self.graph.program.kernels)])[0] for number in settings[0])
        for place in range(start, len(self.graph.program.kernels)):
            kernel = self.graph.program.kernels[place]
            if any(number in bent for number in kernel.inputs):
                # A tensor that is probed itself may come from another one (a skip connection).
                bent.update(number for number in kernel.outputs if number not in settings[0])
                continue
            if not any(number in values[0] for number in kernel.inputs):
                continue
            made = [self.run(place, one) for one in values] if len(self.places) < _KERNELS else [None]
            self.places.append(place)
            for at, number in enumerate(kernel.outputs):
                partial = number in settings[0] and bool(np.isnan(settings[0][number]).any())
                if number in values[0] and not partial:
                    continue
                arrays = [one[at] for one in made if one is not None and at < len(one)]
                if _is_still(arrays):
                    continue
                if len(arrays) == len(values) and _is_linear(*arrays):
                    self.numbers.append(number)
                    self.open.update([number] if partial else [])
                    for one, setting, array in zip(values, settings, arrays, strict=True):
                        one[number] = _where_set(setting[number], array) if partial else array
                elif not partial:
                    bent.add(number)

    def run(self, place: int, values: dict[int, Array]) -> list[Array] | None:
        program = self.graph.program
        kernel = program.kernels[place]
        given: dict[int, Any] = {}
        for number in kernel.inputs:
            array = values.get(number)
            array = self.fixed(number) if array is None else array
            if array is None:
                return None
            # Some kernels write into what they are given.
            given[number] = program.tensor(np.array(array))
        try:
            return [np.array(program.array(one)) for one in program.again(place, given)]
        except Exception:  # a kernel may refuse what a probe gives it
            return None

    def probe(self, setting: Mapping[int, Array]) -> dict[int, Array]:
        values = self._filled(setting)
        wanted, partial = set(self.numbers), self.open & setting.keys()
        for place in self.places:
            made = self.run(place, values)
            for number, array in zip(self.graph.program.kernels[place].outputs, made or (), strict=False):
                if number in wanted:
                    values[number] = _where_set(setting[number], array) if number in partial else array
        return values

    def _filled(self, setting: Mapping[int, Array]) -> dict[int, Array]:
        fixed = {number: self.fixed(number) for number, array in setting.items() if np.isnan(array).any()}
        whole = {number: _where_set(setting[number], array) for number, array in fixed.items() if array is not None}
        return {**setting, **whole}


def _where_set(setting: Array, other: Array) -> Array:
    return np.where(np.isnan(setting), other, setting)


def _is_linear(nothing: Array, one: Array, other: Array, both: Array) -> bool:
    if nothing.dtype.kind != "f" or not nothing.shape == one.shape == other.shape == both.shape:
        return False
    scale = max(float(np.abs(array).max(initial=0.0)) for array in (nothing, one, other, both))
    return bool(np.abs((both - one) - (other - nothing)).max(initial=0.0) <= LINEAR * scale)


def _is_still(arrays: Sequence[Array]) -> bool:
    """Whether the probes do not reach a tensor, although a kernel took them (a tensor of zeros of some shape)."""
    return len(arrays) > 1 and all(np.array_equal(one, arrays[0]) for one in arrays)


@dataclass
class Fit:
    """A tensor of the candidate that is one of the reference if its weights have these values."""

    number: int
    partner: int
    axes: tuple[int, ...]
    values: Array
    """By code; NaN where this tensor does not tell."""
    part: Cut | None = None
    """Which part of the candidate's tensor it is, where it is not all of it."""
    partner_part: Cut | None = None


class Identification:
    """What an event of the search asks: which values make its tensors the reference's."""

    def __init__(
        self,
        ours: Graph,
        theirs: Graph,
        anchors: Mapping[int, tuple[Anchor, ...]],
        known: Callable[[int], Array | None],
        unknown: int,
    ) -> None:
        self.ours, self.theirs, self.anchors, self.known, self.unknown = ours, theirs, anchors, known, unknown
        self.random = np.random.default_rng(0)
        self.offsets: dict[str, int] = {}
        size = 0
        for name in theirs.bits(unknown):
            self.offsets[name] = size
            size += theirs.program.arrays[theirs.number[name]].size
        self.codes = np.sort(np.unique(self.random.uniform(0.5, 1.5, size)))
        self.random.shuffle(self.codes)
        self.sorting = np.argsort(self.codes)
        self.filled = self.codes
        self._derived: dict[int, Array] = {}
        self.effort = 0
        self.history: list[tuple[dict[int, Array], dict[int, tuple[Array, Array]]]] = []
        """Every probe: what was set, and what it told of the candidate's tensors."""
        self.first: dict[int, tuple[Array, Array]] = {}
        self.start: Mapping[int, Array] = {}
        self.behind_roots = 0
        self.sources: tuple[str, ...] = ()
        """The reference's weights that its linear kernels use."""

    # ---- the candidate's tensors with codes for weights -------------------------------------------------------------

    def _fixed_there(self, number: int) -> Array | None:
        name = self.theirs.weights.get(number)
        if name in self.offsets:
            shape = self.theirs.program.arrays[number].shape
            start = self.offsets[name]
            return self.filled[start : start + int(np.prod(shape, dtype=int))].reshape(shape)
        if not self.theirs.behind[number] & self.unknown:
            return self.known(number)
        if self.theirs.data[number] or number not in self.theirs.maker:
            return None
        if number not in self._derived:
            place = self.theirs.maker[number]
            made = LinearPart(self.theirs, self._fixed_there).run(place, {})
            if made is None:
                return None
            self._derived.update(zip(self.theirs.program.kernels[place].outputs, made, strict=False))
        return self._derived.get(number)

    def _fill(self, values: Array) -> None:
        self.filled = values
        self._derived.clear()

    # ---- fits -------------------------------------------------------------------------------------------------------

    def fits(self, roots: Sequence[int], needed: int, *, parts: bool) -> list[Fit]:
        """Every fit of a tensor behind these anchored tensors that depends on the weights `needed`.

        With `parts`, also of a part of one side's tensor, or of both: what is split or joined behind a kernel that is
        not linear.
        """
        shapes = {number: self.theirs.program.arrays[number].shape for number in roots}
        there = LinearPart(self.theirs, self._fixed_there)
        here = LinearPart(self.ours, self.ours.program.arrays.__getitem__)
        nothing = {number: np.zeros(shape) for number, shape in shapes.items()}
        one, other = ({number: self.random.normal(size=shape) for number, shape in shapes.items()} for _ in range(2))
        both = {number: one[number] + other[number] for number in shapes}
        there.follow([nothing, one, other, both])
        if not there.numbers:
            return []
        here.follow([self._mirrored(setting) for setting in (nothing, one, other, both)])
        behind = self.theirs.behind
        self.behind_roots = 0
        for number in roots:
            self.behind_roots |= behind[number]
        used = (name for place in here.places for name in self.ours.bits(self.ours.weights_into(place)))
        self.sources = tuple(dict.fromkeys(used))
        asked = [n for n in there.numbers if behind[n] & self.unknown and behind[n] & needed == needed]
        sizes = {self.ours.program.arrays[number].size for number in here.numbers}
        if not parts:
            asked = [n for n in asked if self.theirs.program.arrays[n].size in sizes]
        if not asked:
            return []
        behind_asked = self._behind(asked, shapes)
        shapes = {number: shape for number, shape in shapes.items() if number in behind_asked}
        return self._ask(there, here, asked, shapes, parts)

    def _behind(self, numbers: Sequence[int], ends: Mapping[int, Any]) -> set[int]:
        """Which of the probed tensors these are made of; probing others would tell nothing."""
        found: set[int] = set()
        queue, met = list(numbers), set(numbers)
        while queue:
            number = queue.pop()
            if number in ends:
                found.add(number)
            elif number in self.theirs.maker:
                inputs = self.theirs.program.kernels[self.theirs.maker[number]].inputs
                queue.extend(one for one in inputs if one not in met)
                met.update(inputs)
        return found

    def _mirrored(self, setting: Mapping[int, Array]) -> dict[int, Array]:
        """The same setting in the reference's tensors; NaN where it sets only a part of one."""
        found: dict[int, Array] = {}
        for number, array in setting.items():
            for anchor in self.anchors.get(number, ()):
                whole = self.ours.program.arrays[anchor.number]
                made = seen(cut(array, anchor.part), anchor.axes, cut_shape(whole.shape, anchor.partner_part))
                if anchor.partner_part is None:
                    found[anchor.number] = made
                else:
                    cut(found.setdefault(anchor.number, np.full(whole.shape, np.nan)), anchor.partner_part)[...] = made
        return found

    def _ask(
        self,
        there: LinearPart,
        here: LinearPart,
        asked: list[int],
        shapes: Mapping[int, tuple[int, ...]],
        parts: bool,
    ) -> list[Fit]:
        arrays, partners = self.theirs.program.arrays, self.ours.program.arrays
        fits = [
            Fit(number, partner, axes, np.full(self.codes.size, np.nan), *part)
            for number in asked
            for partner in here.numbers
            for part in ((None, None), *(cuts(arrays[number].shape, partners[partner].shape) if parts else ()))
            for axes in views(cut_shape(arrays[number].shape, part[0]), cut_shape(partners[partner].shape, part[1]))
        ]
        self.here, self.history = here, []
        order = {number: self.random.permutation(int(np.prod(shape, dtype=int))) for number, shape in shapes.items()}
        share = 1 / 32
        cost = sum(arrays[n].size for n in there.numbers) * 2 + sum(partners[n].size for n in here.numbers)
        cost += CALL * (2 * len(there.places) + len(here.places))
        stale = 0
        probed = list(shapes)
        for count in range(_PROBES):
            if count * cost > _WORK or not fits or stale > len(probed) * (16 + 2 / share):
                break
            setting = {number: np.zeros(shape) for number, shape in shapes.items()}
            if count:
                # One tensor at a time: what two of them move at once tells nothing.
                number = probed[count % len(probed)]
                chosen, order[number] = np.split(order[number], [max(1, int(order[number].size * share))])
                setting[number].reshape(-1)[chosen] = 1.0
                if not order[number].size:
                    order[number] = self.random.permutation(setting[number].size)
            self._fill(self.codes)
            coded = there.probe(setting)
            self._fill(np.zeros_like(self.codes))
            plain = there.probe(setting)
            self.effort += cost
            told = self._told({fit.number for fit in fits}, coded, plain)
            self.history.append((setting, told))
            ours = here.probe(self._mirrored(setting))
            if not count:
                self.start = ours
            kept = [(fit, self._learn(fit, told, ours, first=not count)) for fit in fits]
            fits = [fit for fit, gained in kept if gained is not None]
            stale = 0 if any(gained for _, gained in kept) else stale + 1
            if count and told:
                empty = max(float((which == -2).mean()) for which, _ in told.values())
                share = min(share * 2, 0.5) if empty > 0.85 else max(share / 2, 1e-6) if empty < 0.5 else share
            # A few more than needed: what does not fit shows where no weight speaks.
            if count >= _LEAST * len(probed) and all(self._is_told(fit) for fit in fits):
                break
        return fits

    def _told(
        self, numbers: set[int], coded: Mapping[int, Array], plain: Mapping[int, Array]
    ) -> dict[int, tuple[Array, Array]]:
        """For each tensor of the candidate: which code its elements are, and what they are without the codes.

        Of the first probe, in which all is zero, as it is; of the others what they add to it.
        """
        found = {}
        for number in numbers:
            if number in coded and number in plain:
                moved, base = coded[number] - plain[number], plain[number]
                if self.history:
                    moved, base = moved - self.first[number][0], base - self.first[number][1]
                else:
                    self.first[number] = (moved, base)
                found[number] = (self._which(moved), base)
        return found

    def _learn(
        self, fit: Fit, told: Mapping[int, tuple[Array, Array]], ours: Mapping[int, Array], *, first: bool
    ) -> bool | None:
        """Whether a probe told something new; None when it contradicts the fit."""
        if fit.number not in told or fit.partner not in ours:
            return None
        which, base = (cut(array, fit.part) for array in told[fit.number])
        whole = cut(ours[fit.partner], fit.partner_part)
        wanted = whole if first else whole - cut(self.start[fit.partner], fit.partner_part)
        wanted = wanted - seen(base, fit.axes, whole.shape)
        codes = seen(which, fit.axes, whole.shape)
        scale = max(float(np.abs(wanted).max(initial=0.0)), float(np.abs(whole).max(initial=0.0)), 1e-3)
        if not np.all(np.abs(wanted[codes == -2]) <= LINEAR * scale):
            return None
        clear = codes >= 0
        numbers, values = codes[clear], wanted[clear]
        before = fit.values[numbers]
        known = ~np.isnan(before)
        if not np.all(np.abs(before[known] - values[known]) <= LINEAR * scale):
            return None
        fit.values[numbers] = values
        # One code in several places must be one value in all of them.
        if not np.all(np.abs(fit.values[numbers] - values) <= LINEAR * scale):
            return None
        return not bool(known.all())

    def again(self, fits: Sequence[Fit], weights: Mapping[str, Array], probes: int | None = None) -> Array:
        """The values that the same fits, or their first probes, give with other weights of the reference."""
        numbers = {self.ours.number[name]: np.asarray(array, np.float64) for name, array in weights.items()}
        mask = 0
        for number in numbers:
            mask |= self.ours.behind[number]
        derived: dict[int, Array] = {}

        def fixed(number: int) -> Array | None:
            if number in numbers or not self.ours.behind[number] & mask:
                return numbers.get(number, self.ours.program.arrays[number])
            if number not in derived and number in self.ours.maker:
                place = self.ours.maker[number]
                made = LinearPart(self.ours, fixed).run(place, {})
                derived.update(zip(self.ours.program.kernels[place].outputs, made or (), strict=False))
            return derived.get(number)

        part = LinearPart(self.ours, fixed, self.here.places, self.here.numbers, self.here.open)
        made = [replace(fit, values=np.full(self.codes.size, np.nan)) for fit in fits]
        for count, (setting, told) in enumerate(self.history[:probes]):
            ours = part.probe(self._mirrored(setting))
            self.effort += CALL * len(part.places) + sum(array.size for array in ours.values())
            if not count:
                self.start = ours
            for fit in made:
                self._learn(fit, told, ours, first=not count)
        return merged(made)

    def _which(self, moved: Array) -> Array:
        """For each element the code that it is; -1 a mixture, -2 nothing."""
        flat = moved.reshape(-1)
        inner = np.clip(np.searchsorted(self.codes[self.sorting], flat), 1, max(self.codes.size - 1, 1))
        found = np.full(flat.shape, -1)
        for near in (inner - 1, np.minimum(inner, self.codes.size - 1)):
            places = self.sorting[near]
            same = np.abs(self.codes[places] - flat) <= _EQUAL
            found[same] = places[same]
        found[np.abs(flat) <= _EQUAL] = -2
        return found.reshape(moved.shape)

    def weights_of(self, number: int) -> list[str]:
        """The unknown weights behind a tensor of the candidate."""
        return list(self.theirs.bits(self.theirs.behind[number] & self.unknown))

    def span(self, name: str) -> slice:
        start = self.offsets[name]
        return slice(start, start + self.theirs.program.arrays[self.theirs.number[name]].size)

    def _is_told(self, fit: Fit) -> bool:
        return all(bool(np.isfinite(fit.values[self.span(name)]).all()) for name in self.weights_of(fit.number))

    def combined(self, fits: Sequence[Fit]) -> Iterator[tuple[Fit, ...]]:
        """Fits that tell all values of their weights: one alone, or several that each tell a part."""
        by_weights: dict[tuple[str, ...], dict[tuple[int, Cut | None], list[Fit]]] = {}
        for fit in fits:
            told = by_weights.setdefault(tuple(self.weights_of(fit.number)), {})
            same = told.setdefault((fit.number, fit.part), [])
            # A tensor and its views tell the same.
            if not any(np.allclose(fit.values, one.values, rtol=LINEAR, equal_nan=True) for one in same):
                same.append(fit)
        before: set[bytes] = set()
        for names, by_number in sorted(by_weights.items(), key=lambda one: len(one[0])):
            wanted = np.concatenate([np.arange(self.span(name).start, self.span(name).stop) for name in names])
            for several in islice(_covering(list(by_number.values()), wanted), 4 * OPTIONS):
                key = np.round(merged(several)[wanted], 9).tobytes() + ",".join(names).encode()
                if key not in before:
                    before.add(key)
                    yield several


def merged(fits: Sequence[Fit]) -> Array:
    """The values that several fits tell together."""
    values = fits[0].values
    for fit in fits[1:]:
        values = np.where(np.isnan(values), fit.values, values)
    return values


def _covering(groups: list[list[Fit]], wanted: Array) -> Iterator[tuple[Fit, ...]]:
    """Fits that tell all that is wanted: first those that do so alone, then several that each tell a part.

    A whole tensor fits with its weights in the order of the reference; its parts (gates, heads) may have another one.
    """
    told = [np.isfinite(group[0].values[wanted]) for group in groups]
    yield from ((fit,) for group, some in zip(groups, told, strict=True) if some.all() for fit in group)
    missing = np.ones(wanted.size, bool)
    chosen: list[list[Fit]] = []
    for at in sorted(range(len(groups)), key=lambda at: -int(told[at].sum())):
        if not told[at].all() and (told[at] & missing).any():
            chosen.append(groups[at])
            missing &= ~told[at]
    if chosen and not missing.any():
        yield from _of_different(chosen)


def _of_different(groups: list[list[Fit]], taken: tuple[Fit, ...] = ()) -> Iterator[tuple[Fit, ...]]:
    """One fit of each group, no two with the same tensor of the reference."""
    if len(taken) == len(groups):
        yield taken
        return
    for fit in groups[len(taken)]:
        if not any(
            (fit.partner, fit.partner_part, fit.axes) == (one.partner, one.partner_part, one.axes) for one in taken
        ):
            yield from _of_different(groups, (*taken, fit))
