"""Views that bring activations of two layers into one layout: by their settings, or by their values row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprod_log.pairing import View, match
from reprod_log.recording import Entry, ModuleInfo, Recording, entry_of


def layer(kind: str, origin: str = "torch.nn.Layer", **settings: Any) -> ModuleInfo:
    return ModuleInfo("m", "Layer", kind, {}, origin, settings)


def entry(array: Any, role: str = "output") -> Entry:
    return entry_of(f"step0/forward/m#0:{role}", np.asarray(array))


def viewed(reference: Entry, candidate: Entry, ours: ModuleInfo | None, theirs: ModuleInfo | None) -> View | None:
    """The view of the pair of these two entries of one layer; None for a layer that its recording does not describe."""
    model = ModuleInfo("", "Net", "", {}, "mine.Net")
    sides = (
        Recording((one,), modules=(model, *([module] if module else [])))
        for one, module in ((reference, ours), (candidate, theirs))
    )
    (pair,) = match(*sides).pairs
    return pair.view


def axes(view: View | None) -> tuple[int, ...] | None:
    return None if view is None else view.axes


IMAGES = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
FIRST, LAST = layer("conv2d"), layer("conv2d", data_format="NHWC")


def test_channels_are_moved_to_where_the_reference_has_them() -> None:
    last = entry(np.moveaxis(IMAGES, 1, 3))
    found = viewed(entry(IMAGES), last, FIRST, LAST)
    assert found is not None
    assert (found.axes, str(found.reason)) == ((0, 3, 1, 2), "Layer keeps channels last")
    np.testing.assert_array_equal(found.of(last.array()), IMAGES)
    back = viewed(last, entry(IMAGES), LAST, FIRST)
    assert back is not None
    assert (back.axes, str(back.reason)) == ((0, 2, 3, 1), "Layer keeps channels first")
    np.testing.assert_array_equal(back.of(IMAGES), last.array())


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_channels_are_moved_in_any_number_of_dimensions(rank: int) -> None:
    array = np.random.default_rng(0).normal(size=range(2, 2 + rank))
    moved = np.moveaxis(array, 1, -1)
    found = viewed(entry(array), entry(moved), FIRST, layer("conv", data_format="NLC"))
    assert found is not None
    np.testing.assert_array_equal(found.of(moved), array)
    back = viewed(entry(moved), entry(array), layer("conv", data_format="NLC"), FIRST)
    assert back is not None
    np.testing.assert_array_equal(back.of(array), moved)


def test_layout_is_left_alone_when_settings_or_shapes_do_not_call_for_it() -> None:
    last = entry(9 * np.moveaxis(IMAGES, 1, 3))
    assert viewed(entry(IMAGES), last, FIRST, FIRST) is None
    assert viewed(entry(IMAGES), last, LAST, LAST) is None
    assert viewed(entry(IMAGES), entry(IMAGES), FIRST, LAST) is None, "the shape is as it should be"
    assert viewed(entry(IMAGES), last, None, LAST) is None
    assert viewed(entry(IMAGES), last, FIRST, None) is None
    assert viewed(entry(IMAGES[0]), last, FIRST, LAST) is None
    assert viewed(entry(np.ones((2, 3))), entry(9 * np.ones((3, 2))), FIRST, LAST) is None, "no channels to move"


SEQUENCE = np.random.default_rng(0).normal(size=(4, 2, 3))
TIME, BATCH = layer("lstm"), layer("lstm", "paddle.nn.LSTM")


@pytest.mark.parametrize("role", ["output", "output.0", "input.0"])
def test_time_and_batch_are_exchanged_for_the_sequence_itself(role: str) -> None:
    turned = SEQUENCE.transpose(1, 0, 2)
    found = viewed(entry(SEQUENCE, role), entry(turned, role), TIME, BATCH)
    assert found is not None
    assert (found.axes, str(found.reason)) == ((1, 0, 2), "Layer has batch first")
    back = viewed(entry(turned, role), entry(SEQUENCE, role), BATCH, TIME)
    assert back is not None
    assert (back.axes, str(back.reason)) == ((1, 0, 2), "Layer has time first")


def test_time_and_batch_stay_where_nothing_calls_for_it() -> None:
    turned = 9 * SEQUENCE.transpose(1, 0, 2)
    assert viewed(entry(SEQUENCE, "output.1"), entry(turned, "output.1"), TIME, BATCH) is None, "a state"
    assert viewed(entry(SEQUENCE), entry(turned), TIME, TIME) is None
    assert viewed(entry(SEQUENCE), entry(SEQUENCE), TIME, BATCH) is None
    conv = layer("conv1d")
    assert viewed(entry(SEQUENCE), entry(turned), conv, replace(conv, origin="paddle.nn.Conv1D")) is None
    flat = SEQUENCE[:, :, 0]
    assert viewed(entry(flat), entry(9 * flat.T), TIME, BATCH) is None
    deep = SEQUENCE[..., None]
    assert viewed(entry(deep), entry(9 * deep.transpose(1, 0, 2, 3)), TIME, BATCH) is None


LINEAR = layer("linear")


def rows(reference: Any, candidate: Any, ours: ModuleInfo | None = LINEAR, theirs: ModuleInfo | None = LINEAR) -> Any:
    one = reference if isinstance(reference, Entry) else entry(reference)
    other = candidate if isinstance(candidate, Entry) else entry(candidate)
    return viewed(one, other, ours, theirs)


def test_rows_along_other_axes_are_found_by_shape() -> None:
    turned = SEQUENCE.transpose(1, 0, 2)
    found = rows(SEQUENCE, turned)
    assert (found.axes, str(found.reason)) == ((1, 0, 2), "Layer works row by row, and the rows come along other axes")
    np.testing.assert_array_equal(found.of(turned), SEQUENCE)
    assert axes(rows(SEQUENCE, 9 * turned)) == (1, 0, 2), "one order has the shape: values are not asked"
    five = np.random.default_rng(0).normal(size=(2, 3, 4, 5, 6))
    assert axes(rows(five, five.transpose(3, 1, 0, 2, 4))) == (2, 1, 3, 0, 4)


def test_values_decide_among_orders_of_one_shape() -> None:
    square = np.random.default_rng(0).normal(size=(3, 3, 4))
    assert axes(rows(square, square.transpose(1, 0, 2))) == (1, 0, 2)
    assert rows(square, square) is None
    assert rows(square, -square) is None, "none agrees"
    assert rows(np.ones((3, 3, 4)), np.ones((3, 3, 4))) is None, "both agree"
    near = 1.00009 * square.transpose(1, 0, 2)
    assert axes(rows(square, near)) == (1, 0, 2)
    assert axes(rows(square, 1.00011 * square.transpose(1, 0, 2))) == (1, 0, 2), "it differs, and is closest so"
    sketched = replace(entry(square.transpose(1, 0, 2)), detail="summary")
    assert rows(square, sketched) is None, "two orders fit and nothing says which"
    assert rows(replace(entry(square), detail="summary"), square.transpose(1, 0, 2)) is None


def test_rows_stay_where_nothing_calls_for_another_order() -> None:
    turned = 9 * SEQUENCE.transpose(1, 0, 2)
    assert rows(SEQUENCE, SEQUENCE) is None
    assert rows(SEQUENCE, turned, None) is None
    assert rows(SEQUENCE, turned, LINEAR, None) is None
    assert rows(SEQUENCE, turned, LINEAR, layer("relu")) is None
    assert rows(SEQUENCE, turned, layer("conv2d"), layer("conv2d")) is None
    assert rows(SEQUENCE, 9 * SEQUENCE.transpose(0, 2, 1)) is None, "the last axis is the row"
    assert rows(SEQUENCE[0], 9 * SEQUENCE[0].T) is None
    six = np.random.default_rng(0).normal(size=(2, 3, 1, 1, 1, 4))
    assert rows(six, 9 * six.transpose(1, 0, 2, 3, 4, 5)) is None, "too many orders to try"
