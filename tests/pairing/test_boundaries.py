"""Blocks cut elsewhere, on recordings made by hand: when a block may be left to the layers behind it, and when not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprod_log.pairing.boundaries import cut_elsewhere
from reprod_log.recording import Entry, ModuleInfo, Recording, entry_of

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
KNOWN = {"fc": "linear", "head": "out"}
BLOCKS = {"block": "part"}


def recording(
    arrays: Mapping[str, Any], *, types: Mapping[str, str] | None = None, **meta: dict[str, Any]
) -> Recording:
    """Entries of the first step, by 'path:role'; `types` are classes of modules, with where they come from."""
    entries = []
    for name, value in arrays.items():
        key = name if "@" in name or "step" in name else f"step0/forward/{name.replace(':', '#0:')}"
        entry = value if isinstance(value, Entry) else entry_of(key, np.asarray(value))
        entries.append(replace(entry, meta=meta.get(name.replace(":", "_"), {})))
    modules = [ModuleInfo(path, origin.rpartition(".")[2], "", {}, origin) for path, origin in (types or {}).items()]
    return Recording(tuple(entries), modules=tuple(modules))


def summary_only(path: str, value: Any) -> Entry:
    return replace(entry_of(f"step0/forward/{path.replace(':', '#0:')}", np.asarray(value)), detail="summary", hash="")


def apart(ours: Mapping[str, Any], theirs: Mapping[str, Any], **known: Any) -> set[str]:
    return set(cut_elsewhere(recording(ours), recording(theirs), BLOCKS, known.pop("known", KNOWN), **known))


def test_block_that_gives_another_tensor_is_cut_elsewhere_when_the_next_layer_is_given_the_same() -> None:
    ours = {"block:output": X, "fc:input": 2 * X, "fc:output": X}
    theirs = {"part:output": 2 * X, "linear:input": 2 * X, "linear:output": X}
    assert apart(ours, theirs) == {"block"}
    assert apart(ours, {**theirs, "linear:input": 2.1 * X}) == set()
    # Close enough to be the same block with a defect in it, it must be compared.
    twenty = {**ours, "block:output": [20.0, 0.0]}
    assert apart(twenty, {**theirs, "part:output": [21.0, 0.0]}) == set()
    assert apart(twenty, {**theirs, "part:output": [21.1, 0.0]}) == {"block"}


def test_same_is_a_thousandth() -> None:
    ours = {"block:output": X, "fc:input": X, "fc:output": X}
    for factor, expected in ((1.0009, {"block"}), (1.0011, set())):
        theirs = {"part:output": 2 * X, "linear:input": factor * X, "linear:output": X}
        assert apart(ours, theirs) == expected


def test_outputs_speak_where_inputs_were_not_recorded() -> None:
    ours = {"block:output": X, "fc:output": X}
    theirs = {"part:output": 2 * X, "linear:output": X}
    assert apart(ours, theirs) == {"block"}
    assert apart(ours, {**theirs, "linear:output": 3 * X}) == set()
    assert apart({**ours, "fc:input": X}, theirs) == {"block"}
    assert apart({**ours, "fc:input": X}, {**theirs, "linear:input": 2 * X}) == set()


def test_next_layer_is_the_next_that_runs_and_has_a_partner_that_ran() -> None:
    ours = {"fc:output": X, "block:output": X, "other:output": 9 * X, "head:output": X}
    theirs = {"linear:output": 7 * X, "part:output": 2 * X, "other:output": X, "out:output": X}
    assert apart(ours, theirs) == {"block"}, "fc runs before the block, other has no partner"
    assert apart(ours, {**theirs, "out:output": 2 * X}) == set()
    lacking = {name: value for name, value in theirs.items() if name != "out:output"}
    assert apart(ours, lacking) == set(), "the partner never ran: nothing lies behind"


def test_layer_inside_of_the_block_is_not_behind_it() -> None:
    ours = {"block:input": X, "fc:input": X, "fc:output": X, "block:output": X, "head:input": X, "head:output": X}
    theirs = {"part:input": X, "linear:input": X, "linear:output": X, "part:output": 2 * X, "out:input": 3 * X}
    assert apart(ours, {**theirs, "out:output": X}) == set()
    # One that was called before the block ended, and gave its output behind it, lies behind it.
    late = {"head:input": X, "block:output": X, "head:output": X}
    assert apart(late, {"out:input": X, "part:output": 2 * X, "out:output": X}) == {"block"}


def test_layer_that_gave_nothing_to_hold_it_against_says_nothing() -> None:
    ours = {"block:output": X, "fc:input": X, "fc:output": X}
    assert apart(ours, {"part:output": 2 * X, "linear:output": summary_only("linear:output", X)}) == set()


def test_single_numbers_can_be_what_a_layer_was_given() -> None:
    ours = {"block:output": X, "fc:input": [[5.0]], "fc:output": X}
    theirs = {"part:output": 2 * X, "linear:input": [5.0], "linear:output": X}
    assert apart(ours, theirs) == {"block"}
    assert apart({**ours, "fc:input": [5.0]}, theirs) == {"block"}


def test_every_block_is_looked_at() -> None:
    ours = recording({"a:output": X, "c:output": X, "b:output": X, "fc:output": X})
    theirs = recording({"p:output": X, "q:output": 2 * X, "linear:output": X})
    assert cut_elsewhere(ours, theirs, {"a": "p", "c": "gone", "b": "q"}, KNOWN) == {"b"}
    assert cut_elsewhere(Recording(()), Recording(()), {"a": "p"}, KNOWN) == frozenset()


def test_layers_that_were_seen_to_take_what_the_block_gave_are_asked_all_of_them() -> None:
    ours = {"block:output": X, "head:input": X, "head:output": X, "fc:input": X, "fc:output": X}
    theirs = {"part:output": 2 * X, "out:input": X, "out:output": X, "linear:input": 3 * X, "linear:output": X}
    assert apart(ours, theirs) == {"block"}, "the next layer is given the same"
    seen = {"fc_input": {"from": "step0/forward/block#0:output"}, "head_input": {"from": "elsewhere"}}

    def with_takers(there: Mapping[str, Any], **meta: dict[str, Any]) -> set[str]:
        return set(cut_elsewhere(recording(ours, **meta), recording(there), BLOCKS, KNOWN))

    assert with_takers(theirs, **seen) == set()
    assert with_takers({**theirs, "linear:input": X}, **seen) == {"block"}
    both = {name: {"from": "step0/forward/block#0:output"} for name in seen}
    assert with_takers({**theirs, "linear:input": X}, **both) == {"block"}
    assert with_takers(theirs, **both) == set()


def test_block_at_the_end_is_judged_by_what_the_models_gave() -> None:
    ours = {"fc:output": X, "block:output": X, ":output": 5 * X}
    theirs = {"linear:output": X, "part:output": 2 * X, ":output": 5 * X}
    assert apart(ours, theirs) == {"block"}
    assert apart(ours, {**theirs, ":output": 6 * X}) == set()
    for lacking in (ours, theirs):
        short = {name: value for name, value in lacking.items() if name != ":output"}
        assert apart(short if lacking is ours else ours, short if lacking is theirs else theirs) == set()


def test_model_itself_and_blocks_that_did_not_run_are_never_cut_elsewhere() -> None:
    ours = {":output": X, "fc:output": X}
    theirs = {":output": 2 * X, "linear:output": X}
    assert cut_elsewhere(recording(ours), recording(theirs), {"": "", "gone": "gone"}, KNOWN) == frozenset()
    here, there = {"block:output": X, "fc:output": X}, {"linear:output": X}
    assert apart(here, there) == set()
    assert apart({"fc:output": X}, {"part:output": X, "linear:output": X}) == set()


def test_outputs_of_other_sizes_need_no_proof_unless_the_block_is_a_layer() -> None:
    ours = {"block:output": X, "fc:output": X, ":output": X}
    theirs = {"part:output": X[:1], "linear:output": 9 * X, ":output": 9 * X}
    assert apart(ours, theirs) == {"block"}
    assert apart(ours, theirs, layers=["block"]) == set()
    turned = {**theirs, "part:output": X.T.copy()}
    assert apart(ours, turned) == set(), "turned around it has the same size"


def test_nothing_given_proves_nothing() -> None:
    empty = np.zeros((0, 3))
    ours = {"block:output": X, "fc:input": empty, "fc:output": empty}
    theirs = {"part:output": 2 * X, "linear:input": empty, "linear:output": empty}
    assert apart(ours, theirs) == set()
    bare = {"part:output": 2 * X, "linear:input": np.zeros((3, 0)), "linear:output": empty}
    assert apart(ours, bare) == set()


def test_layer_that_keeps_its_axes_in_another_order_is_given_the_same_values() -> None:
    ours = {"block:output": X, "fc:input": X, "fc:output": X}
    theirs = {"part:output": 2 * X, "linear:input": X.T.copy(), "linear:output": X}
    assert apart(ours, theirs) == {"block"}
    assert apart(ours, {**theirs, "linear:input": 1.0009 * X.T}) == {"block"}
    assert apart(ours, {**theirs, "linear:input": 1.0011 * X.T}) == set()
    assert apart(ours, {**theirs, "linear:input": X[:1]}) == set()
    summary = {**theirs, "linear:input": summary_only("linear:input", X.T)}
    assert apart(ours, summary) == set(), "without values nothing is known"
    here = {**ours, "fc:input": summary_only("fc:input", X)}
    assert apart(here, theirs) == set()


@pytest.mark.parametrize(
    "name",
    ["step1/forward/block#0:output", "step0/forward/block#1:output", "step0/backward/block#0:output",
     "float64@step0/forward/block#0:output"],
)  # fmt: skip
def test_only_first_calls_of_the_first_step_of_the_plain_run_count(name: str) -> None:
    first = {"fc:output": X}
    ours = {**first, name: X}
    assert apart(ours, {"linear:output": X, "part:output": 2 * X}) == set()
    # A later call does not take the place of the first.
    ours = {"block:output": X, "fc:output": X, name: 9 * X}
    assert apart(ours, {"part:output": X, "linear:output": X, name.replace("block", "part"): X}) == set()


def test_call_without_a_number_and_the_first_step_there_is_count() -> None:
    ours = recording({"step3/forward/block:output": X, "step3/forward/fc:output": X})
    theirs = recording({"step3/forward/part:output": 2 * X, "step3/forward/linear:output": X})
    assert cut_elsewhere(ours, theirs, BLOCKS, KNOWN) == {"block"}


def test_first_of_several_outputs_and_inputs_counts() -> None:
    ours = {"block:output.0": X, "block:output.1": X, "fc:input.0": X, "fc:input.1": X, "fc:output": X}
    theirs = {"part:output.0": X, "part:output.1": 2 * X, "linear:input.0": X, "linear:input.1": X, "linear:output": X}
    assert apart(ours, theirs) == set()
    theirs |= {"part:output.0": 2 * X, "linear:input.1": 3 * X}
    assert apart(ours, theirs) == {"block"}


def classes(**origins: str) -> tuple[Recording, Recording, dict[str, str]]:
    """Two blocks of one class; what the first gives is shown to be cut elsewhere, what the second gives is not."""
    ours = recording(
        {"a:output": X, "fc:output": X, "b:output": X, "head:output": X},
        types={"a": origins["ours"], "b": origins.get("ours_b", origins["ours"]), "": "mine.Net"},
    )
    theirs = recording(
        {"p:output": 2 * X, "linear:output": X, "q:output": 2 * X, "out:output": 3 * X},
        types={"p": origins["theirs"], "q": origins.get("theirs_b", origins["theirs"]), "": "mine.Net"},
    )
    return ours, theirs, {"a": "p", "b": "q", "": ""}


def test_another_block_of_the_same_two_classes_is_cut_the_same_way() -> None:
    assert cut_elsewhere(*classes(ours="mine.Block", theirs="theirs.Part"), KNOWN) == {"a", "b"}
    assert cut_elsewhere(*classes(ours="mine.Block", ours_b="mine.Other", theirs="theirs.Part"), KNOWN) == {"a"}
    assert cut_elsewhere(*classes(ours="mine.Block", theirs="theirs.Part", theirs_b="theirs.X"), KNOWN) == {"a"}
    # A framework's own layers are what they are called.
    assert cut_elsewhere(*classes(ours="torch.nn.Block", theirs="theirs.Part"), KNOWN) == {"a"}
    assert cut_elsewhere(*classes(ours="mine.Block", theirs="paddle.nn.Part"), KNOWN) == {"a"}


def test_block_of_the_same_classes_that_agrees_is_compared() -> None:
    ours, theirs, blocks = classes(ours="mine.Block", theirs="theirs.Part")
    agreeing = [replace(one, read=lambda: X, hash="") if one.key.path == "q" else one for one in theirs.entries]
    assert cut_elsewhere(ours, Recording(tuple(agreeing), modules=theirs.modules), blocks, KNOWN) == {"a"}
