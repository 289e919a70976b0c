"""Tables that a model only looks up, and modules whose tensors are compared under another name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprod_log.pairing.coverage import constants, covered_modules
from reprod_log.recording import Entry, ModuleInfo, Provenance, Recording, entry_of

TABLE = np.array([0.25, 0.5, 0.75])
BATCH_NORM = "torch.nn.modules.batchnorm.BatchNorm1d"


def module(path: str, origin: str = "mine.Block", **parameters: tuple[int, ...]) -> ModuleInfo:
    return ModuleInfo(path, origin.rpartition(".")[2], "", parameters, origin)


def found(*entries: Entry, modules: tuple[ModuleInfo, ...] = ()) -> frozenset[str]:
    return constants(Recording(entries, modules=modules))


def buffer(value: Any, path: str = "m.table", *, step: int = 0, run: str = "", **facts: Any) -> Entry:
    return replace(entry_of(f"{run}@step{step}/buffer/{path}" if run else f"step{step}/buffer/{path}", value), **facts)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_are_tables_even_in_layers_and_when_seen_once(dtype: str) -> None:
    assert found(buffer(np.ones(3, dtype)), modules=(module("m", BATCH_NORM),)) == {"m.table"}


def test_floating_buffer_is_a_table_when_it_is_seen_again_and_never_changes() -> None:
    assert found(buffer(TABLE), buffer(TABLE, step=1)) == {"m.table"}
    assert found(buffer(TABLE)) == frozenset()
    assert found(buffer(TABLE), buffer(TABLE + 1, step=1)) == frozenset()
    assert found(buffer(TABLE), buffer(TABLE, step=1), buffer(TABLE + 1, step=2)) == frozenset()
    assert found(buffer(TABLE), buffer(TABLE, "other"), buffer(TABLE, step=1)) == {"m.table"}


def test_buffer_of_a_known_layer_is_its_state_and_no_table() -> None:
    state = buffer(TABLE), buffer(TABLE, step=1)
    assert found(*state, modules=(module("m", BATCH_NORM),)) == frozenset()
    assert found(*state, modules=(module("n", BATCH_NORM), module("m"))) == {"m.table"}
    deep = buffer(TABLE, "a.b.table"), buffer(TABLE, "a.b.table", step=1)
    assert found(*deep, modules=(module("a.b", BATCH_NORM),)) == frozenset()
    assert found(*deep, modules=(module("a", BATCH_NORM),)) == {"a.b.table"}


def test_table_is_the_same_in_any_precision_of_the_run() -> None:
    assert found(buffer(TABLE.astype("float32")), buffer(TABLE, run="float64")) == {"m.table"}
    third = np.array([1 / 3])
    assert found(buffer(third.astype("float32")), buffer(third, run="float64")) == frozenset()
    # Other passes say nothing.
    assert found(buffer(TABLE), buffer(TABLE, run="isolated")) == frozenset()
    assert (
        found(buffer(TABLE), replace(buffer(TABLE), key=replace(buffer(TABLE).key, phase="parameter"))) == frozenset()
    )


def test_hashes_speak_within_one_run_and_values_between_two() -> None:
    one, other = buffer(TABLE, hash="a"), buffer(TABLE, step=1, hash="b")
    assert found(one, other) == frozenset()
    assert found(one, buffer(TABLE + 1, step=1, hash="a")) == {"m.table"}, "the values are not read again"
    assert found(one, replace(other, hash="")) == {"m.table"}
    assert found(one, buffer(TABLE, run="float64", hash="b")) == {"m.table"}
    assert found(one, buffer(TABLE + 1, run="float64", hash="a")) == frozenset()


def test_buffer_without_values_is_no_table() -> None:
    assert found(buffer(TABLE), buffer(TABLE, step=1, detail="summary")) == frozenset()


def test_module_is_covered_when_all_its_tensors_are_compared() -> None:
    modules = (module("a", weight=(1,), bias=(1,)), module("b"), module("", table=(2,)))
    recording = Recording((), modules=modules)
    assert covered_modules(recording, {"a.weight", "a.bias"}) == {"a"}
    assert covered_modules(recording, {"a.weight"}) == frozenset()
    assert covered_modules(recording, {"table"}) == {""}
    assert covered_modules(recording, set()) == frozenset()


def test_tied_tensor_is_covered_under_the_name_it_was_recorded_by() -> None:
    modules = (module("head", weight=(1,)),)
    tied = Recording(
        (), modules=modules, provenance=Provenance(extra={"tied_parameters": {"head.weight": "emb.weight"}})
    )
    assert covered_modules(tied, {"emb.weight"}) == {"head"}
    assert covered_modules(tied, {"head.weight"}) == frozenset()
    assert covered_modules(Recording((), modules=modules), {"emb.weight"}) == frozenset()
