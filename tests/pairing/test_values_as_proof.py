"""What numbers prove about partners: layers on one input, tensors outside of layers, sketches in another layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairing.made import FIRST, PADDLE, TORCH, Model, attention, matched, modules, packed_attention, partners
from reprod_log.errors import RecordingError
from reprod_log.recording import Entry, Recording, entry_of
from reprod_log.recording.sketch import Sketching, SketchOrder, sketch_of, stored_sketch
from reprod_log.recording.summary import summarise

SQUARE = np.ones((3, 3))


def side(*names: str, values: tuple[float, ...], given: str = "same", origins: dict[str, str] = TORCH) -> Recording:
    """Linear layers of one weight that were all given one input, and gave these values."""
    model = Model(origins)
    for name, value in zip(names, values, strict=True):
        model.entry(f"step0/forward/{name}#0:input.0", np.ones((2, 3)), hash=given or f"of {name}")
        model.linear(name, SQUARE, np.full((2, 3), value))
    return model.recording()


def settled(ours: Recording, theirs: Recording) -> list[tuple[str, str]]:
    found = modules(ours, theirs)
    return [found[path] for path in dict.fromkeys(entry.key.path for entry in ours.entries) if path in found]


IN_ORDER = [("x", "order"), ("y", "order")]
CROSSED = [("y", "value"), ("x", "value")]
# As near as a tensor with a defect, and not near enough to be known without the same input.
OURS, NEAR = side("a", "b", values=(20.0, 40.0)), side("x", "y", values=(40.0, 20.9))


def test_two_layers_on_one_input_are_told_by_what_they_give() -> None:
    ours = side("a", "b", values=(1.0, 2.0))
    assert settled(ours, side("x", "y", values=(2.0, 1.0))) == CROSSED
    assert settled(ours, side("x", "y", values=(1.0, 2.0))) == [("x", "value"), ("y", "value")]
    assert settled(ours, side("x", "y", values=(2.0, 3.0))) == IN_ORDER, "no arrangement agrees"
    assert settled(side("a", "b", values=(1.0, 1.0)), side("x", "y", values=(1.0, 1.0))) == IN_ORDER, "two agree"
    assert settled(OURS, NEAR) == CROSSED
    assert settled(OURS, side("x", "y", values=(40.0, 21.1))) == IN_ORDER, "as far apart as another tensor"


def test_layers_on_other_inputs_or_paired_by_name_are_left_alone() -> None:
    assert settled(side("a", "b", values=(20.0, 40.0), given=""), NEAR) == IN_ORDER
    named = side("a", "b", values=(40.0, 20.9), origins=PADDLE)
    assert settled(OURS, named) == [("a", "name"), ("b", "name")]


@pytest.mark.parametrize("lacking", ["ours", "theirs"])
@pytest.mark.parametrize("detail", ["summary", "none"])
def test_outputs_without_values_settle_nothing(lacking: str, detail: str) -> None:
    sides = {"ours": OURS, "theirs": NEAR}
    found = sides[lacking]
    kept = [one for one in found.entries if not (one.key.role == "output" and detail == "none")]
    kept = [replace(one, detail="summary", hash="") if one.key.role == "output" else one for one in kept]
    sides[lacking] = Recording(tuple(kept), modules=found.modules)
    pairs = partners(matched(sides["ours"], sides["theirs"]))
    assert pairs["step0/parameter/a.weight"][0] == "step0/parameter/x.weight"


def test_inputs_of_other_passes_and_phases_do_not_count() -> None:
    ours = side("a", "b", values=(20.0, 40.0), given="")
    more = tuple(
        replace(entry_of(key, np.ones(3)), hash="same")
        for path in "ab"
        for key in (
            f"float64@step0/forward/{path}#0:input",
            f"step0/backward/{path}#0:input",
            f"step0/data/{path}:input",
        )
    )
    assert settled(Recording((*more, *ours.entries), modules=ours.modules), NEAR) == IN_ORDER


def test_roles_in_names_come_before_values_that_are_only_near() -> None:
    ours, theirs = side("q", "k", values=(20.0, 40.0)), side("key", "query", values=(20.9, 41.0))
    assert settled(ours, theirs) == [("query", "structure"), ("key", "structure")]
    # A role that is not said, said twice, or said of other layers settles nothing.
    for here, there in ((("q", "z"), ("k", "query")), (("q", "q2.q"), ("k", "query")), (("q", "k"), ("v", "query"))):
        found = settled(side(*here, values=(1.0, 2.0)), side(*there, values=(2.0, 1.0)))
        assert [how for _, how in found] == ["value", "value"]


@pytest.mark.parametrize(("count", "how"), [(6, "value"), (7, "order")])
def test_more_layers_than_can_be_tried_are_left_alone(count: int, how: str) -> None:
    values = tuple(20.0 * 2**place for place in range(count))
    near = tuple(1.04 * value for value in reversed(values))
    found = settled(side(*"abcdefg"[:count], values=values), side(*"tuvwxyz"[:count], values=near))
    assert {said for _, said in found} == {how}


# Tensors outside of layers.


def table(origins: dict[str, str], name: str, *entries: Entry) -> Recording:
    found = Model(origins).module("", "", {name: (6, 40)}).linear("fc", FIRST, np.ones((5, 4))).recording()
    return Recording((*found.entries, *entries), modules=found.modules)


WIDE = np.random.default_rng(0).normal(size=(6, 40))


def sketched(entry: Entry, form: SketchOrder | None = None, made: Sketching | None = None) -> Entry:
    found = sketch_of(entry.array(), form=form or SketchOrder(), made=made or Sketching())
    meta = {"summary": found.summary, "sketch": found.facts()}
    return replace(entry, read=lambda: found.values, detail="sketch", meta=meta, hash="")


def is_paired(*, ours: tuple[Entry, ...], theirs: tuple[Entry, ...]) -> bool:
    found = partners(matched(table(TORCH, "pos", *ours), table(PADDLE, "table", *theirs)))
    return found.get("step0/parameter/pos", ("",))[0] == "step0/parameter/table"


@pytest.mark.parametrize("form", [SketchOrder(), SketchOrder((1, 0)), SketchOrder(None, 3)])
@pytest.mark.parametrize("made", [Sketching(), Sketching(size=64), Sketching(seed=5)])
def test_values_are_sketched_like_the_sketch_they_are_held_against(form: SketchOrder, made: Sketching) -> None:
    pos = entry_of("step0/parameter/pos", WIDE)
    same, other = (entry_of("step0/parameter/table", factor * WIDE) for factor in (1.0, 1.5))
    assert is_paired(ours=(pos,), theirs=(sketched(same, form, made),))
    assert is_paired(ours=(sketched(pos, form, made),), theirs=(same,))
    assert not is_paired(ours=(pos,), theirs=(sketched(other, form, made),))


def test_first_values_of_the_plain_run_are_held_against_each_other() -> None:
    def entries(name: str, other: float) -> tuple[Entry, ...]:
        """The tensor itself after the first step; everything else of it is something else on the two sides."""
        keys = ("float64@step0/parameter", "step0/gradient", "step0/parameter", "step1/parameter")
        return tuple(entry_of(f"{key}/{name}", WIDE if key == "step0/parameter" else other * WIDE) for key in keys)

    assert is_paired(ours=entries("pos", 2.0), theirs=entries("table", 5.0))
    summaries = (
        replace(one, detail="summary", hash="") if str(one.key) == "step0/parameter/table" else one
        for one in entries("table", 5.0)
    )
    assert not is_paired(ours=entries("pos", 2.0), theirs=tuple(summaries)), "then a later step counts, which differs"


# Sketches in the reference's layout: packed projections against three layers.

PACKED = "step0/parameter/attn.in_proj_weight"
QKV = tuple(f"step0/parameter/self.{name}.weight" for name in ("q_proj", "k_proj", "v_proj"))
VALUES = np.random.default_rng(1).normal(size=(12, 4))
TURNED = SketchOrder((1, 0))


def recorded(model: Model, values: dict[str, np.ndarray], change: Callable[[Entry], Entry]) -> Recording:
    """The model with other values of some entries, each kept as `change` says."""
    found = model.recording()
    changed = (
        change(entry_of(str(one.key), values[str(one.key)])) if str(one.key) in values else one for one in found.entries
    )
    return Recording(tuple(changed), modules=found.modules)


def packed(change: Callable[[Entry], Entry] = lambda one: one, values: np.ndarray = VALUES) -> Recording:
    return recorded(packed_attention(), {PACKED: values}, change)


def separate(change: Callable[[Entry], Entry] = lambda one: one, values: np.ndarray = VALUES) -> Recording:
    parts = np.split(values, 3)
    return recorded(attention(), {key: part.T.copy() for key, part in zip(QKV, parts, strict=True)}, change)


def candidate(key: str, ours: Recording, theirs: Recording) -> Entry:
    return next(pair.candidate for pair in matched(ours, theirs).pairs if str(pair.reference.key) == key)


def in_thirds(one: Entry, **facts: Any) -> Entry:
    return sketched(one, SketchOrder(None, 3), **facts)


def turned(one: Entry, **facts: Any) -> Entry:
    return sketched(one, TURNED, **facts)


def test_tensors_are_joined_and_taken_apart_by_their_values() -> None:
    np.testing.assert_array_equal(candidate(PACKED, packed(), separate()).array(), VALUES)
    np.testing.assert_array_equal(candidate(QKV[1], separate(), packed()).array(), VALUES[4:8].T)


def test_sketches_of_three_layers_are_the_sketch_of_the_packed_one() -> None:
    found = candidate(PACKED, packed(in_thirds), separate(turned))
    assert (found.detail, found.shape, found.hash) == ("sketch", (12, 4), "")
    assert found.meta["summary"] == pytest.approx(summarise(VALUES))
    np.testing.assert_allclose(found.read(), sketch_of(VALUES, form=SketchOrder(None, 3)).values, rtol=1e-12)
    assert stored_sketch(found).form == SketchOrder(None, 3)
    assert stored_sketch(found).nonfinite == ""


def test_part_of_a_sketch_has_no_statistics_of_its_own() -> None:
    found = candidate(QKV[1], separate(turned), packed(in_thirds))
    assert (found.meta["summary"]["nan"], found.meta["summary"]["inf"]) == (0, 0)
    rest = {name: value for name, value in found.meta["summary"].items() if name not in ("nan", "inf")}
    assert len(rest) == 6
    assert all(math.isnan(value) for value in rest.values())
    np.testing.assert_allclose(found.read(), sketch_of(VALUES[4:8].T, form=TURNED).values, rtol=1e-12)


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_part_of_a_sketch_with_values_that_are_not_finite_tells_nothing(lost: float) -> None:
    broken = VALUES.copy()
    broken[0, 0] = lost
    found = candidate(QKV[1], separate(turned), packed(in_thirds, broken))
    assert (found.detail, found.hash, found.shape) == ("summary", "", (4, 4))
    assert "summary" not in found.meta
    assert "sketch" not in found.meta
    whole = candidate(PACKED, packed(in_thirds), separate(turned, broken))
    assert stored_sketch(whole).nonfinite == "of parts"


def test_summary_among_the_parts_leaves_a_summary() -> None:
    def first_as_summary(one: Entry) -> Entry:
        if str(one.key) != QKV[0]:
            return turned(one)
        return replace(one, detail="summary", hash="", meta={"summary": summarise(one.array()), "note": "kept"})

    found = candidate(PACKED, packed(in_thirds), separate(first_as_summary))
    assert (found.detail, found.hash, found.shape) == ("summary", "", (12, 4))
    assert found.meta["summary"]["abs_max"] == np.abs(VALUES).max()
    assert found.meta["note"] == "kept"


def test_values_beside_sketches_are_sketched_like_them() -> None:
    def first_in_full(one: Entry) -> Entry:
        return one if str(one.key) == QKV[0] else turned(one)

    found = candidate(PACKED, packed(in_thirds), separate(first_in_full))
    np.testing.assert_allclose(found.read(), sketch_of(VALUES, form=SketchOrder(None, 3)).values, rtol=1e-12)


def test_sketches_of_another_seed_or_order_cannot_be_joined() -> None:
    def first_of_another_seed(one: Entry) -> Entry:
        return turned(one, made=Sketching(seed=int(str(one.key) == QKV[0])))

    found = candidate(PACKED, packed(in_thirds), separate(first_of_another_seed))
    with pytest.raises(RecordingError, match="another order of elements, or with another size or seed"):
        found.read()
    found = candidate(QKV[1], separate(turned), packed(sketched))
    with pytest.raises(RecordingError, match="another order"):
        found.read()
