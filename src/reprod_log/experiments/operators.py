"""Operators of a layer on both sides, matched by value: which one is the first that the other side does not have?

Layouts do not matter, since tensors are compared by their sorted values. Another formulation does not either: an
operator whose result is missing there is forgiven when something computed from it is found again. The backward pass is
looked at in the same way, from the outputs to the inputs: the operator at fault is given a gradient that the other side
knows and gives back one that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from reprod_log.capture.eager import runner_of
from reprod_log.errors import ReprodLogError, first_line
from reprod_log.experiments.regions import cotangent_of
from reprod_log.frameworks.contract import Call, Operator, Trace
from reprod_log.frameworks.side import Batch, Scope, Side
from reprod_log.messages import Message, message
from reprod_log.pairing.anchors import nearest_axes
from reprod_log.pairing.layouts import arrangement
from reprod_log.recording import Array

_SAME = 1e-6
"""Relative to the largest value; above what kernels with float32 constants inside a float64 run differ by."""
_FILL = 1e5
"""Times the smaller values of a tensor: what is equal and larger than this is a mask's fill and not a score."""


@dataclass(frozen=True)
class Culprits:
    """The first operator of either side that the other one does not have; None when all are found."""

    reference: Operator | None
    candidate: Operator | None
    backward: bool = False
    """Whether it is the operators' backward pass that differs."""
    cut: bool = False
    """Whether no gradient goes back through the operator on this one side, although the other side has one there."""

    confirmed: bool = False
    """Whether what follows them is the same on both sides, with the one side's result in place of the other's."""

    order: Message | None = None
    """How the candidate's result holds the reference's numbers in another order, if that is what differs."""

    parted: bool = False
    """Whether both work on the same tensor: there the two programs part."""

    elsewhere: tuple[Operator | None, Operator | None] | None = None
    """Where both are the same operator, given different ones of the tensors that both sides have: what made these two;
    None for what neither side's operators made."""

    def __bool__(self) -> bool:
        return self.reference is not None or self.candidate is not None

    @property
    def written(self) -> bool:
        """Whether one of them has a backward pass written by hand, which is what differs."""
        return self.backward and any(one is not None and one.written for one in (self.reference, self.candidate))

    @property
    def given(self) -> tuple[str, str] | None:
        """The plain arguments of both, when the same function was given others."""
        ours, theirs = self.reference, self.candidate
        if ours is None or theirs is None or not _namesakes(ours, theirs):
            return None
        return (ours.given, theirs.given) if ours.given and theirs.given and ours.given != theirs.given else None


def find_culprits(reference: Trace, candidate: Trace, *, forward: bool = True) -> Culprits:
    """The operators at fault in the forward pass; those of the backward pass when there are none.

    `forward` says whether the results are known to differ: without that, another order of them is another layout, and
    what leads to the same results is another way of writing.
    """
    ours, theirs = _forward(reference), _forward(candidate)
    found = _first_of_both(ours, theirs)
    if found and (forward or not _same_results(reference, candidate)):
        turned = _in_another_order(found, reference, candidate)
        if turned is not None:
            return turned
        found = _tried(found, reference, candidate)
        makers = _take_others(found, reference, candidate)
        # Results of one operator that are taken in another order show themselves what was exchanged.
        exchanged = makers is not None and _give_the_same(makers[0], reference, makers[1], candidate)
        return replace(found, elsewhere=makers, parted=found.parted or exchanged)
    if forward:
        # Gradients of other results are other ones, whatever the operators behind them do.
        return _results_in_another_order(reference, candidate) or Culprits(None, None)
    ours, theirs = _backward(reference), _backward(candidate)
    found = Culprits(_culprit(ours, theirs), _culprit(theirs, ours), backward=True)
    if not found:
        return found
    by_hand = Culprits(
        _written_in_place(found.candidate, candidate, reference) or found.reference,
        _written_in_place(found.reference, reference, candidate) or found.candidate,
        backward=True,
    )
    if by_hand.written:
        return by_hand
    cuts = Culprits(_cut(reference, candidate), _cut(candidate, reference), backward=True, cut=True)
    if (cuts.reference is None) != (cuts.candidate is None):
        return cuts
    summed = _is_summed(found.reference, reference) or _is_summed(found.candidate, candidate)
    alike = _work_on_the_same(found.reference, reference, found.candidate, candidate)
    return replace(found, parted=alike and not summed)


def _same_results(reference: Trace, candidate: Trace) -> bool:
    ours, theirs = ([trace.values[number] for number in trace.results] for trace in (reference, candidate))
    return 0 < len(ours) == len(theirs) and all(map(_equal, ours, theirs))


# An operator at fault is known by its results, which the other side does not have. The next operator that both sides
# have is given something else then and gives something else, too. Which of them it is, a trial decides: what one side
# made takes the place of the other side's tensor, and operators run again from there. Where their results are found on
# the other side, the difference lies before them.


def _tried(found: Culprits, reference: Trace, candidate: Trace) -> Culprits:
    """The culprits that a trial confirms; as they were found where none does."""
    ours, theirs = found.reference, found.candidate
    if ours is not None and theirs is not None and _put_in_place(ours, reference, theirs, candidate):
        return replace(found, confirmed=True)
    sides = ((ours, reference, candidate), (theirs, candidate, reference))
    for one, here, there in sides:
        other = None if one is None else next(_instead_of(one, here, there), None)
        if one is not None and other is not None:
            return _both(one, other, first=here is reference)
    for one, here, there in sides:
        # Where this side has nothing at fault, what it does with the other culprit's inputs may be missing there.
        users = [one] if one is not None else _users(theirs if here is reference else ours, there, here)
        missing = next((two for two in users if _is_missing(two, here, there)), None)
        if missing is not None:
            return _both(missing, None, first=here is reference)
    if ours is not None and theirs is not None and _line_in_place(ours, reference, theirs, candidate):
        return replace(found, confirmed=True)
    return replace(found, parted=_work_on_the_same(ours, reference, theirs, candidate))


def _users(culprit: Operator | None, trace: Trace, other: Trace) -> list[Operator]:
    """Operators of the other side that work on a tensor that a culprit is given."""
    return (
        []
        if culprit is None
        else [one for one in other.operators if _work_on_the_same(culprit, trace, one, other)][:_NEAREST]
    )


def _both(one: Operator, other: Operator | None, *, first: bool) -> Culprits:
    return Culprits(one if first else other, other if first else one, confirmed=True)


def _work_on_the_same(one: Operator | None, here: Trace, other: Operator | None, there: Trace) -> bool:
    if one is None or other is None:
        return False
    given = [here.arrays[number] for number in one.inputs if _tells(here.values[number])]
    return any(_is_partner(array, there.arrays[number]) for array in given for number in other.inputs)


def _take_others(found: Culprits, reference: Trace, candidate: Trace) -> tuple[Operator | None, Operator | None] | None:
    """What made the tensors of both sides, if one operator is at fault on both and is given another one of them."""
    ours, theirs = found.reference, found.candidate
    if ours is None or theirs is None or not _namesakes(ours, theirs) or len(ours.inputs) != len(theirs.inputs):
        return None
    given, taken = _telling_inputs(ours, reference), _telling_inputs(theirs, candidate)
    other = [one for one in given if not any(_equal(one, two) for two in taken)]
    instead = [two for two in taken if not any(_equal(one, two) for one in given)]
    if not other or not instead:
        return None
    return _first_maker(other[0], reference), _first_maker(instead[0], candidate)


def _give_the_same(one: Operator | None, here: Trace, other: Operator | None, there: Trace) -> bool:
    if one is None or other is None or len(one.outputs) != len(other.outputs):
        return False
    return all(_equal(here.values[a], there.values[b]) for a, b in zip(one.outputs, other.outputs, strict=True))


def _first_maker(values: Array, trace: Trace) -> Operator | None:
    """The operator that first gave a tensor with these values, in whatever order."""
    return next((one for one in trace.operators if any(_equal(trace.values[n], values) for n in one.outputs)), None)


def _put_in_place(one: Operator, here: Trace, other: Operator, there: Trace) -> bool:
    """Whether all that follows from the other side's operator is this one's doing if it gives what this one does."""
    both = zip(one.outputs, other.outputs, strict=False)
    if any(_leads_back({theirs: here.arrays[ours]}, there, here) for ours, theirs in both):
        return True
    # One line may make several tensors (a table of sines and one of cosines).
    lost = [_lost_at(*ones) for ones in ((one, here, there), (other, there, here))]
    several = dict(zip(lost[1], (here.arrays[ours] for ours in lost[0]), strict=False))
    return len(several) > 1 and len(lost[0]) == len(lost[1]) and _leads_back(several, there, here)


def _line_in_place(one: Operator, here: Trace, other: Operator, there: Trace) -> bool:
    """The same where several operators of a line do what one does on the other side (a deviation)."""
    lost = [_lost_at(*ones) for ones in ((one, here, there), (other, there, here))]
    return any(
        _leads_back({theirs: here.arrays[ours]}, there, here)
        for ours in {*one.outputs, *lost[0][-_NEAREST:]}
        for theirs in {*other.outputs, *lost[1][-_NEAREST:]}
        if ours not in one.outputs or theirs not in other.outputs
    )


def _lost_at(one: Operator, trace: Trace, other: Trace) -> list[int]:
    """What the operator's line makes and the other side does not have."""
    found = [number for maker in trace.operators if maker.line == one.line for number in maker.outputs]
    return [number for number in found if one.line and not _is_there(trace.values[number], other)]


def _is_there(values: Array, other: Trace) -> bool:
    return any(_equal(values, one) for one in other.values)


def _instead_of(one: Operator, here: Trace, there: Trace) -> Iterator[Operator]:
    """Operators of the other side that take what this one does and no more, and whose results are all that is wrong."""
    given = _telling_inputs(one, here)
    for other in there.operators if given else ():
        taken = _telling_inputs(other, there)
        same = len(given) == len(taken) and all(any(_equal(two, values) for two in taken) for values in given)
        if same and _put_in_place(one, here, other, there):
            yield other


def _telling_inputs(one: Operator, trace: Trace) -> list[Array]:
    return [trace.values[number] for number in one.inputs if _tells(trace.values[number])]


def _is_missing(one: Operator, here: Trace, there: Trace) -> bool:
    """Whether the other side is right once a tensor of it is what this operator, which it lacks, made of that."""
    made = [number for number in _from(one, here) if not _is_there(here.values[number], there)]
    for number in made[:_NEAREST]:
        makers = here.behind((number,))
        given = {taken for maker in makers[makers.index(one) :] for taken in maker.inputs if _is_telling(here, taken)}
        for place, array in enumerate(there.arrays):
            if any(_is_partner(here.arrays[taken], array) for taken in given) and _leads_back(
                {place: here.arrays[number]}, there, here
            ):
                return True
    return False


_NEAREST = 4
"""Of what is computed from an operator: tensors that are put in the place of others."""


def _from(one: Operator, trace: Trace) -> list[int]:
    """What an operator gives, and what is computed from it, in order."""
    found = list(one.outputs)
    for other in trace.operators:
        if not set(found).isdisjoint(other.inputs):
            found += other.outputs
    return found


def _leads_back(instead: Mapping[int, Array], trace: Trace, other: Trace) -> bool:
    """Whether operators that run again with other tensors give something that only the other side had."""
    values = dict(instead)
    if any(trace.arrays[number].shape != array.shape for number, array in values.items()):
        return False
    if any(
        _is_partner(other.arrays[two], values[one])
        for one, two in zip(trace.results, other.results, strict=False)
        if one in values
    ):
        # Nothing comes after what is given back in the end.
        return True
    put = [np.sort(array, axis=None) for array in values.values()]
    back: set[int] = set()
    looked_at = 0
    for one, again in zip(trace.operators, trace.calls, strict=False):
        if values.keys().isdisjoint(one.inputs) or values.keys() >= set(one.outputs) or looked_at > _LOST:
            continue
        try:
            made = again({number: values[number] for number in one.inputs if number in values})
        except Exception:  # other shapes or values than the framework takes here: nothing is shown by them
            return False
        values.update(zip(one.outputs, made, strict=False))
        results = [(number, np.sort(array, axis=None)) for number, array in zip(one.outputs, made, strict=False)]
        telling = [both for both in results if _tells(both[1]) and not any(_equal(both[1], known) for known in put)]
        right = {number for number, array in telling if _is_there(array, other)}
        found = {number for number, array in telling if number in right and not _is_there(array, trace)}
        if telling and not back.isdisjoint(one.inputs) and (found or len(right) < len(telling)):
            # What comes next must be right as well: operators in another order agree on the way only.
            return len(right) == len(telling)
        back |= found
        put += [array for number, array in telling if number in found]
        looked_at += len(telling) - len(found)
    return bool(back)


_WORDS = {
    "div": "divide", "truediv": "divide", "rtruediv": "divide", "mul": "multiply", "rmul": "multiply",
    "sub": "subtract", "rsub": "subtract", "radd": "add", "rpow": "pow", "rmatmul": "matmul",
}  # fmt: skip
"""By a name of an operator of Python, or a short one of a framework: its usual name."""


def plain_name(name: str) -> str:
    """The name of an operator without its underscores, in full."""
    bare = name.strip("_")
    return _WORDS.get(bare, bare)


def _namesakes(one: Operator, other: Operator) -> bool:
    return plain_name(one.name) == plain_name(other.name)


def _in_another_order(forward: Culprits, reference: Trace, candidate: Trace) -> Culprits | None:
    """The operators behind the culprits that give the same numbers in another order, if that is what it is."""
    if forward.candidate is not None:
        found = _rearranged_before(forward.candidate.inputs, candidate, reference, candidate=True)
        if found is not None:
            return Culprits(found.there, found.here, order=found.how)
    if forward.reference is not None:
        found = _rearranged_before(forward.reference.inputs, reference, candidate, candidate=False)
        if found is not None:
            return Culprits(found.here, found.there, order=found.how)
    return None


def _results_in_another_order(reference: Trace, candidate: Trace) -> Culprits | None:
    """The operators that give what comes out in the end, where it is the same numbers in another order."""
    for number in candidate.results:
        array = candidate.arrays[number]
        if not _tells(candidate.values[number]) or _partner(array, reference) is not None:
            continue
        found = _rearranged_before((number,), candidate, reference, candidate=True)
        if found is not None:
            return Culprits(found.there, found.here, order=found.how)
        for place in reference.results:
            ours = reference.arrays[place]
            how = arrangement(ours, array, near=_near(array)) if ours.shape == array.shape else None
            if how is not None:
                makers = [_maker(place, reference), _maker(number, candidate)]
                return Culprits(makers[0], makers[1], order=how)
    return None


def _maker(number: int, trace: Trace) -> Operator | None:
    return next((one for one in trace.operators if number in one.outputs), None)


def _written_in_place(culprit: Operator | None, here: Trace, there: Trace) -> Operator | None:
    """What the other side has in place of an operator (the same result), if its backward pass is written by hand.

    One that hands its gradient on unchanged gives back a gradient that is known, and is not found by it.
    """
    if culprit is None:
        return None
    results = [here.values[number] for number in culprit.outputs]
    for one in there.operators:
        values = [there.values[number] for number in one.outputs]
        if one.written and any(_equal(a, b) for a in results for b in values):
            return one
    return None


def _cut(trace: Trace, other: Trace) -> Operator | None:
    """The first operator that gives no gradient to one of its inputs, though the other side's tensor has one."""
    for one in trace.operators:
        if not any(number in trace.gradients for number in one.outputs):
            continue
        for number in one.inputs:
            values = trace.values[number]
            if number in trace.gradients or not _tells(values):
                continue
            there = [place for place, found in enumerate(other.values) if _equal(values, found)]
            if there and all(place in other.gradients for place in there):
                return one
    return None


def _equal(one: Array, other: Array) -> bool:
    return one.size == other.size and _same(one, other)


@dataclass(frozen=True)
class _Flow:
    """Tensors on their way through operators, in either direction."""

    steps: tuple[tuple[Operator, tuple[int, ...], tuple[int, ...]], ...]
    """Each operator with the numbers of what it is given and what it gives."""
    values: Mapping[int, Array]
    ends: frozenset[int]
    """Numbers of what comes out at the end, or is used on the way: all else has no consequence."""
    results: frozenset[int] = frozenset()
    """Of the forward pass: numbers of what comes out at the end."""


def _forward(trace: Trace) -> _Flow:
    steps = tuple((one, one.inputs, one.outputs) for one in trace.operators)
    # A dropout whose result is replaced by the shared mask is computed and not used.
    used = {number for _, given, _ in steps for number in given} | set(trace.results)
    return _Flow(steps, dict(enumerate(trace.values)), frozenset(used), frozenset(trace.results))


def _backward(trace: Trace) -> _Flow:
    """The gradients: every operator takes those of its outputs and gives those of its inputs."""
    known = trace.gradients
    givers = _givers(trace)
    steps = [
        (
            one,
            tuple(number for number in one.outputs if number in known),
            tuple(number for number in one.inputs if number in known and givers[number] == place),
        )
        for place, one in reversed(list(enumerate(trace.operators)))
    ]
    return _Flow(tuple(step for step in steps if step[1]), known, frozenset(known))


def _givers(trace: Trace) -> dict[int, int]:
    """The place of the operator that completes the gradient of each tensor.

    The gradient of a tensor with several uses is a sum, whole only when the first of them (the last on the way back)
    has given its part. One whose backward pass is written by hand comes before all others.
    """
    found: dict[int, int] = {}
    for place, one in enumerate(trace.operators):
        for number in one.inputs:
            if number not in found or (one.written and not trace.operators[found[number]].written):
                found[number] = place
    return found


def _is_summed(one: Operator | None, trace: Trace) -> bool:
    """Whether others take the operator's inputs, too: their gradients are sums, of which it gives a part."""
    return one is not None and any(
        not set(one.inputs).isdisjoint(other.inputs) for other in trace.operators if other is not one
    )


def _first_of_both(ours: _Flow, theirs: _Flow) -> Culprits:
    """The first operators of both sides that the other does not have.

    A mask is at fault only if both sides have one in this place: a fused attention makes its own, and a mask of
    minus infinity lets through what one of -1e9 does.
    """
    found = Culprits(_culprit(ours, theirs), _culprit(theirs, ours))
    sizes = [_mask_sizes(one, flow) for one, flow in ((found.reference, ours), (found.candidate, theirs))]
    if not any(sizes) or sizes[0] == sizes[1]:
        return found
    return Culprits(_culprit(ours, theirs, but=_masks(ours)), _culprit(theirs, ours, but=_masks(theirs)))


def _mask_sizes(one: Operator | None, flow: _Flow) -> list[int]:
    """The sizes of what an operator gives, if these are masks."""
    masks = _masks(flow)
    given = () if one is None else one.outputs
    return [flow.values[number].size for number in given] if given and masks.issuperset(given) else []


def _masks(flow: _Flow) -> set[int]:
    """Tensors of one or two different numbers."""
    return {
        number
        for number, values in flow.values.items()
        if values.size > 1 and bool(((values == values[0]) | (values == values[-1])).all())
    }


def _culprit(flow: _Flow, other: _Flow, but: Collection[int] = ()) -> Operator | None:
    by_size: dict[int, list[Array]] = {}
    for values in other.values.values():
        by_size.setdefault(values.size, []).append(values)
    there = {
        number: any(_same(values, one) for one in by_size.get(values.size, ()))
        for number, values in flow.values.items()
    }
    # Weights and constants that the other side does not use come from nowhere in its trace.
    made = {number for _, _, gives in flow.steps for number in gives}
    fronts = [
        place
        for place, (_, given, gives) in enumerate(flow.steps)
        if any(not there[number] for number in gives if number in flow.ends and number not in but)
        and all(there[number] or number not in made for number in given)
    ]
    # A part of a wrong tensor may be right (all but its last element), and yet another part of it reach the end.
    unhealed = (place for place in fronts if not _healed(flow, place, there))
    reaching = (place for place in fronts if _reaches_the_end(flow, place, there))
    found = next(unhealed, None)
    found = next(reaching, None) if found is None else found
    return None if found is None else flow.steps[found][0]


def _reaches_the_end(flow: _Flow, place: int, there: Mapping[int, bool]) -> bool:
    """Whether tensors that the other side does not have lead from an operator to a wrong result."""
    reached = {number for number in flow.steps[place][2] if not there[number]}
    for _, given, gives in flow.steps[place + 1 :]:
        if not reached.isdisjoint(given):
            reached |= {number for number in gives if not there[number]}
    return not flow.results.isdisjoint(reached)


def _healed(flow: _Flow, place: int, there: Mapping[int, bool]) -> bool:
    """Whether something computed from the operator's result is found again on the other side."""
    reached = {number for number in flow.steps[place][2] if not there[number]}
    for _, given, gives in flow.steps[place + 1 :]:
        if not reached.isdisjoint(given):
            # What is not used may be equal to anything.
            used = [number for number in gives if number in flow.ends]
            telling = [number for number in used if _is_telling(flow, number)]
            if telling and all(there[number] for number in telling):
                return True
            reached.update(gives)
    return False


def _is_telling(of: _Flow | Trace, number: int) -> bool:
    """Whether it tells, or is one computed number, such as a loss."""
    values = of.values[number]
    return _tells(values) or (values.size == 1 and not _is_round(values))


def _tells(values: Array) -> bool:
    """Whether a tensor with these sorted values is not equal to others by chance, as places and flags often are."""
    if values.size < 2 or values[0] == values[-1]:
        return False
    return not _is_round(values) or int(np.count_nonzero(values[1:] != values[:-1])) + 1 >= _DISTINCT


def _is_round(values: Array) -> bool:
    """Whether all numbers are like 0, 1, 0.5, 12 or infinity: constants, places and flags."""
    # A few of them mostly tell.
    some = (values[:: values.size // 64 + 1], values)
    return not any(bool((one[np.isfinite(one)] * 1000 % 1 > 0).any()) for one in some)


def _same(one: Array, other: Array) -> bool:
    if not one.size:
        return True
    ends = np.abs(one[[0, -1]])
    # Both are sorted: what begins or ends with another number is another tensor, which most are.
    if np.isfinite(ends).all() and not np.abs(one[[0, -1]] - other[[0, -1]]).max(initial=0.0) <= _SAME * ends.max():
        return False
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        sizes = np.abs(one)
        # A mask's fill (-inf, -1e9) is equal on both sides and must not set the scale for the scores beside it.
        small = np.percentile(sizes[sizes > 0], 25) if (sizes > 0).any() else 0.0
        counted = sizes[~(equal & (sizes > _FILL * small))]
        largest = float(counted[np.isfinite(counted)].max(initial=0.0))
        return bool((equal | (np.abs(one - other) <= _SAME * largest)).all())


def culprits_in_loss(ours: Side, theirs: Side, batch: Batch, scope: Scope) -> Culprits | str:
    """The operators at fault in the loss and in what else a step does around its models; why not, when a side cannot
    be traced. `scope` is that of the candidate; the reference runs as it is, in the same precision.
    """
    scopes = Scope(dtype=scope.dtype), scope

    def trace(side: Side, place: int) -> Trace:
        return runner_of(side.framework).operators_of_loss(side, batch, scopes[place])

    # A loss may be written in another way, and lead to the same.
    return _compared(trace, ours, theirs, forward=False)


def culprits_in(
    ours: Side, theirs: Side, calls: tuple[Call, Call], partner: str, scope: Scope, *, forward: bool
) -> Culprits | str:
    """The operators at fault inside one layer; why not, when a side cannot be traced.

    `scope` is that of the candidate; the reference runs as it is, in the same precision. `forward` says whether it is
    known that the layer's results differ.
    """
    scopes, paths = (Scope(dtype=scope.dtype), scope), (calls[0].path, partner)

    def trace(side: Side, place: int) -> Trace:
        runner, call = runner_of(side.framework), calls[place]
        return runner.operators_of_call(side, paths[place], call, scopes[place], cotangent_of(call))

    return _compared(trace, ours, theirs, forward=forward)


def _compared(trace: Callable[[Side, int], Trace], ours: Side, theirs: Side, *, forward: bool) -> Culprits | str:
    without = next((one.framework.name for one in (ours, theirs) if "operators" not in one.framework.can), None)
    if without is not None:
        return f"operators of {without} cannot be recorded one by one"
    try:
        return find_culprits(trace(ours, 0), trace(theirs, 1), forward=forward)
    except ReprodLogError:
        raise
    except Exception as error:  # a framework may raise anything under a trace; its message is the reason
        return first_line(error)


# ---- the same numbers in another order ------------------------------------------------------------------------------
#
# Tensors are matched by their sorted values, so a flip, another padding side or two exchanged factors are not noticed
# until something that depends on the order is computed from them.

_DISTINCT = 8
"""Different numbers that two tensors are not made of by accident."""
_LOST = 8
"""Tensors behind one that are looked at for its layout."""


@dataclass(frozen=True)
class _Rearranged:
    """The operators of both sides that give the same numbers in different orders."""

    here: Operator
    there: Operator | None
    how: Message


def _rearranged_before(numbers: Collection[int], trace: Trace, other: Trace, *, candidate: bool) -> _Rearranged | None:
    """The first operator that these tensors depend on and whose result the other side has in another order only.

    `candidate` says whose trace it is: an order is given as what the candidate made of the reference's.
    """
    makers = {number: one for one in other.operators for number in one.outputs}
    made = {number for one in trace.operators for number in one.outputs}
    behind = trace.behind(numbers)
    for step, one in enumerate(behind):
        if all(number not in made or _partner(trace.arrays[number], other) is not None for number in one.inputs):
            for number in one.outputs:
                array, values = trace.arrays[number], trace.values[number]
                if not _tells(values) or _partner(array, other) is not None:
                    continue
                if _put_right(number, behind[step + 1 :], trace, other):
                    continue
                for place, found in enumerate(other.arrays):
                    if found.shape != array.shape or not _same(values, other.values[place]):
                        continue
                    if _stays_turned(number, trace, place, other):
                        continue
                    ours, theirs = (found, array) if candidate else (array, found)
                    how = arrangement(ours, theirs, near=_near(array)) or _some_order(array)
                    if how is not None:
                        return _Rearranged(one, makers.get(place), how)
    return None


def _some_order(array: Array) -> Message | None:
    """An order that has no name, of numbers that are hardly the same by accident."""
    return message("word.in_some_order") if np.unique(array).size >= _DISTINCT else None


def _put_right(number: int, later: list[Operator], trace: Trace, other: Trace) -> bool:
    """Whether something computed from a tensor is found in the other side's order again.

    A matrix that one side transposes, and the other multiplies by as if transposed, is not a mistake.
    """
    reached = {number}
    for one in later:
        if reached.isdisjoint(one.inputs):
            continue
        telling = [place for place in one.outputs if _tells(trace.values[place])]
        if telling and all(_partner(trace.arrays[place], other) is not None for place in telling):
            return True
        reached.update(one.outputs)
    return False


def _stays_turned(number: int, trace: Trace, place: int, other: Trace) -> bool:
    """Whether what differs behind a tensor is close to what differs on the other side if its axes are turned alike:
    this is how one side lays out its tensors, and no mistake."""
    axes = nearest_axes(other.arrays[place], trace.arrays[number])
    if len(axes) < 2:
        return False
    here, there = _lost_behind(number, trace, other), _lost_behind(place, other, trace)
    return any(nearest_axes(theirs, ours) == axes for ours in here for theirs in there)


def _lost_behind(number: int, trace: Trace, other: Trace) -> list[Array]:
    """Tensors of this size that are computed from one and that the other side does not have."""
    reached, found = {number}, list[int]()
    for one in trace.operators:
        if not reached.isdisjoint(one.inputs):
            reached.update(one.outputs)
            found += [made for made in one.outputs if trace.values[made].size == trace.values[number].size]
    sized = [values for values in other.values if values.size == trace.values[number].size]
    lost = (made for made in found if not any(_same(trace.values[made], values) for values in sized))
    return [trace.arrays[made] for made in islice(lost, _LOST)]


def _partner(array: Array, other: Trace) -> Array | None:
    """The other side's tensor with the same numbers in the same places."""
    return next((found for found in other.arrays if _is_partner(array, found)), None)


def _is_partner(array: Array, found: Array) -> bool:
    return found.shape == array.shape and np.allclose(found, array, rtol=0, atol=_near(array), equal_nan=True)


def _near(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return _SAME * float(finite.max(initial=0.0))
