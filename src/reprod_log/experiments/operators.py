"""Operators of a layer on both sides, matched by value: which one is the first that the other side does not have?

Layouts do not matter, since tensors are compared by their sorted values. Another formulation does not either: an
operator whose result is missing there is forgiven when something computed from it is found again. The backward pass is
looked at in the same way, from the outputs to the inputs: the operator at fault is given a gradient that the other side
knows and gives back one that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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

    instead: Operator | None = None
    """Where only one side has an operator at fault: what the other side, which has such operators too, does with the
    same tensors."""

    order: Message | None = None
    """How the candidate's result holds the reference's numbers in another order, if that is what differs."""

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
        found = _without_consumers(found, reference, candidate)
        return _in_another_order(found, reference, candidate) or _with_counterpart(found, reference, candidate)
    turned = _results_in_another_order(reference, candidate) if forward else None
    if turned is not None:
        return turned
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
    return cuts if (cuts.reference is None) != (cuts.candidate is None) else found


def _same_results(reference: Trace, candidate: Trace) -> bool:
    ours, theirs = ([trace.values[number] for number in trace.results] for trace in (reference, candidate))
    return 0 < len(ours) == len(theirs) and all(map(_equal, ours, theirs))


def _with_counterpart(forward: Culprits, reference: Trace, candidate: Trace) -> Culprits:
    """The culprits, with what the other side does with the same tensors where it has none.

    Another formulation of what follows may hide the other side's operator;
    it is not an operator that only one side has.
    """
    one = forward.candidate if forward.reference is None else forward.reference
    if one is None or forward.instead is not None or (forward.reference is not None and forward.candidate is not None):
        return forward
    here, there = (reference, candidate) if forward.candidate is None else (candidate, reference)
    given = [here.values[number] for number in one.inputs if _tells(here.values[number])]
    namesakes = [other for other in there.operators if _namesakes(one, other)]
    same = next((other for other in namesakes if all(_takes(other, values, there) for values in given)), None)
    if given and same is not None:
        return Culprits(forward.reference or same, forward.candidate or same)
    if not namesakes:
        return forward
    users = (other for other in there.operators if any(_takes(other, values, there) for values in given))
    return replace(forward, instead=next(users, None))


def _without_consumers(found: Culprits, reference: Trace, candidate: Trace) -> Culprits:
    """The culprits, with what a side only computes from the other's culprit left out.

    Where a term is missing, the next operator that both sides have is given something else and gives something else. It
    is not at fault; what made its input is, if that side has something in the place of the culprit.
    """
    ours, theirs = found.reference, found.candidate
    if ours is None or theirs is None:
        return found
    here = _maker_at_fault(ours, reference, theirs, candidate)
    there = _maker_at_fault(theirs, candidate, ours, reference)
    if here is None and there is None:
        return found
    return Culprits(here, there, instead=ours if here is None else theirs if there is None else None)


def _maker_at_fault(one: Operator, trace: Trace, culprit: Operator, other: Trace) -> Operator | None:
    """The operator itself, unless it is a consumer: then what made its other input, if that is at fault."""
    twin = _twin(one, trace, other) or _next_after(culprit, one, trace, other)
    if twin is None or twin is culprit or culprit not in _behind(twin.inputs, other):
        return one
    if any(_namesakes(culprit, later) and not set(one.outputs).isdisjoint(later.inputs) for later in trace.operators):
        # Both sides have both operators, in another order.
        return one
    makers = {number: maker for maker in trace.operators for number in maker.outputs}
    for number in one.inputs:
        maker = makers.get(number)
        if maker is None or any(_equal(trace.values[number], other.values[given]) for given in twin.inputs):
            continue
        same = _twin(maker, trace, other)
        if same is not None and not any(_equal(trace.values[number], other.values[made]) for made in same.outputs):
            return maker
    return None


def _twin(one: Operator, trace: Trace, other: Trace) -> Operator | None:
    """The same operator on the other side: of one name, and given one of its tensors."""
    given = [trace.values[number] for number in one.inputs]
    telling = [values for values in given if _tells(values) or _is_no_constant(values)]
    namesakes = (two for two in other.operators if _namesakes(one, two))
    return next((two for two in namesakes if any(_takes(two, values, other) for values in telling)), None)


def _next_after(culprit: Operator, one: Operator, trace: Trace, other: Trace) -> Operator | None:
    """The same operator on the other side, given what the culprit there made of the tensor that is given here."""
    given = [other.values[number] for number in culprit.inputs if _tells(other.values[number])]
    if not any(_takes(one, values, trace) for values in given):
        return None
    later = (two for two in other.operators if _namesakes(one, two))
    return next((two for two in later if not set(culprit.outputs).isdisjoint(two.inputs)), None)


def _takes(one: Operator, values: Array, trace: Trace) -> bool:
    return any(_equal(values, trace.values[number]) for number in one.inputs)


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


def _forward(trace: Trace) -> _Flow:
    steps = tuple((one, one.inputs, one.outputs) for one in trace.operators)
    # A dropout whose result is replaced by the shared mask is computed and not used.
    used = {number for _, given, _ in steps for number in given} | set(trace.results)
    return _Flow(steps, dict(enumerate(trace.values)), frozenset(used))


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
    for place, (operator, given, gives) in enumerate(flow.steps):
        lost = any(not there[number] for number in gives if number in flow.ends and number not in but)
        known = all(there[number] or number not in made for number in given)
        if lost and known and not _healed(flow, place, there):
            return operator
    return None


def _healed(flow: _Flow, place: int, there: Mapping[int, bool]) -> bool:
    """Whether something computed from the operator's result is found again on the other side."""
    reached = {number for number in flow.steps[place][2] if not there[number]}
    for _, given, gives in flow.steps[place + 1 :]:
        if not reached.isdisjoint(given):
            # What is not used may be equal to anything.
            used = [number for number in gives if number in flow.ends]
            telling = [number for number in used if _tells(flow.values[number]) or _is_no_constant(flow.values[number])]
            if telling and all(there[number] for number in telling):
                return True
            reached.update(gives)
    return False


def _is_no_constant(values: Array) -> bool:
    """Whether it is one computed number, such as a loss, and not a constant like 0, 1, 0.5 or 12."""
    return values.size == 1 and bool(np.isfinite(values[0])) and float(values[0]) * 1000 % 1 > 0


def _tells(values: Array) -> bool:
    """Whether a tensor with these sorted values is not equal to others by chance."""
    return values.size > 3 and bool(values[0] != values[-1])


def _same(one: Array, other: Array) -> bool:
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        sizes = np.abs(one)
        # A mask's fill (-inf, -1e9) is equal on both sides and must not set the scale for the scores beside it.
        small = np.percentile(sizes[sizes > 0], 25) if (sizes > 0).any() else 0.0
        counted = sizes[~(equal & (sizes > _FILL * small))]
        largest = float(counted[np.isfinite(counted)].max(initial=0.0))
        return bool((equal | (np.abs(one - other) <= _SAME * largest)).all())


def culprits_in_loss(ours: Side, theirs: Side, batch: Batch, dtype: str) -> Culprits | str:
    """The operators at fault in the loss; why not, when a side cannot be traced."""
    scope = Scope(dtype=dtype)

    def trace(side: Side, _: int) -> Trace:
        return runner_of(side.framework).operators_of_loss(side, batch, scope)

    # A step of one's own may have another loss than this one.
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
    behind = _behind(numbers, trace)
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


def _behind(numbers: Collection[int], trace: Trace) -> list[Operator]:
    """The operators that these tensors were computed by, in order."""
    needed, found = set(numbers), []
    for one in reversed(trace.operators):
        if not needed.isdisjoint(one.outputs):
            needed.update(one.inputs)
            found.append(one)
    return found[::-1]


def _partner(array: Array, other: Trace) -> Array | None:
    """The other side's tensor with the same numbers in the same places."""
    near = _near(array)
    fitting = (found for found in other.arrays if found.shape == array.shape)
    return next((found for found in fitting if np.allclose(found, array, rtol=0, atol=near, equal_nan=True)), None)


def _near(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return _SAME * float(finite.max(initial=0.0))
