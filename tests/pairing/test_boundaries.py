"""Blocks cut elsewhere, on recordings made by hand: when a block may be left to the layers behind it, and when not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairing.made import PADDLE, TORCH, matched
from reprod_log.recording import Entry, ModuleInfo, Recording, entry_of

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
LAYERS = ("fc", "head", "other")
"""Linear layers, which find their partners by name; any other path is a block of the user's own, around one layer."""
ELSEWHERE = "note.pairing.cut_elsewhere"


def recording(
    arrays: Mapping[str, Any],
    origins: Mapping[str, str],
    *,
    types: Mapping[str, str] | None = None,
    sources: Mapping[str, str] | None = None,
) -> Recording:
    """Entries of the first step, by 'path:role', in the order of the run.

    `types` are classes of blocks, with where they come from; `sources` say from where an input was seen to come.
    """
    entries: list[Entry] = []
    modules = {"": ModuleInfo("", "Net", "", {}, "mine.Net")}
    for name, value in arrays.items():
        key = name if "@" in name or "step" in name else f"step0/forward/{name.replace(':', '#0:')}"
        entry = value if isinstance(value, Entry) else entry_of(key, np.asarray(value))
        path = entry.key.path
        if path not in modules:
            shape = (4, 3) if origins is TORCH else (3, 4)
            inner = path if path in LAYERS else f"{path}.inner"
            if inner != path:
                origin = (types or {}).get(path, origins[""])
                modules[path] = ModuleInfo(path, origin.rpartition(".")[2], "", {}, origin)
                entries.append(entry_of(f"step{entry.key.step}/forward/{inner}#0:output", np.ones((2, 4))))
            modules[inner] = ModuleInfo(inner, "Linear", "linear", {"weight": shape}, origins["linear"])
        entries.append(replace(entry, meta={"from": sources[name]} if name in (sources or {}) else {}))
    return Recording(tuple(entries), modules=tuple(modules.values()))


def summary_only(path: str, value: Any) -> Entry:
    return replace(entry_of(f"step0/forward/{path.replace(':', '#0:')}", np.asarray(value)), detail="summary", hash="")


def apart(ours: Mapping[str, Any], theirs: Mapping[str, Any], **facts: Any) -> set[str]:
    """The blocks that are not compared with the block of their name, which the pairing has to name."""
    return cut_elsewhere(recording(ours, TORCH, **facts), recording(theirs, PADDLE))


def cut_elsewhere(ours: Recording, theirs: Recording) -> set[str]:
    pairing = matched(ours, theirs)
    named = {name for note in pairing.notes if note.id == ELSEWHERE for name in note.arguments["layers"]}
    compared = {pair.reference.key.path for pair in pairing.pairs if pair.reference.key.role.startswith("output")}
    assert not named & compared
    return named


def test_block_that_gives_another_tensor_is_cut_elsewhere_when_the_next_layer_is_given_the_same() -> None:
    ours = {"block:output": X, "fc:input": 2 * X, "fc:output": X}
    theirs = {"block:output": 2 * X, "fc:input": 2 * X, "fc:output": X}
    assert apart(ours, theirs) == {"block"}
    assert apart(ours, {**theirs, "fc:input": 2.1 * X}) == set()
    # Close enough to be the same block with a defect in it, it must be compared.
    twenty = {**ours, "block:output": [20.0, 0.0]}
    assert apart(twenty, {**theirs, "block:output": [21.0, 0.0]}) == set()
    assert apart(twenty, {**theirs, "block:output": [21.1, 0.0]}) == {"block"}


def test_same_is_a_thousandth() -> None:
    ours = {"block:output": X, "fc:input": X, "fc:output": X}
    for factor, expected in ((1.0009, {"block"}), (1.0011, set())):
        theirs = {"block:output": 2 * X, "fc:input": factor * X, "fc:output": X}
        assert apart(ours, theirs) == expected


def test_outputs_speak_where_inputs_were_not_recorded() -> None:
    ours = {"block:output": X, "fc:output": X}
    theirs = {"block:output": 2 * X, "fc:output": X}
    assert apart(ours, theirs) == {"block"}
    assert apart(ours, {**theirs, "fc:output": 3 * X}) == set()
    assert apart({**ours, "fc:input": X}, theirs) == {"block"}
    assert apart({**ours, "fc:input": X}, {**theirs, "fc:input": 2 * X}) == set()


def test_next_layer_is_the_next_that_runs_and_has_a_partner_that_ran() -> None:
    ours = {"fc:output": X, "block:output": X, "other:output": 9 * X, "head:output": X}
    theirs = {"fc:output": 7 * X, "block:output": 2 * X, "head:output": X}
    assert apart(ours, theirs) == {"block"}, "fc runs before the block, other has no partner"
    assert apart(ours, {**theirs, "head:output": 2 * X}) == set()
    lacking = {name: value for name, value in theirs.items() if name != "head:output"}
    assert apart(ours, lacking) == set(), "the partner never ran: nothing lies behind"


def test_layer_inside_of_the_block_is_not_behind_it() -> None:
    ours = {"block:input": X, "fc:input": X, "fc:output": X, "block:output": X, "head:input": X, "head:output": X}
    theirs = {"block:input": X, "fc:input": X, "fc:output": X, "block:output": 2 * X, "head:input": 3 * X}
    assert apart(ours, {**theirs, "head:output": X}) == set()
    # One that was called before the block ended, and gave its output behind it, lies behind it.
    late = {"head:input": X, "block:output": X, "head:output": X}
    assert apart(late, {"head:input": X, "block:output": 2 * X, "head:output": X}) == {"block"}


def test_layer_that_gave_nothing_to_hold_it_against_says_nothing() -> None:
    ours = {"block:output": X, "fc:input": X, "fc:output": X}
    assert apart(ours, {"block:output": 2 * X, "fc:output": summary_only("fc:output", X)}) == set()
    known = replace(summary_only("fc:output", X), hash="equal")
    assert apart({"block:output": X, "fc:output": known}, {"block:output": 2 * X, "fc:output": known}) == {"block"}


def test_single_numbers_can_be_what_a_layer_was_given() -> None:
    ours = {"block:output": X, "fc:input": [[5.0]], "fc:output": X}
    theirs = {"block:output": 2 * X, "fc:input": [5.0], "fc:output": X}
    assert apart(ours, theirs) == {"block"}
    assert apart({**ours, "fc:input": [5.0]}, theirs) == {"block"}


def test_every_block_is_looked_at() -> None:
    ours = {"a:output": X, "c:output": X, "b:output": X, "fc:output": X}
    theirs = {"a:output": X, "b:output": 2 * X, "fc:output": X}
    assert apart(ours, theirs) == {"b"}


def test_layers_that_were_seen_to_take_what_the_block_gave_are_asked_all_of_them() -> None:
    ours = {"block:output": X, "head:input": X, "head:output": X, "fc:input": X, "fc:output": X}
    theirs = {"block:output": 2 * X, "head:input": X, "head:output": X, "fc:input": 3 * X, "fc:output": X}
    assert apart(ours, theirs) == {"block"}, "the next layer is given the same"
    taken = {"fc:input": "step0/forward/block#0:output", "head:input": "elsewhere"}
    assert apart(ours, theirs, sources=taken) == set()
    assert apart(ours, {**theirs, "fc:input": X}, sources=taken) == {"block"}
    both = dict.fromkeys(taken, "step0/forward/block#0:output")
    assert apart(ours, {**theirs, "fc:input": X}, sources=both) == {"block"}
    assert apart(ours, theirs, sources=both) == set()


def test_block_at_the_end_is_judged_by_what_the_models_gave() -> None:
    ours = {"fc:output": X, "block:output": X, ":output": 5 * X}
    theirs = {"fc:output": X, "block:output": 2 * X, ":output": 5 * X}
    assert apart(ours, theirs) == {"block"}
    assert apart(ours, {**theirs, ":output": 6 * X}) == set()
    for lacking in (ours, theirs):
        short = {name: value for name, value in lacking.items() if name != ":output"}
        assert apart(short if lacking is ours else ours, short if lacking is theirs else theirs) == set()


def test_model_itself_is_never_cut_elsewhere() -> None:
    assert apart({":output": X, "fc:output": X}, {":output": 2 * X, "fc:output": X}) == set()


def test_block_that_did_not_run_on_one_side_is_not_cut_elsewhere() -> None:
    ran, not_run = {"block:output": X, "fc:output": X}, {"block:input": X, "fc:output": X}
    assert apart(ran, not_run) == set()
    assert apart(not_run, ran) == set()


def test_outputs_of_other_sizes_need_no_proof_unless_the_block_is_a_layer() -> None:
    ours = {"block:output": X, "fc:output": X, ":output": X}
    theirs = {"block:output": X[:1], "fc:output": 9 * X, ":output": 9 * X}
    assert apart(ours, theirs) == {"block"}
    turned = {**theirs, "block:output": X.T.copy()}
    assert apart(ours, turned) == set(), "turned around it has the same size"
    layer = {"other:output": X, "fc:output": X, ":output": X}
    assert apart(layer, {"other:output": X[:1], "fc:output": 9 * X, ":output": 9 * X}) == set()


def test_nothing_given_proves_nothing() -> None:
    empty = np.zeros((0, 3))
    ours = {"block:output": X, "fc:input": empty, "fc:output": empty}
    theirs = {"block:output": 2 * X, "fc:input": empty, "fc:output": empty}
    assert apart(ours, theirs) == set()
    bare = {"block:output": 2 * X, "fc:input": np.zeros((3, 0)), "fc:output": empty}
    assert apart(ours, bare) == set()


def test_layer_that_keeps_its_axes_in_another_order_is_given_the_same_values() -> None:
    ours = {"block:output": X, "fc:input": X, "fc:output": X}
    theirs = {"block:output": 2 * X, "fc:input": X.T.copy(), "fc:output": X}
    assert apart(ours, theirs) == {"block"}
    assert apart(ours, {**theirs, "fc:input": 1.0009 * X.T}) == {"block"}
    assert apart(ours, {**theirs, "fc:input": 1.0011 * X.T}) == set()
    assert apart(ours, {**theirs, "fc:input": X[:1]}) == set()
    summary = {**theirs, "fc:input": summary_only("fc:input", X.T)}
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
    assert apart(ours, {"fc:output": X, "block:output": 2 * X}) == set()
    # A later call does not take the place of the first.
    ours = {"block:output": X, "fc:output": X, name: 9 * X}
    assert apart(ours, {"block:output": X, "fc:output": X, name: X}) == set()


def test_call_without_a_number_and_the_first_step_there_is_count() -> None:
    ours = {"step3/forward/block:output": X, "step3/forward/fc:output": X}
    theirs = {"step3/forward/block:output": 2 * X, "step3/forward/fc:output": X}
    assert apart(ours, theirs) == {"block"}


def test_first_of_several_outputs_and_inputs_counts() -> None:
    ours = {"block:output.0": X, "block:output.1": X, "fc:input.0": X, "fc:input.1": X, "fc:output": X}
    theirs = {"block:output.0": X, "block:output.1": 2 * X, "fc:input.0": X, "fc:input.1": X, "fc:output": X}
    assert apart(ours, theirs) == set()
    theirs |= {"block:output.0": 2 * X, "fc:input.1": 3 * X}
    assert apart(ours, theirs) == {"block"}


def classes(*, agreeing: bool = False, **origins: str) -> set[str]:
    """Two blocks of one class; what the first gives is shown to be cut elsewhere, what the second gives is not."""
    ours, theirs = ({"a": origins[side], "b": origins.get(f"{side}_b", origins[side])} for side in ("ours", "theirs"))
    here = {"a:output": X, "fc:output": X, "b:output": X, "head:output": X}
    there = {"a:output": 2 * X, "fc:output": X, "b:output": X if agreeing else 2 * X, "head:output": 3 * X}
    return cut_elsewhere(recording(here, TORCH, types=ours), recording(there, PADDLE, types=theirs))


def test_another_block_of_the_same_two_classes_is_cut_the_same_way() -> None:
    assert classes(ours="mine.Block", theirs="theirs.Part") == {"a", "b"}
    assert classes(ours="mine.Block", ours_b="mine.Other", theirs="theirs.Part") == {"a"}
    assert classes(ours="mine.Block", theirs="theirs.Part", theirs_b="theirs.X") == {"a"}
    # A framework's own layers are what they are called.
    assert classes(ours="torch.nn.Block", theirs="theirs.Part") == {"a"}
    assert classes(ours="mine.Block", theirs="paddle.nn.Part") == {"a"}


def test_block_of_the_same_classes_that_agrees_is_compared() -> None:
    assert classes(ours="mine.Block", theirs="theirs.Part", agreeing=True) == {"a"}
