"""Tables that a model only looks up, and modules whose tensors are compared under another name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairing.made import FIRST, PADDLE, Model, matched, unmatched
from reprod_log.recording import Entry, ModuleInfo, Provenance, Recording, entry_of

TABLE = np.array([0.25, 0.5, 0.75])
BATCH_NORM = "torch.nn.modules.batchnorm.BatchNorm1d"


def module(path: str, origin: str = "mine.Block", **parameters: tuple[int, ...]) -> ModuleInfo:
    return ModuleInfo(path, origin.rpartition(".")[2], "", parameters, origin)


def buffer(value: Any, path: str = "m.table", *, step: int = 0, run: str = "", **facts: Any) -> Entry:
    return replace(entry_of(f"{run}@step{step}/buffer/{path}" if run else f"step{step}/buffer/{path}", value), **facts)


def is_table(*entries: Entry, modules: tuple[ModuleInfo, ...] = (module("m"),)) -> bool:
    """Whether buffers that only one side has need no partner, on whichever side that is."""
    here, there = (Model(*origins).linear("fc", FIRST, np.ones((5, 4))).recording() for origins in ((), (PADDLE,)))
    here = Recording((*here.entries, *entries), modules=(*here.modules, *modules))
    keys = [str(entry.key) for entry in entries if entry.key.phase == "buffer"]
    answers = set()
    for pairing in (matched(here, there), matched(there, here)):
        in_reference, in_candidate, structural = unmatched(pairing)
        answers.add(set(keys) <= set(structural))
        assert {*in_reference, *in_candidate, *structural} >= {key for key in keys if "@" not in key}
    (answer,) = answers
    return answer


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_are_tables_even_in_layers_and_when_seen_once(dtype: str) -> None:
    assert is_table(buffer(np.ones(3, dtype)), modules=(module("m", BATCH_NORM),))


def test_floating_buffer_is_a_table_when_it_is_seen_again_and_never_changes() -> None:
    assert is_table(buffer(TABLE), buffer(TABLE, step=1))
    assert not is_table(buffer(TABLE))
    assert not is_table(buffer(TABLE), buffer(TABLE + 1, step=1))
    assert not is_table(buffer(TABLE), buffer(TABLE, step=1), buffer(TABLE + 1, step=2))
    assert not is_table(buffer(TABLE), buffer(TABLE, "other"), buffer(TABLE, step=1)), "the other was seen once"


def test_buffer_of_a_known_layer_is_its_state_and_no_table() -> None:
    state = buffer(TABLE), buffer(TABLE, step=1)
    assert not is_table(*state, modules=(module("m", BATCH_NORM),))
    assert is_table(*state, modules=(module("n", BATCH_NORM), module("m")))
    deep = buffer(TABLE, "a.b.table"), buffer(TABLE, "a.b.table", step=1)
    assert not is_table(*deep, modules=(module("a"), module("a.b", BATCH_NORM)))
    assert is_table(*deep, modules=(module("a", BATCH_NORM), module("a.b")))


def test_table_is_the_same_in_any_precision_of_the_run() -> None:
    assert is_table(buffer(TABLE.astype("float32")), buffer(TABLE, run="float64"))
    third = np.array([1 / 3])
    assert not is_table(buffer(third.astype("float32")), buffer(third, run="float64"))
    assert not is_table(buffer(TABLE), buffer(TABLE, run="isolated")), "other passes say nothing"
    assert not is_table(buffer(TABLE), entry_of("step1/parameter/m.table", TABLE)), "nor do parameters"


def test_hashes_speak_within_one_run_and_values_between_two() -> None:
    one, other = buffer(TABLE, hash="a"), buffer(TABLE, step=1, hash="b")
    assert not is_table(one, other)
    assert is_table(one, buffer(TABLE + 1, step=1, hash="a")), "the values are not read again"
    assert is_table(one, replace(other, hash=""))
    assert is_table(one, buffer(TABLE, run="float64", hash="b"))
    assert not is_table(one, buffer(TABLE + 1, run="float64", hash="a"))


def test_buffer_without_values_is_no_table() -> None:
    assert not is_table(buffer(TABLE), buffer(TABLE, step=1, detail="summary"))


def needs_no_partner(*, parameters: dict[str, tuple[int, ...]], tied: dict[str, str] | None = None) -> bool:
    """Whether what an own module gave needs none; the other side has only the linear layer `fc`."""
    ours, theirs = (Model(*origins).linear("fc", FIRST, np.ones((5, 4))) for origins in ((), (PADDLE,)))
    ours.module("head", "", parameters).entry("step0/forward/head#0:output", np.ones((5, 1)))
    here = ours.recording()
    here = replace(here, provenance=Provenance(extra={"tied_parameters": tied or {}}))
    answers = set()
    for sides in ((here, theirs.recording()), (theirs.recording(), here)):
        answers.add("step0/forward/head#0:output" in unmatched(matched(*sides))[2])
    (answer,) = answers
    return answer


def test_module_whose_tensors_are_compared_under_another_name_needs_no_partner() -> None:
    tied = {"head.weight": "fc.weight"}
    assert needs_no_partner(parameters={"weight": (4, 3)}, tied=tied)
    assert not needs_no_partner(parameters={"weight": (4, 3)})
    assert not needs_no_partner(parameters={"weight": (4, 3), "bias": (7,)}, tied=tied), "one of them is not"
    assert needs_no_partner(parameters={}), "it holds nothing"
