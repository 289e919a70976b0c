"""Matching where it hangs on details: ties between layers, roles, sketches instead of values, names in rename maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pairing.made import FIRST, PADDLE, SECOND, TORCH, Model, modules, pair_of_models, partners
from reprod_log.errors import RecordingError
from reprod_log.measure.comparison import measure_pair
from reprod_log.pairing import match
from reprod_log.recording import Entry, Key, Recording, dtype_named
from reprod_log.recording.entry import content_hash
from reprod_log.recording.sketch import SketchOrder, sketch_of

Act = tuple[str, str, tuple[int, ...]]


def between(origins: dict[str, str], *activations: Act) -> Model:
    """Modules without parameters (path, kind, shape of the output) between two linear layers.

    The second gives something else in each framework: else a module of another shape would be one cut elsewhere.
    """
    model = Model(origins).linear("fc1", FIRST, np.ones((5, 4)))
    for path, kind, shape in activations:
        model.entry(f"step0/forward/{path}#0:input.0", np.ones((5, 4))).simple(path, kind, shape)
    return model.linear("fc2", SECOND, np.full((5, 2), 1.0 if origins is TORCH else 9.0))


def paired(ours: list[Act], theirs: list[Act]) -> dict[str, str]:
    found = modules(between(TORCH, *ours), between(PADDLE, *theirs))
    return {one: other for one, (other, _) in found.items() if not one.startswith("fc")}


S, T = (2, 3), (2, 2)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (("a", "relu", S), ("b", "relu", S), True),
        (("a", "relu", S), ("b", "gelu", S), False),
        (("a", "relu", S), ("b", "relu", (3, 2)), True),
        (("a", "relu", S), ("b", "relu", T), False),
        # A pool with another setting is still that pool.
        (("x.pool", "pool", S), ("y.pool", "pool", T), True),
        (("x.pool", "pool", S), ("y.pool", "gelu", T), False),
        (("x.pool", "pool", S), ("y.pool", "pool", (2, 3, 1)), False),
        (("x.pool", "pool", S), ("y.down", "pool", T), False),
    ],
)
def test_modules_between_two_layers_are_alike_by_kind_shape_and_name(one: Act, other: Act, alike: bool) -> None:
    assert paired([one], [other]) == ({one[0]: other[0]} if alike else {})
    assert paired([other], [one]) == ({other[0]: one[0]} if alike else {})


def test_likest_modules_are_paired_in_their_order() -> None:
    relu, drop = ("r", "relu", S), ("d", "dropout", S)
    f, g = ("f", "relu", S), ("g", "dropout", S)
    assert paired([relu, drop], [f, g]) == {"r": "f", "d": "g"}
    assert len(paired([relu, drop], [g, f])) == 1, "only one of two that changed places"
    assert paired([drop, relu], [f]) == {"r": "f"}
    assert paired([relu], [g, f]) == {"r": "f"}
    assert paired([relu], [g]) == paired([], [f]) == paired([relu], []) == {}


def test_modules_without_a_known_kind_are_paired_by_their_last_name() -> None:
    def unknown(path: str) -> Act:
        return path, "", S

    # Without a kind the class stands for it, and nothing else may be on the other side.
    ours, theirs = between(TORCH, unknown("p.act"), unknown("p.norm")), between(PADDLE, unknown("q.norm"))
    for model in (ours, theirs):
        model.modules = [module for module in model.modules if module.kind]
    found = {one: other for one, (other, _) in modules(ours, theirs).items()}
    assert found["p.norm"] == "q.norm"
    assert "p.act" not in found


def test_one_activation_there_is_the_partner_of_one_here() -> None:
    assert len(paired([("f", "relu", (5, 4)), ("g", "relu", (5, 4))], [("h", "relu", (5, 4))])) == 1


def test_activations_outside_of_the_layers_are_paired_on_their_own_side_of_them() -> None:
    ours = Model().simple("f", "relu", (5, 3)).linear("fc1", FIRST, np.ones((5, 4)))
    theirs = Model(PADDLE).simple("h", "relu", (5, 3)).linear("fc1", FIRST, np.ones((5, 4)))
    for model, last in ((ours, "g"), (theirs, "i")):
        model.linear("fc2", SECOND, np.ones((5, 2))).simple(last, "relu", (5, 2))
    found = modules(ours, theirs)
    assert (found["f"], found["g"]) == (("h", "order"), ("i", "order"))


def test_containers_around_the_same_layer_are_paired_from_the_outside() -> None:
    ours, theirs = Model(), Model(PADDLE)
    for model, (outer, inner) in ((ours, ("zz", "a")), (theirs, ("y", "b"))):
        model.module(outer, "").module(f"{outer}.{inner}", "").linear(f"{outer}.{inner}.fc", FIRST, np.ones((5, 4)))
        model.entry(f"step0/forward/{outer}.{inner}#0:output", np.ones((5, 4)))
        model.entry(f"step0/forward/{outer}#0:output", np.ones((5, 4)))
    found = modules(ours, theirs)
    assert found["zz"][0] == "y"
    assert found["zz.a"][0] == "y.b"


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
    def renamed(rename: dict[str, str], *names: str) -> dict[str, tuple[str, str]]:
        """The partner of each name, where the candidate has every name that a rule could make."""
        there = ("y.c", "z.c", "z.b.c", "z/c", "ab", "x", "step0/loss/cost", "a.b.c", "a.c")
        ours, theirs = (Recording.from_arrays({name: np.ones(1) for name in side}) for side in (names, there))
        return {one: other[:2] for one, other in partners(match(ours, theirs, rename=rename)).items()}

    assert renamed({"a": "z", "a.b": "y"}, "a.b.c", "a.c", "a/c", "ab") == {
        "a.b.c": ("y.c", "rename"),
        "a.c": ("z.c", "rename"),
        "a/c": ("z/c", "rename"),
        "ab": ("ab", "name"),
    }
    whole = {"step0/loss/loss": "step0/loss/cost"}
    assert renamed(whole, "step0/loss/loss") == {"step0/loss/loss": ("step0/loss/cost", "rename")}


def test_six_projections_are_settled() -> None:
    square = np.ones((3, 3))

    def models(values: list[float], turned: list[int]) -> tuple[Model, Model]:
        ours, theirs = Model(), Model(PADDLE)
        for place, value in enumerate(values):
            ours.linear(f"one{place}", square, value * FIRST[:2])
            ours.entry(f"step0/forward/one{place}#0:input.0", np.ones((2, 3)), hash="same")
        for place, source in enumerate(turned):
            theirs.linear(f"other{place}", square, values[source] * FIRST[:2])
        return ours, theirs

    ours, theirs = models([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [5, 4, 3, 2, 1, 0])
    found = partners(match(ours.recording(), theirs.recording()))
    assert found["step0/forward/one0#0:output"] == ("step0/forward/other5#0:output", "value", 1.0)


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
