"""The table of layer kinds held against the installed frameworks, and that every recipe of it can be undone."""

from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprod_log.layers.kinds import KINDS
from reprod_log.layers.lookup import PACKAGES, column_of, find_layer, kind_of, layer_kind, register
from reprod_log.layers.rows import Column, LayerKind, Setting, same
from reprod_log.layers.settings import converted, setting_differences
from reprod_log.layers.transform import Transform
from reprod_log.recording import ModuleInfo

ELSEWHERE = {"ColumnParallelLinear", "RowParallelLinear", "VocabParallelEmbedding"}
OTHER_VERSIONS = {"RMSNorm", "EmbeddingBag", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"}
"""Names that other versions of paddle have than the one that the tests run with."""
COLUMNS = [(row, family) for row in KINDS for family in row.columns]


def test_no_class_and_no_kind_has_two_rows() -> None:
    claimed = [(family, name) for row in KINDS for family, column in row.columns.items() for name in column.classes]
    assert len(claimed) == len(set(claimed))
    assert len({row.kind for row in KINDS}) == len(KINDS)


def test_every_class_of_the_table_exists() -> None:
    missing = {
        (family, name)
        for row, family in COLUMNS
        for name in row.columns[family].classes
        if not hasattr(import_module(PACKAGES[family]), name) and name not in ELSEWHERE
    }
    assert {name for _, name in missing} <= OTHER_VERSIONS, missing
    assert {family for family, _ in missing} <= {"paddle"}
    fleet = import_module("paddle.distributed.fleet.layers.mpu.mp_layers")
    assert all(hasattr(fleet, name) for name in ELSEWHERE)


def test_kinds_of_one_framework_alone_are_few() -> None:
    alone = {row.kind: next(iter(row.columns)) for row in KINDS if len(row.columns) == 1}
    assert alone == {
        "dropout1d": "torch",
        "threshold": "torch",
        "spectral_norm": "paddle",
        "thresholded_relu": "paddle",
    }


@pytest.mark.parametrize("row", [row for row in KINDS if len(row.columns) > 1], ids=lambda row: row.kind)
def test_columns_of_a_row_share_their_canonical_tensors(row: LayerKind) -> None:
    per_family = [{part for map_ in column.tensors for part in map_.canonical} for column in row.columns.values()]
    # Each family may lack some (paddle's attention has no bias_k), but none may have a word of its own.
    assert per_family[0] | {"weight_hr"} >= set().union(*per_family)


def info(family: str, row: LayerKind, **settings: Any) -> ModuleInfo:
    name = row.columns[family].classes[0]
    return ModuleInfo("layer", name, row.kind, origin=f"{PACKAGES[family]}.{name}", settings=settings)


def native(family: str, row: LayerKind, word: str, value: Any) -> dict[str, Any]:
    setting = row.columns[family].settings.get(word, Setting(word))
    return {setting.native: converted(value, setting.convert)}


@pytest.mark.parametrize(
    "row",
    [row for row in KINDS if row.compared and {"torch", "paddle"} <= row.columns.keys()],
    ids=lambda row: row.kind,
)
def test_compared_setting_that_differs_is_named_in_the_words_of_the_candidate(row: LayerKind) -> None:
    for (here, there), word in product((("torch", "paddle"), ("paddle", "torch")), row.compared):
        one, other = (True, False) if word in ("approximate", "count_include_pad", "ceil_mode") else (0.25, 0.5)
        ours = info(here, row, **native(here, row, word, one))
        theirs = info(there, row, **native(there, row, word, other))
        (found,) = setting_differences(ours, theirs)
        assert (found.name, found.ours, found.theirs) == (word, one, other)
        assert {found.native: found.right} == native(there, row, word, one)
        assert setting_differences(ours, info(there, row, **native(there, row, word, one))) == []


@pytest.mark.parametrize("row", [row for row in KINDS if row.absent], ids=lambda row: row.kind)
def test_setting_that_a_layer_lacks_has_its_meaning(row: LayerKind) -> None:
    family = next(iter(row.columns))
    for word, meaning in row.absent.items():
        assert setting_differences(info(family, row, **{word: meaning}), info(family, row)) == []
        (found,) = setting_differences(info(family, row, **{word: "another"}), info(family, row))
        assert (found.name, found.theirs, found.has) == (word, meaning, None)


def test_layer_of_one_s_own_compares_what_any_row_compares() -> None:
    ours = ModuleInfo("own", "Mine", origin="models.Mine", settings={"epsilon": 1e-5, "alpha": 1.0, "width": 3})
    theirs = ModuleInfo("own", "Mine", origin="models.Mine", settings={"eps": 1e-6, "alpha": 2.0, "width": 4})
    assert [one.name for one in setting_differences(ours, theirs)] == ["alpha", "eps"]


def test_framework_from_outside_brings_its_columns() -> None:
    assert kind_of(["toy.layers.Dense"], "toy") == ""
    register("toy", {"linear": Column(("Dense",), same("weight", "bias")), "maxout": Column(("Maxout",))})
    assert kind_of(["mine.Wide", "toy.layers.Dense"], "toy") == "linear"
    assert kind_of(["toy.layers.Maxout"], "toy") == "maxout"
    row, column = find_layer("toy.layers.Dense") or (None, None)
    assert row is layer_kind("linear")
    assert column is column_of(ModuleInfo("fc", "Dense", "linear", origin="toy.layers.Dense"))
    assert find_layer("toy.layers.Maxout") is None
    assert kind_of(["torch.nn.modules.linear.Linear"], "torch") == "linear"


@given(st.data())
def test_transform_is_undone_by_its_inverse(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = data.draw(st.one_of(st.none(), st.permutations(range(len(shape))).map(tuple)))
    transform = Transform(axes, data.draw(st.booleans()), data.draw(st.sampled_from([1, 2, 3])))
    array = np.arange(np.prod(shape)).reshape(shape)
    if not transform.fits(shape):
        return
    parts = transform.split(array)
    assert {part.shape for part in parts} == {transform.part_shape(shape)}
    np.testing.assert_array_equal(transform.join(parts, shape), array)
