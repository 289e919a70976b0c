"""What numbers prove about partners: tensors outside of layers, sketches in another layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairing.made import FIRST, PADDLE, TORCH, Model, attention, matched, packed_attention, partners
from reprod_log.errors import RecordingError
from reprod_log.recording import Entry, Recording, entry_of
from reprod_log.recording.sketch import Sketching, SketchOrder, sketch_of, stored_sketch
from reprod_log.recording.summary import summarise


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
