"""Matching where it hangs on details: ties between layers, roles, sketches instead of values, names in rename maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pairing.test_matching_cases import FIRST, PADDLE, SECOND, TORCH, Model, pair_of_models, partners
from reprod_log.errors import RecordingError
from reprod_log.measure.comparison import measure_pair
from reprod_log.pairing import match
from reprod_log.pairing.alignment import best_alignment
from reprod_log.pairing.layers import _Call, match_layers
from reprod_log.pairing.rename import renamed
from reprod_log.recording import Entry, Key, Recording, dtype_named
from reprod_log.recording.entry import content_hash
from reprod_log.recording.sketch import SketchOrder, sketch_of


def call(path: str, kind: str = "", shape: tuple[int, ...] = (2,)) -> _Call:
    return _Call(path, kind, shape)


@pytest.mark.parametrize(
    ("one", "other", "likeness"),
    [
        (call("a", "relu"), call("b", "relu"), 2.0),
        (call("a", "relu"), call("b", "gelu"), 0.0),
        (call("a", "relu", (2, 3)), call("b", "relu", (3, 2)), 2.0),
        (call("a", "relu", (2, 3)), call("b", "relu", (2, 2)), 0.0),
        (call("x.pool", "pool", (2, 3)), call("y.pool", "pool", (2, 2)), 1.0),
        (call("x.pool", "pool", (2, 3)), call("y.pool", "relu", (2, 2)), 0.0),
        (call("x.pool", "pool", (2, 3)), call("y.pool", "pool", (2, 3, 1)), 0.0),
        (call("x.pool", "", (2, 3)), call("y.pool", "", (2, 2)), 0.0),
        (call("x.act"), call("y.act", "relu"), 1.5),
        (call("x.act", "relu"), call("y.act"), 1.5),
        (call("x.act"), call("y.other"), 0.5),
    ],
)
def test_likeness_of_two_calls(one: _Call, other: _Call, likeness: float) -> None:
    assert one.likeness(other) == likeness
    assert other.likeness(one) == likeness


def test_alignment_of_calls_prefers_the_likest_and_keeps_the_order() -> None:
    def pairs(ours: list[_Call], theirs: list[_Call]) -> list[tuple[str, str]]:
        return [(one.path, other.path) for one, other in best_alignment(ours, theirs, _Call.likeness)]

    relu, drop = call("r", "relu"), call("d", "dropout")
    assert pairs([relu, drop], [drop, relu]) in ([("r", "r")], [("d", "d")])
    assert pairs([relu, drop], [relu, drop]) == [("r", "r"), ("d", "d")]
    assert pairs([drop, relu], [relu]) == [("r", "r")]
    assert pairs([relu], [drop, relu, drop]) == [("r", "r")]
    assert pairs([], [relu]) == pairs([relu], []) == []
    assert pairs([relu], [drop]) == []
    unknown = [call("p.act"), call("p.norm")]
    assert pairs(unknown, [call("q.norm")]) == [("p.norm", "q.norm")]
    assert pairs([call("a.x"), call("a.act"), call("a.y")], [call("b.act")]) == [("a.act", "b.act")]


def test_one_activation_there_is_the_partner_of_one_here() -> None:
    ours = Model().linear("fc1", FIRST, np.ones((5, 4))).simple("f", "relu", (5, 4)).simple("g", "relu", (5, 4))
    ours.linear("fc2", SECOND, np.ones((5, 2)))
    theirs = Model(PADDLE).linear("fc1", FIRST, np.ones((5, 4))).simple("h", "relu", (5, 4))
    theirs.linear("fc2", SECOND, np.ones((5, 2)))
    modules = match_layers(ours.recording(), theirs.recording(), rename={}).modules
    assert [partner for partner, _ in modules.values()].count("h") == 1


def test_activations_right_behind_each_other_s_anchor_are_paired() -> None:
    ours = (
        Model().simple("f", "relu", (5, 3)).linear("fc1", FIRST, np.ones((5, 4))).linear("fc2", SECOND, np.ones((5, 2)))
    )
    theirs = Model(PADDLE).simple("h", "relu", (5, 3)).linear("fc1", FIRST, np.ones((5, 4)))
    theirs.linear("fc2", SECOND, np.ones((5, 2))).simple("i", "relu", (5, 2))
    ours.simple("g", "relu", (5, 2))
    modules = match_layers(ours.recording(), theirs.recording(), rename={}).modules
    assert (modules["f"], modules["g"]) == (("h", "order"), ("i", "order"))


def test_containers_around_the_same_layer_are_paired_from_the_outside() -> None:
    ours, theirs = Model(), Model(PADDLE)
    for model, (outer, inner) in ((ours, ("zz", "a")), (theirs, ("y", "b"))):
        model.module(outer, "").module(f"{outer}.{inner}", "").linear(f"{outer}.{inner}.fc", FIRST, np.ones((5, 4)))
        model.entry(f"step0/forward/{outer}.{inner}#0:output", np.ones((5, 4)))
        model.entry(f"step0/forward/{outer}#0:output", np.ones((5, 4)))
    modules = match_layers(ours.recording(), theirs.recording(), rename={}).modules
    assert modules["zz"] == ("y", "structure")
    assert modules["zz.a"] == ("y.b", "structure")


def test_tensor_that_no_view_knows_is_paired_by_its_name() -> None:
    ours, theirs = pair_of_models(("fc1", "fc2"))
    for model in (ours, theirs):
        model.entry("step0/optimizer/global:count", np.array(3.0)).entry("step0/forward/unknown#0:output", np.ones(2))
    found = partners(match(ours.recording(), theirs.recording()))
    assert found["step0/optimizer/global:count"] == ("step0/optimizer/global:count", "name", 1.0)
    assert found["step0/forward/unknown#0:output"] == ("step0/forward/unknown#0:output", "name", 1.0)


def test_other_role_is_looked_for_under_the_partner_s_name() -> None:
    ours = Model().linear("x", FIRST).entry("step0/forward/x#0:output", np.ones((5, 4)))
    theirs = Model(PADDLE).linear("y", FIRST).entry("step0/forward/y#0:output.0", np.ones((5, 4)))
    assert partners(match(ours.recording(), theirs.recording()))["step0/forward/x#0:output"][0] == (
        "step0/forward/y#0:output.0"
    )


def test_bias_keeps_its_layout_and_says_how_sure() -> None:
    ours, theirs = Model(), Model(PADDLE)
    for model, name in ((ours, "x"), (theirs, "y")):
        stored = FIRST if model is ours else FIRST.T
        model.module(name, "linear", {"weight": stored.shape, "bias": (4,)})
        model.entry(f"step0/forward/{name}#0:output", np.ones((5, 4))).entry(f"step0/parameter/{name}.weight", stored)
        model.entry(f"step0/parameter/{name}.bias", np.arange(4.0))
    pairing = match(ours.recording(), theirs.recording())
    bias = next(pair for pair in pairing.pairs if str(pair.reference.key) == "step0/parameter/x.bias")
    assert (bias.how, bias.confidence, bias.view) == ("structure", 0.9, None)


def test_power_kept_per_parameter_is_paired_whole() -> None:
    ours, theirs = pair_of_models(("x", "y"))
    ours.entry("step0/optimizer/fc1.weight:beta1_pow", np.array([0.9]))
    theirs.entry("step0/optimizer/x.weight:beta1_pow", np.array(0.9))
    pairing = match(ours.recording(), theirs.recording())
    power = next(pair for pair in pairing.pairs if "beta1_pow" in str(pair.reference.key))
    assert str(power.candidate.key) == "step0/optimizer/x.weight:beta1_pow"
    assert (power.how, power.confidence) == ("structure", 0.9)
    assert power.view is not None
    assert power.view.of(power.candidate.array()).shape == (1,)


def test_longest_rule_of_a_rename_map_wins() -> None:
    rename = {"a": "z", "a.b": "y", "b": "x"}
    assert renamed(Key.parse("a.b.c"), rename) == (Key.parse("y.c"), "a.b")
    assert renamed(Key.parse("a.c"), rename) == (Key.parse("z.c"), "a")
    assert renamed(Key.parse("a/c"), rename) == (Key.parse("z/c"), "a")
    assert renamed(Key.parse("ab"), rename) == (Key.parse("ab"), None)
    whole = {"step0/loss/loss": "step0/loss/cost"}
    assert renamed(Key.parse("step0/loss/loss"), whole) == (Key.parse("step0/loss/cost"), "step0/loss/loss")
    pairing = match(
        Recording.from_arrays({"step0/loss/loss": np.ones(1)}), Recording.from_arrays({"step0/loss/cost": np.ones(1)}),
        rename=whole,
    )  # fmt: skip
    assert len(pairing.pairs) == 1


def test_six_projections_are_settled_and_equal_ones_are_not_guessed() -> None:
    square = np.ones((3, 3))

    def models(values: list[float], turned: list[int]) -> tuple[Model, Model]:
        ours, theirs = Model(), Model(PADDLE)
        for place, value in enumerate(values):
            ours.linear(f"one{place}", square, np.full((2, 3), value))
            ours.entry(f"step0/forward/one{place}#0:input.0", np.ones((2, 3)), hash="same")
        for place, source in enumerate(turned):
            theirs.linear(f"other{place}", square, np.full((2, 3), values[source]))
        return ours, theirs

    ours, theirs = models([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [5, 4, 3, 2, 1, 0])
    found = partners(match(ours.recording(), theirs.recording()))
    assert found["step0/forward/one0#0:output"] == ("step0/forward/other5#0:output", "value", 1.0)
    ours, theirs = models([1.0, 1.0, 4.0], [2, 1, 0])
    found = partners(match(ours.recording(), theirs.recording()))
    assert found["step0/forward/one2#0:output"][1] != "value"


def sketched(key: str, array: np.ndarray, detail: str, form: SketchOrder) -> Entry:
    """An entry of any detail; a layer's weight is sketched in the form that its type calls for."""
    found = sketch_of(array, form=form)
    meta: dict[str, Any] = {} if detail == "full" else {"summary": found.summary}
    if detail == "sketch":
        meta["sketch"] = found.facts()
    read = (lambda: array) if detail == "full" else (lambda: found.values)
    return Entry(
        Key.parse(key), array.shape, array.dtype.name, read, detail=detail, hash=content_hash(array), meta=meta
    )  # type: ignore[arg-type]


WIDE = np.random.default_rng(5).normal(size=(40, 30))


def weights(ours: str, theirs: str, candidate: np.ndarray, *, form: SketchOrder | None = None):
    """The pair of one weight, recorded with these details; paddle keeps it turned, and sketches it turned back."""
    left, right = Model().linear("fc", WIDE, np.ones((5, 40))), Model(PADDLE).linear("fc", WIDE, np.ones((5, 40)))
    key = "step0/update/fc.weight"
    here, there = left.recording(), right.recording()
    turned = SketchOrder((1, 0)) if form is None else form
    here = Recording((*here.entries, sketched(key, WIDE, ours, SketchOrder())), modules=here.modules)
    there = Recording((*there.entries, sketched(key, candidate.T.copy(), theirs, turned)), modules=there.modules)
    return next(pair for pair in match(here, there).pairs if str(pair.reference.key) == key)


@pytest.mark.parametrize("ours", ["full", "sketch", "summary"])
@pytest.mark.parametrize("theirs", ["full", "sketch", "summary"])
def test_turned_weight_is_compared_in_any_detail(ours: str, theirs: str) -> None:
    same, other = (measure_pair(weights(ours, theirs, WIDE * factor)).measurement for factor in (1.0, 1.5))
    pair = weights(ours, theirs, WIDE)
    assert (pair.candidate.shape, pair.candidate.detail, pair.candidate.hash) == (WIDE.shape, theirs, "")
    assert other is not None
    assert same is not None
    if "summary" in (ours, theirs):
        # Equal values are known by their hash where one side is whole.
        assert other.estimate is not None
        assert other.estimate.source == "statistics"
        assert (same.differing == 0) == (theirs == "full")
    else:
        assert same.rel_l2 == pytest.approx(0.0, abs=1e-12)
        assert other.rel_l2 == pytest.approx(0.5, rel=0.3)
    assert "sketch" not in pair.candidate.meta or theirs == "sketch"


def test_sketch_in_another_order_is_said_to_be_of_no_use() -> None:
    pair = weights("sketch", "sketch", WIDE, form=SketchOrder())
    with pytest.raises(RecordingError, match="another order of elements"):
        pair.candidate.read()


def test_sketch_of_a_turned_weight_says_where_nothing_is_known() -> None:
    lost = WIDE.copy()
    lost[0, 0] = math.nan
    pair = weights("sketch", "sketch", lost)
    assert pair.candidate.meta["summary"]["nan"] == 1
    measurement = measure_pair(pair).measurement
    assert measurement is None or measurement.nonfinite_mismatched


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int64"])
@pytest.mark.parametrize("ours", ["full", "sketch"])
@pytest.mark.parametrize("theirs", ["full", "sketch"])
def test_tensor_outside_of_layers_is_known_by_its_values_in_any_detail(ours: str, theirs: str, dtype: str) -> None:
    table = (np.arange(1.0, 61.0).reshape(4, 15) * (1j if dtype == "complex64" else 1)).astype(dtype_named(dtype))

    def side(origins: dict[str, str], name: str, detail: str, values: np.ndarray) -> Recording:
        found = Model(origins).module("", "", {name: values.shape}).linear("fc", FIRST, np.ones((5, 4))).recording()
        entry = sketched(f"step0/parameter/{name}", values, detail, SketchOrder())
        return Recording((*found.entries, entry), modules=found.modules)

    def paired(values: np.ndarray) -> bool:
        pairing = match(side(TORCH, "pos", ours, table), side(PADDLE, "table", theirs, values))
        return "step0/parameter/pos" in partners(pairing)

    assert paired(table) == (dtype != "int64")
    assert not paired((table * 3).astype(table.dtype))


def test_tensor_of_zeros_outside_of_layers_proves_nothing() -> None:
    ours = Model().module("", "", {"pos": (2, 3)}).linear("fc", FIRST, np.ones((5, 4)))
    theirs = Model(PADDLE).module("", "", {"table": (2, 3)}).linear("fc", FIRST, np.ones((5, 4)))
    ours.entry("step0/parameter/pos", np.zeros((2, 3)))
    theirs.entry("step0/parameter/table", np.zeros((2, 3)))
    assert "step0/parameter/pos" not in partners(match(ours.recording(), theirs.recording()))
