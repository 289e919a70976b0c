"""The search for the weight map: weights are tried in the candidate's recorded kernels until its tensors are anchors.

Going through the candidate's kernels in order, each one that uses weights without a source is an event. Sources are
those weights of the reference that are used on the counterparts of the event's anchored inputs. A source is tried by
running the recorded kernels up to the next event; it fits when a new tensor of the reference comes out. Local anchors
prove nothing about roles (the weights of k in the place of q give k), so a choice stays open until everything that
depends on it and on those that compete with it is anchored together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from reprod_log.layers.layouts import TensorView
from reprod_log.layers.transform import Shape
from reprod_log.pairing.anchors import Anchor, Cut, Index, PartIndex, is_informative, same_numbers, view_of
from reprod_log.pairing.answers import Answers
from reprod_log.pairing.bridges import Bridges
from reprod_log.pairing.graph import Graph
from reprod_log.pairing.identify import CALL
from reprod_log.pairing.links import Computed, Link, Recipe, WeightMap, same_form
from reprod_log.pairing.names import closeness
from reprod_log.pairing.options import Options
from reprod_log.recording import Array

_LEVELS = ((1, 0), (2, 0), (3, 0), (2, 1), (6, 0), (4, 2))
"""How many events may wait for an anchor, and how many unassigned weights of the reference may lie before a source."""
_TRIALS = 300
"""Per segment and level."""
_EFFORT, _PASSES = 150_000_000, 20
"""What is replayed is bounded, in elements (a call counts as so many): so much, or so many passes of a large model.

About ten seconds; a clock would let the answer depend on what else the machine does. Of 55 correct ports the dearest
takes 67 million."""
_TRIAL = 30_000
"""What a trial costs beside the kernels that it runs."""
_MOST_RIVALS = 32
_LIKELY = 8
"""Options that are tried before both programs are asked."""
_AFTER_BRIDGE = 2
"""Levels of the search behind a bridge: a second mistake is likelier there than another formulation."""


@dataclass
class _Choice:
    """One event: the options that are left, and where to go back to."""

    place: int
    mask: int
    """The weights that are assigned here."""
    options: list[tuple[Link, ...]]
    trail: int
    depends: int
    """The weights behind the event's inputs."""
    sources: frozenset[str]
    """Everything that the options are made of: whoever shares a source competes."""
    pending: bool = True
    taken: tuple[Link, ...] = ()
    rivals: list[tuple[Link, ...]] = field(default_factory=list)
    """The options that fit as well."""
    unlikely: list[tuple[Link, ...]] = field(default_factory=list)
    """Options for the case that identification has none."""
    identified: bool = False
    """Whether the options that identification finds are among them."""


@dataclass(frozen=True)
class _Segment:
    """A part of the program that was decided: where it began, and the choices in it."""

    start: int
    trail: int
    choices: tuple[_Choice, ...]


@dataclass(frozen=True)
class _Detour:
    """A segment that was opened again, and how far its first solution had led."""

    reached: int
    failed: int
    """Where nothing fitted behind it."""
    segment: _Segment


@dataclass(frozen=True)
class Proposal:
    """Weights of one layer of the candidate that the tables of layers can fill from one layer of the reference."""

    links: tuple[Link, ...]


Proposals = Mapping[str, tuple[Proposal, ...]]
"""By a weight's name in the candidate."""


class Search:
    """Finds from which weights of the reference the candidate's come."""

    def __init__(
        self,
        reference: Graph,
        candidate: Graph,
        *,
        own: frozenset[str],
        proposals: Proposals,
        stated: Mapping[str, Link],
        roles: Mapping[str, str],
        kept: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset()),
        bridged: bool = True,
    ) -> None:
        self.ours, self.theirs = reference, candidate
        self.kept = kept
        """What is not trained in the reference and in the candidate: one is hardly made of the other's parameters."""
        self.own, self.proposals, self.stated, self.roles = own, proposals, stated, roles
        arrays, kept_here = reference.program.arrays, reference.kept_operands()
        self.kept_operands = candidate.kept_operands()
        shown = {
            number: arrays[number]
            for number in range(len(arrays))
            if (reference.data[number] and number not in kept_here) or number in reference.program.given.values()
        }
        self.index = Index(shown)
        self.parts = PartIndex(shown, self.index)
        self.tensors: dict[int, Any] = {}
        self.static: dict[int, Any] = {}
        self.anchors: dict[int, tuple[Anchor, ...]] = {}
        self.reached: set[int | tuple[int, Cut]] = set()
        """The reference's tensors that are anchors, and parts of them."""
        self.links: dict[str, Link] = {}
        self.taken: dict[str, set[str]] = {}
        """By source: the weights that are made of it."""
        self._uses: Counter[str] | None = None
        self.assigned = 0
        self.trail: list[tuple[str, Any]] = []
        self.choices: list[_Choice] = []
        self.trials = 0
        self.bounded = False
        self.by_structure: set[str] = set()
        self.level = 0
        self.start = 0
        self.start_trail = 0
        self.level_trials = 0
        self.hasty, self.passed_over = True, False
        """Whether this is the first pass of a segment, and whether it left options out."""
        self.best: tuple[int, dict[str, Link]] = (-1, {})
        once = sum(CALL + array.size for array in candidate.program.arrays)
        self.effort, self.most_effort = 0, max(_EFFORT, _PASSES * once)
        self.diverged = False
        self.options = Options(self)
        self.answers = Answers(self)
        self.asked: dict[Any, list[tuple[Link, ...]]] = {}
        """What identification found, by the place and the links that were open then."""
        self.closed: list[_Segment] = []
        self.banned: tuple[Link, ...] = ()
        self.retried: dict[int, int] = {}
        """Where a segment had no solution, and where the one before it began that was opened again."""
        self.detours: list[_Detour] = []
        self.failed: dict[Any, int] = {}
        """What trials of this segment cost that led to nothing: every level would make them again."""
        self.bridges = Bridges(self)
        self.bridged = bridged
        """Whether it goes on behind a mistake."""
        for number in range(len(candidate.program.arrays)):
            if candidate.data[number] and not candidate.behind[number]:
                self.anchor(number, candidate.program.arrays[number])
        self._anchor_given()
        for bit, name in enumerate(candidate.names):
            if name in stated:
                self.assign(stated[name], 1 << bit)
                number = candidate.number[name]
                if candidate.data[number]:
                    self.anchor(number, candidate.program.array(self.value(number)))
        for bit, name in enumerate(candidate.names):
            if name in own and name not in stated:
                # A table of the candidate's own has its values already.
                self.assigned |= 1 << bit
        self.start_trail = len(self.trail)

    def _anchor_given(self) -> None:
        """Anchor what both programs are given, flags and constants too, which are no evidence anywhere else."""
        ours, theirs = self.ours.program, self.theirs.program
        for number in theirs.given.values():
            array = theirs.arrays[number]
            same = [
                Anchor(one, ())
                for one in ours.given.values()
                if ours.arrays[one].shape == array.shape and same_numbers(ours.arrays[one], array)
            ]
            if same and number not in self.anchors:
                self.anchors[number] = tuple(same)

    # ---- going through the kernels ----------------------------------------------------------------------------------

    def run(self) -> WeightMap:
        place: int | None = 0
        while True:
            place = self._advance(place or 0)
            conflict = self._conflict(place)
            if conflict:
                place = self._back(conflict)
                continue
            self._close(place)
            if place is None:
                return self._result()
            if not self._open(place):
                if self.diverged:
                    self._leave(place)
                    continue
                place = self._back(self._behind_inputs(place) | self.unassigned(place))

    def _leave(self, place: int) -> None:
        """Behind a divergence shape, names and the order of use decide; where nothing fits, weights stay."""
        mask = self.unassigned(place)
        options = self.options.by_structure(place)
        if options:
            for link in options[0]:
                self.assign(link, 1 << self.theirs.names.index(link.target))
                self.by_structure.add(link.target)
        self.assigned |= mask

    def _advance(self, place: int) -> int | None:
        """Run kernels up to the next event; its place, or None at the end."""
        kernels = self.theirs.program.kernels
        for at in range(place, len(kernels)):
            kernel = kernels[at]
            if not kernel.outputs or not self.theirs.data[kernel.outputs[0]]:
                continue
            if not self.theirs.behind[kernel.outputs[0]] or kernel.outputs[0] in self.tensors:
                continue
            if self.unassigned(at):
                return at
            self.replay(at)
        return None

    def to_event(self, place: int) -> int:
        found = self._advance(place)
        return len(self.theirs.program.kernels) if found is None else found

    def unassigned(self, place: int) -> int:
        return self.theirs.weights_into(place) & ~self.assigned

    def replay(self, place: int) -> bool:
        kernel = self.theirs.program.kernels[place]
        try:
            given = {number: self.value(number) for number in kernel.inputs}
            results = self.theirs.program.again(place, given)
        except Exception:  # weights of another shape may make a kernel raise anything
            return False
        for number, tensor in zip(kernel.outputs, results, strict=False):
            self.effort += CALL + self.theirs.program.arrays[number].size
            self.tensors[number] = tensor
            self.trail.append(("tensor", number))
            if number not in self.kept_operands:
                self.anchor(number, self.theirs.program.array(tensor))
        return True

    def value(self, number: int) -> Any:
        if number in self.tensors:
            return self.tensors[number]
        if not self.theirs.behind[number]:
            if number not in self.static:
                self.static[number] = self.theirs.program.tensor(self.theirs.program.arrays[number])
            return self.static[number]
        if self.theirs.behind[number] & ~self.assigned and not self.theirs.data[number]:
            # A weight without a source has no value yet.
            raise KeyError(number)
        name = self.theirs.weights.get(number)
        if name is not None:
            link = self.links.get(name)
            array = self.theirs.program.arrays[number]
            if link is not None:
                made_of = [self.read(one) for one in link.sources]
                array = link.apply(made_of).reshape(array.shape).astype(array.dtype)
            made = self.theirs.program.tensor(array)
        elif number in self.theirs.maker and not self.theirs.data[number]:
            place = self.theirs.maker[number]
            kernel = self.theirs.program.kernels[place]
            found = self.theirs.program.again(place, {one: self.value(one) for one in kernel.inputs})
            made = found[kernel.outputs.index(number)]
        else:
            raise KeyError(number)
        self.tensors[number] = made
        self.trail.append(("tensor", number))
        return made

    def read(self, name: str) -> Array:
        """The reference's weight as its program had it."""
        return self.ours.program.arrays[self.ours.number[name]]

    def anchor(self, number: int, array: Array) -> None:
        found = self.index.find(array) or self.parts.find(array)
        if not found:
            return
        self.anchors[number] = found
        met = (one.number if one.partner_part is None else (one.number, one.partner_part) for one in found)
        fresh = tuple(one for one in met if one not in self.reached)
        self.trail.append(("anchor", (number, fresh)))
        if fresh and len(fresh) == len(found):
            self.reached.update(fresh)
            if array.size > 1:
                mask = self.theirs.behind[number]
                for choice in self.choices:
                    if choice.pending and choice.mask & mask:
                        choice.pending = False
                        self.trail.append(("pending", choice))
        elif fresh:
            self.reached.update(fresh)

    def _is_whole(self, number: int) -> bool:
        """Whether a tensor is one of the reference's: parts prove no role, since any order of them will do."""
        found = self.anchors.get(number, ())
        return bool(found) and found[0].part is None and found[0].partner_part is None

    def rewind(self, length: int) -> None:
        while len(self.trail) > length:
            what, one = self.trail.pop()
            if what == "tensor":
                self.tensors.pop(one, None)
            elif what == "anchor":
                self.anchors.pop(one[0], None)
                self.reached.difference_update(one[1])
            elif what == "pending":
                one.pending = True
            elif what == "given":
                self.tensors.pop(one[0], None)
                self.tensors |= {} if one[1] is None else {one[0]: one[1]}
            else:
                name, mask = one
                link = self.links.pop(name)
                for source in link.sources:
                    self.taken[source].discard(name)
                    if not self.taken[source]:
                        del self.taken[source]
                self.assigned &= ~mask

    def assign(self, link: Link, mask: int) -> None:
        self.links[link.target] = link
        for source in link.sources:
            self.taken.setdefault(source, set()).add(link.target)
        self.assigned |= mask
        self.trail.append(("link", (link.target, mask)))

    # ---- choices ----------------------------------------------------------------------------------------------------

    def _open(self, place: int) -> bool:
        """Take the first option that fits, or the first one that may fit later; False when there is none."""
        _, breadth = _LEVELS[self.level]
        mask = self.unassigned(place)
        options = self.options.at(place, mask, breadth)
        if not options and self.diverged:
            return False
        sources = frozenset(name for option in options for link in option for name in link.sources)
        choice = _Choice(place, mask, options, len(self.trail), self._behind_inputs(place), sources)
        self.choices.append(choice)
        if self.diverged and not any(number in self.anchors for number in self.theirs.data_inputs(place)):
            self._take(choice, options[0], structure=True)
            choice.pending, choice.options = False, []
            return True
        waiting = list(options)
        choice.options, choice.unlikely = options[:_LIKELY], options[_LIKELY:]
        doubtful = self._rests_on_rivals(choice)
        while choice.options or (not doubtful and self._identify(choice)):
            option = choice.options.pop(0)
            if self._try(choice, option):
                self._prefer(choice)
                return True
            self.rewind(choice.trail)
            if self.level_trials > _TRIALS or self.effort > self.most_effort:
                break
        if doubtful:
            self.choices.pop()
            self.passed_over = True
            return False
        if waiting and choice.pending and sum(one.pending for one in self.choices) <= _LEVELS[self.level][0]:
            choice.options, choice.unlikely = waiting, []
            self._take(choice, choice.options.pop(0))
            return True
        self.choices.pop()
        return False

    def _rests_on_rivals(self, choice: _Choice) -> bool:
        """Whether the first pass leaves an event's unlikely options: a choice before it has others that fit as well.

        Queries, keys and values are told apart only by what follows: under a wrong order of them nothing will fit.
        """
        return self.hasty and any(
            one.mask & choice.depends and any(rival in one.options for rival in one.rivals) for one in self.choices
        )

    def _prefer(self, choice: _Choice) -> None:
        """Take, of the options that fit, the one under which most of what follows is anchored; the others come next.

        The weights of a gate in the place of another's give that gate, and then nothing that the reference has.
        """
        taken, idle = choice.taken, self._idle(choice)
        cut_out = any(isinstance(link.recipe, Recipe) and link.recipe.span is not None for link in taken)
        if (idle or cut_out) and not choice.identified:
            # Other rows of the same weight may fit as well, and not all of them are among the options.
            unasked = [*choice.options, *choice.unlikely]
            self._identify(choice)
            choice.options = [*(one for one in choice.options if one not in unasked), *unasked]
        stored = choice.identified and not any(link.is_computed for link in taken)
        twins = [one for one in choice.options if idle and _same_links(_but(one, idle), _but(taken, idle))]
        alike = twins + [
            one
            for one in choice.options
            if one not in twins and (same_form(one, taken) or (stored and not any(link.is_computed for link in one)))
        ]
        if not alike:
            return
        fitting = [(len(self.anchors), taken)]
        for option in alike[:_MOST_RIVALS]:
            if self._try_again(choice, option):
                fitting.append((len(self.anchors), option))
        fitting.sort(key=lambda one: one[0], reverse=True)
        (most, best), *rest = fitting
        # A twin with fewer anchors has wrong numbers for what is idle further on.
        others = [option for count, option in rest if count == most or not (option is taken or option in twins)]
        # The same weight in another order is no rival where it leads to fewer.
        choice.rivals = [option for count, option in rest if count == most or same_form(option, best)]
        choice.options = [
            *others,
            *(one for one in choice.options if not any(one is other for other in (best, *others))),
        ]
        self._try_again(choice, best)

    def _try_again(self, choice: _Choice, option: tuple[Link, ...]) -> bool:
        self.rewind(choice.trail)
        choice.pending = True
        return self._try(choice, option)

    def _idle(self, choice: _Choice) -> set[str]:
        """The weights without influence on what was anchored: the option fits with other numbers for them as well.

        The bias of keys moves all scores of a query alike, which their softmax does not show.
        """
        if any(map(self._is_whole, self.theirs.program.kernels[choice.place].outputs)):
            return set()
        option, idle = choice.taken, set()
        for link in option:
            number = self.theirs.number[link.target]
            array = self.theirs.program.arrays[number]
            self.rewind(choice.trail)
            choice.pending = True
            other = np.random.default_rng(0).normal(size=array.shape).astype(array.dtype)
            self.tensors[number] = self.theirs.program.tensor(other)
            self.trail.append(("tensor", number))
            if self._fits(choice, option):
                idle.add(link.target)
        self._try_again(choice, option)
        return idle

    def _is_settled(self, choice: _Choice, masks: list[int]) -> bool:
        """Whether what its rivals take has other places, or it has met something that does not come from itself."""
        own = {link.target for link in choice.taken}
        if all(any(self._is_taken(link, own) for link in rival) for rival in choice.rivals):
            return True
        wanted = {name for rival in choice.rivals for link in rival for name in link.sources}
        inner = choice.mask | choice.depends
        for one in self.choices:
            if one.depends & choice.mask or wanted.intersection(_sources(one)):
                inner |= one.mask
        return any(mask & choice.mask == choice.mask and mask & ~inner for mask in masks)

    def _identify(self, choice: _Choice) -> bool:
        """Whether asking both programs gives further options; they are asked once."""
        if choice.identified or self.diverged or self.effort > self.most_effort:
            choice.options, choice.unlikely = choice.unlikely, []
            return bool(choice.options)
        choice.identified = True
        self.rewind(choice.trail)
        choice.options = self._identified(choice.place, self.unassigned(choice.place))
        for link in (link for option in choice.options for link in option):
            choice.mask |= 1 << self.theirs.names.index(link.target)
        choice.sources |= {name for option in choice.options for link in option for name in link.sources}
        if not choice.options:
            # Not linear, or not alone: the less likely ones are left.
            choice.options = choice.unlikely
        choice.unlikely = []
        return bool(choice.options)

    def _identified(self, place: int, needed: int) -> list[tuple[Link, ...]]:
        # Both programs are asked again only if other weights lie behind the event.
        behind = self.theirs.bits(self._behind_inputs(place))
        parts = self.level > 0
        situation = (place, needed, parts, tuple((name, self.links[name]) for name in behind if name in self.links))
        if situation not in self.asked:
            self.asked[situation] = self.answers.options(place, needed, parts)
        found = self.asked[situation]
        free = [option for option in found if all(map(self.is_free, option))]
        # In a loop every weight is used more than once: those that have a place already come last.
        shared = [
            option
            for option in found
            if self.level and all(self.is_free(link) or all(map(self.is_tied, link.sources)) for link in option)
        ]
        return free + [option for option in shared if not all(map(self.is_free, option))]

    def _take(self, choice: _Choice, option: tuple[Link, ...], *, structure: bool = False) -> None:
        choice.taken = option
        for link in option:
            self.assign(link, 1 << self.theirs.names.index(link.target))
            if structure:
                self.by_structure.add(link.target)

    def _try(self, choice: _Choice, option: tuple[Link, ...]) -> bool:
        """Whether something new of the reference comes out before the next event."""
        if self.banned and _same_links(option, self.banned):
            return False
        self.level_trials += 1
        situation = choice.place, option, tuple((one.place, one.taken) for one in self.choices if one is not choice)
        if situation in self.failed:
            self.effort += self.failed[situation]
            self._take(choice, option)
            return False
        before = self.effort
        fits = self._fits(choice, option)
        if not fits and not any(link.is_computed for link in option):
            self.failed[situation] = self.effort - before
        return fits

    def _fits(self, choice: _Choice, option: tuple[Link, ...]) -> bool:
        self.trials += 1
        self.effort += _TRIAL
        self._take(choice, option)
        if not self.replay(choice.place):
            return False
        self._advance(choice.place + 1)
        return not choice.pending

    def _behind_inputs(self, place: int) -> int:
        mask = 0
        for number in self.theirs.data_inputs(place):
            mask |= self.theirs.behind[number]
        return mask

    def _conflict(self, place: int | None) -> int:
        """The weights that something wrong depends on: a result that is another one, or too many that wait."""
        if self.diverged:
            return 0
        for role, number in self.theirs.program.results.items():
            if number in self.tensors and not self.result_fits(role, number):
                return self.theirs.behind[number]
        waiting = [choice for choice in self.choices if choice.pending]
        limit = _LEVELS[self.level][0]
        if len(waiting) > limit or (place is None and waiting):
            mask = 0
            for choice in waiting:
                mask |= choice.mask | choice.depends
            return mask
        return 0

    def result_fits(self, role: str, number: int) -> bool:
        ours = self.roles.get(role)
        if ours is None:
            return True
        wanted = self.ours.program.arrays[self.ours.program.results[ours]]
        array = self.theirs.program.array(self.tensors[number])
        return array.size == wanted.size and view_of(wanted, array) is not None

    def _back(self, conflict: int) -> int:
        """Undo the last choice that could be at fault and take its next option; the place to go on from."""
        if len(self.reached) > self.best[0]:
            self.best = (len(self.reached), dict(self.links))
        exhausted = self.effort > self.most_effort
        while self.choices and self.level_trials <= _TRIALS and not exhausted:
            choice = self.choices.pop()
            fitted = not choice.pending
            self.rewind(choice.trail)
            if not choice.mask & conflict:
                continue
            choice.pending = True
            self.choices.append(choice)
            if self.hasty and fitted:
                # What fitted gives way only to what fits as well.
                choice.options = [one for one in choice.options if one in choice.rivals]
                self.passed_over = True
            while choice.options or (not (self.hasty and fitted) and self._identify(choice)):
                option = choice.options.pop(0)
                if self._try(choice, option):
                    return choice.place
                room = sum(one.pending for one in self.choices) <= _LEVELS[self.level][0]
                if room:
                    return choice.place
                self.rewind(choice.trail)
                if self.level_trials > _TRIALS:
                    break
            self.choices.pop()
            conflict |= choice.depends
        return self._next_level(exhausted)

    def restart(self, place: int) -> None:
        """Search on from here, as if nothing had been tried behind it."""
        self._begin(place)
        self.banned = ()
        for memory in (self.closed, self.retried, self.detours):
            memory.clear()

    def _begin(self, place: int) -> None:
        """A segment begins here."""
        self.start, self.start_trail = place, len(self.trail)
        self.level = self.level_trials = 0
        self.hasty, self.passed_over = True, False
        self.best = (-1, {})
        self.asked.clear()
        self.failed.clear()

    def _next_level(self, exhausted: bool) -> int:
        self.choices.clear()
        self.rewind(self.start_trail)
        self.level_trials = 0
        if self.hasty and self.passed_over and not exhausted:
            self.hasty = False
            return self.start
        if not exhausted and not self.level and self._reopen():
            return self.start
        if self.level + 1 < (_AFTER_BRIDGE if self.bridges else len(_LEVELS)) and not exhausted:
            self.level += 1
            return self.start
        if self._returned() or (self.bridged and not (exhausted and self.bridges) and self.bridges.build()):
            return self.start
        # No map fits: what got furthest is kept, and from here on order and shape decide.
        self.bounded = True
        self.diverged = True
        self.level = 3
        for name, link in self.best[1].items():
            if name not in self.links:
                self.assign(link, 1 << self.theirs.names.index(name))
                self.by_structure.add(name)
        return self.start

    def _reopen(self) -> bool:
        """Whether the segment before this one is tried with another choice: it fitted, and nothing fits behind it.

        A tensor before a norm that the candidate has folded into its weights is an anchor, and leads nowhere.
        """
        failed = self.start
        waiting = next((place for place, start in self.retried.items() if start >= 0 and place > failed), None)
        if waiting is not None and self.banned:
            # The other choice was none: back to the first one.
            self.banned = ()
            self.retried[waiting] = -1
            return True
        behind = self._behind_inputs(failed) if failed < len(self.theirs.program.kernels) else 0
        if failed in self.retried or not self.closed or not behind:
            return False
        segment = self.closed.pop()
        at_fault = [choice for choice in segment.choices if choice.mask & behind]
        if not at_fault:
            self.closed.append(segment)
            return False
        self.retried[failed] = segment.start
        self.banned = at_fault[-1].taken
        self.detours.append(_Detour(max(self.best[0], len(self.reached)), failed, segment))
        self.rewind(segment.trail)
        self.asked.clear()
        self.failed.clear()
        self.start, self.start_trail = segment.start, segment.trail
        return True

    def _returned(self) -> bool:
        """Whether a segment that was opened again is as it was at first, because the other choice led no further.

        In a wrong port nothing fits behind the mistake, whatever is chosen before it.
        """
        detour = self.detours[0] if self.detours else None
        self.detours.clear()
        if detour is None or max(self.best[0], len(self.reached)) > detour.reached:
            return False
        segment = detour.segment
        self.rewind(segment.trail)
        self.closed = [*(one for one in self.closed if one.start < segment.start), segment]
        self.banned, self.retried[detour.failed] = (), -1
        for choice in segment.choices:
            self._take(choice, choice.taken)
        self._advance(segment.start)
        self._begin(detour.failed)
        return True

    def _close(self, place: int | None) -> None:
        """Make choices final when all that lives on is anchored and nothing that competes is apart."""
        if self.diverged:
            self.choices.clear()
            return
        at = len(self.theirs.program.kernels) if place is None else place
        if at <= self.start or any(choice.pending for choice in self.choices):
            return
        masks = []
        for number in self.tensors:
            mask = self.theirs.behind[number]
            if self.theirs.data[number] and mask and self.theirs.last_use.get(number, -1) >= at:
                if self._is_whole(number):
                    masks.append(mask)
                elif is_informative(self.theirs.program.array(self.tensors[number])):
                    return
        for one, other in combinations(self.choices, 2):
            if one.sources & other.sources and (one.options or other.options):
                for mask in masks:
                    if bool(mask & one.mask) != bool(mask & other.mask):
                        return
        if not all(self._is_settled(choice, masks) for choice in self.choices if choice.rivals):
            return
        for choice in self.choices:
            self.options.remember(choice.taken)
        if self.choices:
            self.closed.append(_Segment(self.start, self.start_trail, tuple(self.choices)))
        if self.retried and at > max(self.retried):
            self.banned = ()
        self.choices.clear()
        self._begin(at)

    # ---- weights ----------------------------------------------------------------------------------------------------

    def shape(self, name: str) -> Shape:
        return self.theirs.program.arrays[self.theirs.number[name]].shape

    def likeness(self, link: Link) -> float:
        if link.sources[0] == link.target:
            return 1.5
        (owner, _, leaf), (other, _, last) = (name.rpartition(".") for name in (link.sources[0], link.target))
        return closeness(owner, other) if leaf == last and owner and other else closeness(link.sources[0], link.target)

    def is_used(self, name: str) -> bool:
        return name in self.taken

    def is_free(self, link: Link) -> bool:
        """Whether the source was not used yet, or only other parts of it were."""
        return not self._is_taken(link)

    def _is_taken(self, link: Link, but: Collection[str] = ()) -> bool:
        """Whether a weight (but for these) is made of elements that the link takes."""
        for name, places in zip(link.sources, link.places, strict=True) if self._touches(link) else ():
            used = self._used_places(name, but)
            if used is not None and bool(used[places[places >= 0]].any()):
                return True
        return False

    def _touches(self, link: Link) -> bool:
        return any(name in self.taken for name in link.sources)

    def _used_places(self, name: str, but: Collection[str] = ()) -> Array | None:
        """Which elements of a source are used, flat; None: none."""
        if name not in self.taken:
            return None
        used = np.zeros(prod(self.read(name).shape), bool)
        for target in self.taken[name].difference(but):
            link = self.links[target]
            for source, places in zip(link.sources, link.places, strict=True):
                if source == name:
                    used[places[places >= 0]] = True
        return used

    def has_parts(self, name: str) -> bool:
        used = self._used_places(name)
        return used is not None and not bool(used.all())

    def is_tied(self, name: str) -> bool:
        """Whether the reference uses the weight more than once."""
        if self._uses is None:
            self._uses = Counter(
                one
                for place in range(len(self.ours.program.kernels))
                if self.ours.uses_data(place)
                for one in self.ours.bits(self.ours.weights_into(place))
            )
        return self._uses[name] > 1

    def roots(self, place: int) -> list[int]:
        """Numbers in the reference of the nearest anchored tensors behind an event."""
        near = self.nearest(self.theirs.data_inputs(place))
        return list(dict.fromkeys(one.number for number in near for one in self.anchors[number]))

    def nearest(self, numbers: list[int]) -> list[int]:
        """These tensors where they are anchored, else the nearest anchored ones that they are made of."""
        found: dict[int, None] = {}
        met: set[int] = set()
        queue = list(numbers)
        while queue:
            number = queue.pop()
            if number in self.anchors:
                found[number] = None
            elif number in self.theirs.maker and number not in met:
                met.add(number)
                queue.extend(self.theirs.data_inputs(self.theirs.maker[number]))
        return list(found)

    # ---- the result -------------------------------------------------------------------------------------------------

    def _result(self) -> WeightMap:
        results = self.theirs.program.results
        fits = [
            number in self.tensors
            and (self.result_fits(role, number) if role in self.roles else self._is_whole(number))
            for role, number in results.items()
            if self.theirs.behind[number]
        ]
        fitting = bool(self.roles) and bool(fits) and all(fits) and not self.diverged
        more = [role for role in self.ours.program.results if role not in self.roles.values()]
        links = tuple(self.links[name] for name in self.theirs.names if name in self.links)
        used = {name for link in links for name in link.sources}
        left = tuple(name for name in self.ours.names if name not in used)
        lacking = tuple(name for name in self.theirs.names if name not in self.links and name not in self.own)
        complete = not (_used(self.ours) & set(left) or _used(self.theirs) & set(lacking))
        unproven = tuple(name for name in self.by_structure if not self._is_left_over(name, left))
        unproven += tuple(self.bridges.uncertain() - set(unproven)) if self.bridges else ()
        return WeightMap(
            links,
            fitting and not self.bridges,
            unproven,
            left,
            lacking,
            complete=complete,
            bridged=fitting and bool(self.bridges),
            inner=tuple(role for role in more if self.ours.program.results[role] in self.reached),
            trials=self.trials,
            bounded=self.bounded,
        )

    def _is_left_over(self, name: str, left: tuple[str, ...]) -> bool:
        """Whether a weight behind which nothing agrees can come from nowhere else: the table of layers says how."""
        link = self.links.get(name)
        if link is None or not isinstance(link.recipe, TensorView):
            return False
        others = (one for target in self.by_structure - {name} for one in self.links[target].sources)
        return not any(self.read(one).size == prod(link.shape) for one in (*left, *others))


def _sources(choice: _Choice) -> Iterator[str]:
    return (name for link in choice.taken for name in link.sources)


def _but(option: Sequence[Link], targets: Collection[str]) -> list[Link]:
    return [link for link in option if link.target not in targets]


def _same_links(one: Sequence[Link], other: Sequence[Link]) -> bool:
    """Whether two options take the same elements, in whatever words."""
    return len(one) == len(other) and all(
        (a.target, a.sources) == (b.target, b.sources)
        and isinstance(a.recipe, Computed) == isinstance(b.recipe, Computed)
        and all(map(np.array_equal, a.places, b.places))
        for a, b in zip(one, other, strict=True)
    )


def _used(graph: Graph) -> set[str]:
    """The weights that a result depends on."""
    mask = 0
    for number in graph.program.results.values():
        mask |= graph.behind[number]
    return set(graph.bits(mask))
