"""The operator that is named is the one that differs: not what only takes its result, nor its backward pass."""

from collections.abc import Callable
from typing import Any

import numpy as np

from reprod_log.diagnose.fits import softmax
from reprod_log.experiments.operators import Culprits, find_culprits
from reprod_log.frameworks.contract import Operator, Trace

GENERATOR = np.random.default_rng(0)
MEAN, NOISE = GENERATOR.normal(size=(4, 3)), GENERATOR.normal(size=(4, 3))
WEIGHT = GENERATOR.normal(size=(3, 3))


class Tape:
    """A trace that is written by hand: each call is an operator, on a line of its name."""

    def __init__(self) -> None:
        self.trace = Trace()

    def given(self, array: Any) -> int:
        array = np.asarray(array, np.float64)
        self.trace.arrays.append(array)
        self.trace.values.append(np.sort(array, None))
        return len(self.trace.arrays) - 1

    def call(self, name: str, function: Callable[..., Any], *numbers: int) -> int:
        made = self.given(function(*(self.trace.arrays[number] for number in numbers)))
        self.trace.operators.append(Operator(name, numbers, (made,), f"model.py:{len(self.trace.operators) + 1}"))
        arrays = self.trace.arrays
        self.trace.calls.append(lambda values: [function(*(values.get(one, arrays[one]) for one in numbers))])
        self.trace.results = (made,)
        return made


def names(found: Culprits) -> tuple[str | None, str | None]:
    return tuple(None if one is None else one.name for one in (found.reference, found.candidate))  # type: ignore[return-value]


def with_noise(scale: float | None) -> Trace:
    """`linear(mean + scale · noise)`; without a scale, `linear(mean)`."""
    tape = Tape()
    mean, noise, weight = (tape.given(one) for one in (MEAN, NOISE, WEIGHT))
    code = tape.call("relu", lambda x: np.maximum(x, 0), mean)
    if scale is not None:
        moved = tape.call("mul", lambda x: scale * x, noise)
        code = tape.call("add", np.add, code, moved)
    tape.call("linear", np.matmul, code, weight)
    return tape.trace


def test_layer_that_takes_a_result_without_its_term_is_not_at_fault() -> None:
    found = find_culprits(with_noise(0.5), with_noise(None))
    assert names(found) == ("mul", None)
    assert found.confirmed


def test_term_that_is_zero_is_named_and_not_the_layer_behind_it() -> None:
    assert names(find_culprits(with_noise(0.5), with_noise(0.0))) == ("mul", "mul")


def test_term_that_is_summed_up_is_missing_though_what_follows_works_on_the_last_one_alone() -> None:
    def summed(*, all_of_them: bool) -> Trace:
        tape = Tape()
        parts = [tape.given(one) for one in (MEAN, NOISE)]
        total = tape.call("add", np.add, *parts) if all_of_them else parts[1]
        tape.call("linear", np.matmul, tape.call("relu", lambda x: np.maximum(x, 0), total), tape.given(WEIGHT))
        return tape.trace

    found = find_culprits(summed(all_of_them=True), summed(all_of_them=False))
    assert (*names(found), found.confirmed) == ("add", None, True)


def test_mask_that_only_one_side_fills_in_is_named_and_not_the_softmax_behind_it() -> None:
    def attended(*, masked: bool) -> Trace:
        tape = Tape()
        scores, hidden = tape.given(NOISE), tape.given(NOISE > 1)
        if masked:
            scores = tape.call("masked_fill", lambda x, mask: np.where(mask, -1e9, x), scores, hidden)
        tape.call("matmul", np.matmul, tape.call("softmax", softmax, scores), tape.given(WEIGHT))
        return tape.trace

    found = find_culprits(attended(masked=True), attended(masked=False))
    assert (*names(found), found.confirmed) == ("masked_fill", None, True)


def test_sign_that_only_one_side_changes_is_named_and_not_what_is_computed_from_it() -> None:
    """What undoes itself on the way (exp(s) · exp(-s)) is no evidence for another operator."""

    def scaled(*, negated: bool) -> Trace:
        tape = Tape()
        value, size = tape.given(MEAN), tape.given(NOISE)
        size = tape.call("neg", np.negative, size) if negated else size
        tape.call("mul", np.multiply, value, tape.call("exp", np.exp, size))
        return tape.trace

    found = find_culprits(scaled(negated=False), scaled(negated=True))
    assert (*names(found), found.confirmed) == (None, "neg", True)


def test_operator_on_another_tensor_that_both_sides_have_is_named_as_such() -> None:
    def half(taken: int) -> Trace:
        tape = Tape()
        parts = [tape.call("relu", lambda x: np.maximum(x, 0), tape.given(MEAN)), tape.given(NOISE)]
        tape.call("tanh", np.tanh, tape.call("linear", np.matmul, parts[taken], tape.given(WEIGHT)))
        return tape.trace

    found = find_culprits(half(0), half(1))
    assert names(found) == ("linear", "linear")
    assert found.elsewhere is not None
    assert [None if one is None else one.name for one in found.elsewhere] == ["relu", None]


def test_wrong_element_that_a_part_of_the_tensor_leaves_out_is_traced_to_where_it_is_made() -> None:
    """All but the last element is right on both sides, and the whole reaches the end, too."""

    def absorbed(last: float) -> Trace:
        tape = Tape()
        lengths = tape.call("concat", lambda x: np.append(x[0], last), tape.given(MEAN))
        through = tape.call("exp", np.exp, lengths)
        before = tape.call("getitem", lambda x: x[:-1], through)
        tape.call("dot", lambda x, y: x * y.sum(), through, before)
        return tape.trace

    found = find_culprits(absorbed(1.7), absorbed(9.3))
    assert (*names(found), found.confirmed) == ("concat", "concat", True)


def test_results_that_differ_have_no_backward_pass_at_fault() -> None:
    """Nothing of the forward pass is found at fault; gradients of other results are other ones anyway."""
    tapes = [Tape(), Tape()]
    for tape, scale in zip(tapes, (1.0, 2.0), strict=True):
        made = tape.call("known", lambda x: x, tape.given(MEAN))
        tape.trace.gradients = {made: np.sort(scale * NOISE, None), 0: np.sort(scale * MEAN, None)}
    assert not find_culprits(tapes[0].trace, tapes[1].trace, forward=True)


def test_operator_that_takes_another_tensor_is_named_itself() -> None:
    """Both sides have both tensors, and what made them is right."""

    def scores(second: int) -> Trace:
        tape = Tape()
        given, weight = tape.given(MEAN), tape.given(WEIGHT)
        parts = [tape.call("linear", lambda x, w, k=k: x @ (w + k), given, weight) for k in range(3)]
        tape.call("matmul", lambda q, k: q @ k.T, parts[0], parts[second])
        tape.call("tanh", np.tanh, parts[2])
        tape.call("tanh", np.tanh, parts[1])
        tape.trace.results = (5,)
        return tape.trace

    assert names(find_culprits(scores(1), scores(2))) == ("matmul", "matmul")


def answers(*, turned: bool) -> Trace:
    tape = Tape()
    left, right = tape.given(MEAN), tape.given(NOISE)
    both = (right, left) if turned else (left, right)
    tape.call("matmul", lambda a, b: a @ b.T, *both)
    return tape.trace


def test_result_in_another_order_is_named_with_the_order() -> None:
    found = find_culprits(answers(turned=False), answers(turned=True))
    assert names(found) == ("matmul", "matmul")
    assert not found.backward
    assert "transposed" in str(found.order)


def test_order_of_results_that_are_known_to_match_is_another_layout() -> None:
    assert not find_culprits(answers(turned=False), answers(turned=True), forward=False)


def test_operators_in_another_order_are_both_named() -> None:
    def block(*, sum_first: bool) -> Trace:
        tape = Tape()
        given, weight = tape.given(MEAN), tape.given(WEIGHT)
        made = tape.call("linear", np.matmul, given, weight)
        if sum_first:
            tape.call("relu", lambda x: np.maximum(x, 0), tape.call("add", np.add, given, made))
        else:
            tape.call("add", np.add, given, tape.call("relu", lambda x: np.maximum(x, 0), made))
        return tape.trace

    assert names(find_culprits(block(sum_first=True), block(sum_first=False))) == ("add", "relu")


def attention(scale: float, fill: float | None) -> Trace:
    """`softmax(scale · scores + mask)`, or the same in one fused operator that makes its own mask."""
    tape = Tape()
    queries, keys = (tape.given(one) for one in (MEAN, NOISE))
    allowed = np.tril(np.ones((4, 4)))

    def shares(scores: Any, mask: Any) -> Any:
        weights = np.exp(scores + mask)
        return weights / weights.sum(-1, keepdims=True)

    if fill is None:
        hidden = np.where(allowed, 0.0, -np.inf)
        tape.call("fused", lambda q, k: shares(scale * (q @ k.T), hidden), queries, keys)
        return tape.trace
    full = tape.given(np.full((4, 4), fill))
    mask = tape.call("triu", lambda x: np.where(allowed, 0.0, x), full)
    scores = tape.call("matmul", lambda q, k: scale * (q @ k.T), queries, keys)
    tape.call("softmax", shares, scores, mask)
    return tape.trace


def test_mask_that_only_one_side_has_is_not_at_fault() -> None:
    assert names(find_culprits(attention(0.5, None), attention(0.3, -1e9))) == ("fused", "matmul")
    assert names(find_culprits(attention(0.3, -np.inf), attention(0.5, None))) == ("matmul", "fused")
