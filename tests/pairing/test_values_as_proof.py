"""What numbers prove about partners: distances of entries, layers on one input, tensors outside of layers, sketches."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from pairing.test_matching_cases import PADDLE, Model
from reprod_log.errors import RecordingError
from reprod_log.layers.layouts import Piece, TensorView
from reprod_log.layers.transform import Transform
from reprod_log.pairing import values
from reprod_log.pairing.sketches import sketched_view
from reprod_log.pairing.units import recorded_units
from reprod_log.pairing.values import distance, first_outputs, first_parameters, gap, lone_tensors, settle_siblings
from reprod_log.pairing.weight_map import UnitPair
from reprod_log.recording import Entry, Key, Provenance, Recording, entry_of
from reprod_log.recording.sketch import Sketching, SketchOrder, sketch_of, stored_sketch
from reprod_log.recording.summary import summarise

A = np.array([3.0, 4.0, 0.0])


def entry(array: Any, **facts: Any) -> Entry:
    return replace(entry_of("x", np.asarray(array)), **facts)


def test_distance_is_relative_to_the_first() -> None:
    assert distance(entry(A), entry(A)) == 0.0
    assert distance(entry(A), entry(2 * A)) == 1.0
    assert distance(entry(2 * A), entry(A)) == 0.5
    assert distance(entry(A), entry(A[:2])) == math.inf
    assert distance(entry(np.zeros(3)), entry(np.zeros(3))) == math.inf
    assert distance(entry(np.arange(3)), entry(np.arange(3))) == math.inf
    assert distance(entry(1j * A), entry(A * 1j + A)) == 1.0
    assert distance(entry(A.reshape(1, 3)), entry(2 * A.reshape(1, 3))) == 1.0


def test_gap_knows_equal_hashes_and_says_nothing_of_summaries() -> None:
    assert gap(entry(A, hash="a"), entry(2 * A, hash="a")) == 0.0
    assert gap(entry(A, hash="a"), entry(2 * A, hash="b")) == 1.0
    assert gap(entry(A, hash=""), entry(2 * A, hash="")) == 1.0
    assert gap(entry(A, hash="a"), entry(A[:2], hash="a")) == math.inf
    assert math.isnan(gap(entry(A, detail="summary", hash=""), entry(A, hash="")))
    assert math.isnan(gap(entry(A, hash=""), entry(A, detail="summary", hash="")))


def sketched(
    array: np.ndarray, form: SketchOrder | None = None, made: Sketching | None = None, key: str = "x"
) -> Entry:
    found = sketch_of(array, form=form or SketchOrder(), made=made or Sketching())
    meta = {"summary": found.summary, "sketch": found.facts()}
    return Entry(Key.parse(key), array.shape, array.dtype.name, lambda: found.values, detail="sketch", meta=meta)


WIDE = np.random.default_rng(0).normal(size=(6, 40))


@pytest.mark.parametrize("form", [SketchOrder(), SketchOrder((1, 0)), SketchOrder(None, 3)])
@pytest.mark.parametrize("made", [Sketching(), Sketching(size=64), Sketching(seed=5)])
def test_values_are_sketched_like_the_sketch_they_are_held_against(form: SketchOrder, made: Sketching) -> None:
    assert distance(entry(WIDE), sketched(WIDE, form, made)) == pytest.approx(0.0, abs=1e-12)
    assert distance(sketched(WIDE, form, made), entry(1.5 * WIDE)) == pytest.approx(0.5, rel=0.3)


def test_first_outputs_and_parameters_are_those_of_the_plain_run() -> None:
    keys = (
        "float64@step0/forward/a#0:output", "step0/backward/a#0:output", "step0/forward/a#0:input",
        "step0/forward/a#0:output", "step1/forward/a#0:output", "float64@step0/parameter/w", "step0/gradient/w",
        "step0/parameter/v", "step0/parameter/w", "step1/parameter/w", "step1/parameter/v",
    )  # fmt: skip
    entries = tuple(
        replace(entry_of(key, A), detail="summary" if key == "step0/parameter/v" else "full") for key in keys
    )
    recording = Recording(entries)
    assert {path: str(one.key) for path, one in first_outputs(recording).items()} == {"a": "step0/forward/a#0:output"}
    assert {path: str(one.key) for path, one in first_parameters(recording).items()} == {
        "w": "step0/parameter/w",
        "v": "step1/parameter/v",
    }


SQUARE = np.ones((3, 3))


def side(
    *names: str, values: tuple[float, ...], given: str = "same", origins: Any = None, detail: str = "full"
) -> Recording:
    """Linear layers that were all given one input, and gave these values."""
    model = Model() if origins is None else Model(origins)
    for name, value in zip(names, values, strict=True):
        if given:
            model.entry(f"step0/forward/{name}#0:input.0", np.ones((2, 3)), hash=given)
        model.linear(name, SQUARE, np.full((2, 3), value))
    entries = tuple(
        replace(one, detail=detail) if one.key.role == "output" else one for one in model.recording().entries
    )  # type: ignore[arg-type]
    return Recording(entries, modules=tuple(model.modules))


def settled(ours: Recording, theirs: Recording, how: str = "execution order") -> list[tuple[str, str]]:
    pairs = [UnitPair(a, b, how) for a, b in zip(recorded_units(ours), recorded_units(theirs), strict=True)]
    return [(pair.target.path, pair.how) for pair in settle_siblings(pairs, ours, theirs)]


UNTOUCHED = [("x", "execution order"), ("y", "execution order")]


def test_two_layers_on_one_input_are_told_by_what_they_give() -> None:
    ours = side("a", "b", values=(1.0, 2.0))
    assert settled(ours, side("x", "y", values=(2.0, 1.0))) == [("y", "values"), ("x", "values")]
    assert settled(ours, side("x", "y", values=(1.0, 2.0))) == [("x", "values"), ("y", "values")]
    assert settled(ours, side("x", "y", values=(2.0, 3.0))) == UNTOUCHED, "no arrangement agrees"
    assert settled(side("a", "b", values=(1.0, 1.0)), side("x", "y", values=(1.0, 1.0))) == UNTOUCHED, "two agree"
    near = settled(side("a", "b", values=(20.0, 40.0)), side("x", "y", values=(40.0, 21.1)))
    assert near == UNTOUCHED, "as far apart as another tensor"
    near = settled(side("a", "b", values=(20.0, 40.0)), side("x", "y", values=(40.0, 20.9)))
    assert near == [("y", "values"), ("x", "values")]


def test_layers_on_other_inputs_or_settled_by_name_are_left_alone() -> None:
    theirs = side("x", "y", values=(2.0, 1.0))
    assert settled(side("a", "b", values=(1.0, 2.0)), theirs, "name") == [("x", "name"), ("y", "name")]
    assert settled(side("a", "b", values=(1.0, 2.0), given=""), theirs) == UNTOUCHED
    ours = side("a", "b", values=(1.0, 2.0))
    other = tuple(replace(one, hash="other") if one.key.path == "b" else one for one in ours.entries)
    assert settled(Recording(other, modules=ours.modules), theirs) == UNTOUCHED


@pytest.mark.parametrize("lacking", ["ours", "theirs"])
@pytest.mark.parametrize("detail", ["summary", "none"])
def test_outputs_without_values_settle_nothing(lacking: str, detail: str) -> None:
    sides = {"ours": side("a", "b", values=(1.0, 2.0)), "theirs": side("x", "y", values=(2.0, 1.0))}
    found = sides[lacking]
    entries = [one for one in found.entries if not (one.key.role == "output" and detail == "none")]
    entries = [replace(one, detail="summary") if one.key.role == "output" else one for one in entries]
    sides[lacking] = Recording(tuple(entries), modules=found.modules)
    assert settled(sides["ours"], sides["theirs"]) == UNTOUCHED


def test_input_of_the_plain_run_counts() -> None:
    ours = side("a", "b", values=(1.0, 2.0), given="")
    more = tuple(
        replace(entry_of(key, A), hash="same")
        for path in "ab"
        for key in (
            f"float64@step0/forward/{path}#0:input",
            f"step0/backward/{path}#0:input",
            f"step0/data/{path}:input",
        )
    )
    theirs = side("x", "y", values=(2.0, 1.0))
    assert settled(Recording((*ours.entries, *more), modules=ours.modules), theirs) == UNTOUCHED


def test_roles_in_names_come_before_values() -> None:
    ours, theirs = side("q", "k", values=(1.0, 2.0)), side("key", "query", values=(1.0, 2.0))
    assert settled(ours, theirs) == [("query", "role"), ("key", "role")]
    # A role that is not said, said twice, or said of other layers settles nothing.
    for here, there in ((("q", "z"), ("k", "query")), (("q", "q2.q"), ("k", "query")), (("q", "k"), ("v", "query"))):
        found = settled(side(*here, values=(1.0, 2.0)), side(*there, values=(2.0, 1.0)))
        assert [how for _, how in found] == ["values", "values"]


def test_more_layers_than_can_be_tried_are_left_alone() -> None:
    ours, theirs = side("a", "b", "c", values=(1.0, 2.0, 4.0)), side("x", "y", "z", values=(4.0, 2.0, 1.0))
    with mock.patch.object(values, "_MOST_SIBLINGS", 3):
        assert settled(ours, theirs)[0] == ("z", "values")
    with mock.patch.object(values, "_MOST_SIBLINGS", 2):
        assert settled(ours, theirs)[0] == ("x", "execution order")


def test_lone_tensor_needs_values_that_agree() -> None:
    def one_tensor(name: str, value: list[float]) -> Recording:
        return Model().module("", "", {name: (2,)}).entry(f"step0/parameter/{name}", value).recording()

    def found(theirs: list[float]) -> list[str]:
        here, there = one_tensor("a", [20.0, 0.0]), one_tensor("b", theirs)
        pairs = lone_tensors(recorded_units(here), recorded_units(there), here, there)
        return [f"{pair.source.path} {pair.target.path} {pair.how}" for pair in pairs]

    assert found([20.9, 0.0]) == ["a b values"]
    assert found([21.0, 0.0]) == []


# Sketches in the reference's layout.

TALL = np.random.default_rng(1).normal(size=(12, 5))


def view(*pieces: Piece, parts: int = 1, axes: tuple[int, ...] | None = None, tensors: int = 1) -> TensorView:
    names = tuple(f"t{place}" for place in range(tensors))
    return TensorView("Linear", "weight", names, pieces, Transform(axes, parts=parts))


THIRDS = Transform(parts=3)
REFERENCE = entry_of("step0/parameter/w", np.zeros((12, 5)))


def thirds(*order: int) -> TensorView:
    return view(*(Piece(0, part, THIRDS) for part in order), parts=len(order))


def test_whole_tensor_keeps_its_statistics_and_sketch() -> None:
    found = sketched_view(thirds(2, 0, 1), [sketched(TALL, SketchOrder(None, 3))], REFERENCE)
    assert (found.detail, found.shape, found.hash) == ("sketch", (12, 5), "")
    assert found.meta["summary"] == pytest.approx(summarise(TALL))
    expected = sketch_of(np.concatenate([TALL[8:], TALL[:8]]), form=SketchOrder(None, 3))
    np.testing.assert_allclose(found.read(), expected.values, rtol=1e-12)
    assert stored_sketch(found).form == SketchOrder(None, 3)
    assert stored_sketch(found).made == Sketching()
    assert stored_sketch(found).nonfinite == ""


def test_part_of_a_tensor_has_no_statistics_of_its_own() -> None:
    found = sketched_view(thirds(1), [sketched(TALL, SketchOrder(None, 3))], replace(REFERENCE, shape=(4, 5)))
    assert (found.meta["summary"]["nan"], found.meta["summary"]["inf"]) == (0, 0)
    rest = {name: value for name, value in found.meta["summary"].items() if name not in ("nan", "inf")}
    assert len(rest) == 6
    assert all(math.isnan(value) for value in rest.values())
    np.testing.assert_allclose(found.read(), sketch_of(TALL[4:8]).values, rtol=1e-12)


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_part_of_a_tensor_with_values_that_are_not_finite_has_nothing(lost: float) -> None:
    broken = TALL.copy()
    broken[0, 0] = lost
    found = sketched_view(thirds(1), [sketched(broken, SketchOrder(None, 3))], REFERENCE)
    assert (found.detail, found.hash, found.shape) == ("summary", "", (12, 5))
    assert "summary" not in found.meta
    assert "sketch" not in found.meta
    whole = sketched_view(thirds(0, 1, 2), [sketched(broken, SketchOrder(None, 3))], REFERENCE)
    assert stored_sketch(whole).nonfinite == "of parts"


def test_tensors_joined_have_the_statistics_of_all() -> None:
    joined = view(Piece(0, 0, Transform()), Piece(1, 0, Transform((1, 0))), parts=2, tensors=2)
    halves = TALL[:6], TALL[6:]
    squares = WIDE[:, :6], WIDE[:, 6:12]
    second = sketched(squares[1].T, SketchOrder((1, 0)))
    for first in (sketched(squares[0]), entry(squares[0])):
        found = sketched_view(joined, [first, second], REFERENCE)
        assert found.detail == "sketch"
        assert found.meta["summary"]["abs_max"] == pytest.approx(np.abs(WIDE[:, :12]).max())
        expected = np.concatenate([sketch_of(one).values for one in squares])
        np.testing.assert_allclose(found.read(), expected, rtol=1e-12)
    # Of other sizes, nothing is known of them together but that all is finite.
    uneven = sketched_view(joined, [sketched(halves[0]), sketched(np.ones((3, 5)).T, SketchOrder((1, 0)))], REFERENCE)
    assert math.isnan(uneven.meta["summary"]["rms"])


def test_summary_among_the_parts_leaves_a_summary() -> None:
    whole = view(Piece(0, 0, Transform()), Piece(1, 0, Transform()), parts=2, tensors=2)
    plain = entry(TALL[:6], detail="summary", meta={"summary": summarise(TALL[:6]), "note": "kept"})
    found = sketched_view(whole, [plain, sketched(TALL[6:])], REFERENCE)
    assert (found.detail, found.hash, found.shape) == ("summary", "", (12, 5))
    assert found.meta["summary"]["abs_max"] == np.abs(TALL).max()
    assert found.meta["note"] == "kept"
    first = sketched_view(whole, [sketched(TALL[6:]), plain], REFERENCE)
    assert (first.detail, "sketch" in first.meta) == ("summary", False)
    unknown = sketched_view(whole, [entry(TALL[:6], detail="summary", meta={}), sketched(TALL[6:])], REFERENCE)
    assert "summary" not in unknown.meta


def test_turned_whole_is_said_to_be_turned() -> None:
    turned = view(Piece(0, 0, Transform((1, 0))), axes=(1, 0))
    found = sketched_view(turned, [sketched(TALL, SketchOrder((1, 0)))], REFERENCE)
    assert stored_sketch(found).form == SketchOrder((1, 0))


def test_parts_sketched_with_another_seed_or_order_cannot_be_joined() -> None:
    both = view(Piece(0, 0, Transform()), Piece(1, 0, Transform()), parts=2, tensors=2)
    found = sketched_view(both, [sketched(TALL[:6]), sketched(TALL[6:], made=Sketching(seed=1))], REFERENCE)
    with pytest.raises(RecordingError, match="another order of elements, or with another size or seed"):
        found.read()
    found = sketched_view(thirds(0, 1, 2), [sketched(TALL)], REFERENCE)
    with pytest.raises(RecordingError, match="another order"):
        found.read()


# Units of a recording.


def test_units_know_where_they_come_from() -> None:
    model = Model().module("", "", {"pos": (2,)}).linear("fc", SQUARE)
    recording = Recording(
        model.recording().entries, modules=tuple(model.modules), provenance=Provenance(framework="torch")
    )
    bare, layer = recorded_units(recording)
    assert (bare.path, bare.family, bare.owner) == ("pos", "torch", "")
    assert (layer.path, layer.family, layer.class_name, layer.owner) == ("fc", "torch", "Linear", "fc")


def test_tensor_listed_under_two_names_is_the_one_that_was_recorded() -> None:
    def tensors(*recorded: str, run: str = "", phase: str = "parameter") -> tuple[str, ...]:
        names = {"weight_ih_l0": (12, 3), "weight_hh_l0": (12, 3), "bias_ih_l0": (12,), "bias_hh_l0": (12,)}
        model = Model(PADDLE).module(
            "lstm", "lstm", {**names, **{f"0.cell.{name[:-3]}": shape for name, shape in names.items()}}
        )
        for name in recorded:
            model.entry(f"{run}step0/{phase}/lstm.{name}", np.ones(names.get(name, names.get(f"{name[7:]}_l0"))))  # type: ignore[arg-type]
        return recorded_units(model.recording())[0].tensors

    first = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    second = tuple(f"0.cell.{name[:-3]}" for name in first)
    for recorded in (first, second):
        assert set(tensors(*recorded)) == {f"lstm.{name}" for name in recorded}
        assert set(tensors(*recorded, phase="gradient")) == {f"lstm.{name}" for name in recorded}


def test_layer_that_is_the_whole_model_is_a_unit() -> None:
    model = Model().module("", "linear", {"weight": (3, 3)}).entry("step0/parameter/weight", SQUARE)
    (unit,) = recorded_units(model.recording())
    assert (unit.path, unit.tensors) == ("", ("weight",))


def test_what_lies_inside_a_known_layer_belongs_to_it() -> None:
    model = Model().module("fc", "linear", {"weight": (3, 3)}).module("fc.inner", "linear", {"weight": (3, 3)})
    assert [unit.path for unit in recorded_units(model.recording())] == ["fc"]


def test_tensor_that_two_modules_list_is_one_unit() -> None:
    model = Model().module("", "", {"a.scale": (3,)}).module("a", "", {"scale": (3,)})
    assert [unit.path for unit in recorded_units(model.recording())] == ["a.scale"]
