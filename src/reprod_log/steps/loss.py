"""Loss: the same output and the same label give the same loss, and the same gradient of the output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.capture import flatten, to_numpy
from reprod_log.experiments.frameworks import Hands, hands_of
from reprod_log.experiments.program import cast_floating
from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.nests import mapped
from reprod_log.recording import Array, Key, Recording
from reprod_log.steps.passes import FLOAT64
from reprod_log.steps.subject import Recorded, Subject, recorded
from reprod_log.steps.values import given, named, origin, values_recording, with_framework
from reprod_log.verdict import Limit

SUBJECT = Subject(
    name="loss",
    title="loss",
    words=("loss", "losses", "criterion"),
    limits=("mean_abs:1e-6",),
    why="the guides' threshold",
)


def record(side: Any, *, outputs: Any = None, targets: Any = None, float64: bool = True) -> Recording:
    """The loss of one side, the gradient of the model's outputs under it, and both again in float64.

    side      loss(outputs, targets) → a scalar or several by name, whose sum is backpropagated; as a pair
              ('paddle', function) when the function does not tell its framework. Without `outputs`: the loss itself,
              several by name, or a function that gives them
    outputs   what the model returned, as numpy arrays: one, or several in a dict or tuple
    targets   what the loss is given besides
    """
    if outputs is None:
        losses = named(given(side), "loss")
        return values_recording(
            {Key(path=name, phase="loss", step=0): array for name, array in losses}, provenance=origin(side)
        )
    framework, function = with_framework(side)
    entries: dict[Key, Array] = {}
    for dtype in (None, FLOAT64) if float64 else (None,):
        entries |= _pass(framework, function, outputs, targets, dtype)
    return values_recording(entries, provenance=origin(framework))


def _pass(framework: Framework, function: Any, outputs: Any, targets: Any, dtype: str | None) -> dict[Key, Array]:
    hands = hands_of(framework.NAME)
    leaves = _leaves(hands, outputs, dtype)
    others = None if targets is None else _leaves(hands, targets, dtype)
    value = function(leaves) if others is None else function(leaves, others)
    terms = [(role or "loss", term) for role, term in flatten(value)]
    run = dtype or ""
    found = {Key(path=name, phase="loss", step=0, run=run): to_numpy(term) for name, term in terms}
    total = terms[0][1]
    for _, term in terms[1:]:
        total = total + term
    total.backward()
    for role, leaf in flatten(leaves, "outputs"):
        gradient = framework.gradient(leaf)
        if gradient is not None:
            found[Key(path=role, phase="backward", step=0, run=run)] = to_numpy(gradient)
    return found


def _leaves(hands: Hands, structure: Any, dtype: str | None) -> Any:
    return mapped(structure, lambda _, leaf: hands.leaf(cast_floating(to_numpy(leaf), dtype)))


def compare(reference: Recorded, candidate: Recorded, *, limits: Iterable[Limit | str] = ()) -> Alignment:
    """Two recordings, by the calibrated rule when they were also made in float64, else by the guides' limit."""
    return SUBJECT.compare(reference, candidate, limits=limits)


def run(
    reference: Any,
    candidate: Any,
    *,
    outputs: Any = None,
    targets: Any = None,
    limits: Iterable[Limit | str] = (),
) -> Alignment:
    """Compare two loss functions on the same outputs and targets (see `record`), two losses, or two recordings."""
    sides = [
        recorded(side, lambda one: record(one, outputs=outputs, targets=targets)) for side in (reference, candidate)
    ]
    return compare(*sides, limits=limits)
