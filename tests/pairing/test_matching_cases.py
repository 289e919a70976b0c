"""Matching on models made by hand, without a framework: every way to a partner, and every reason to have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pairing.made import FIRST, PADDLE, SECOND, Model, modules, pair_of_models, partners, unmatched
from reprod_log.measure.comparison import measure
from reprod_log.messages import message
from reprod_log.pairing import View, match
from reprod_log.recording import Recording


def test_layers_of_equal_names_are_paired_and_weights_turned() -> None:
    ours, theirs = pair_of_models(("fc1", "fc2"))
    pairing = match(ours.recording(), theirs.recording())
    assert set(partners(pairing).values()) == {
        (str(pair.reference.key), "name", 1.0) for pair in pairing.pairs
    }  # fmt: skip
    assert len(pairing.pairs) == 6
    assert unmatched(pairing) == ([], [], [])
    assert pairing.notes == ()
    for pair in pairing.pairs:
        np.testing.assert_array_equal(pair.reference.array(), pair.candidate.array())
        turned = pair.reference.key.phase in ("gradient", "parameter")
        assert (pair.view is not None) == turned
        if turned:
            assert pair.view is not None
            assert str(pair.view.reason).startswith("Linear: ")
            assert pair.candidate.hash == ""


def test_layers_of_other_names_are_paired_by_their_weights() -> None:
    ours, theirs = pair_of_models(("x", "y"))
    found = partners(match(ours.recording(), theirs.recording()))
    assert found["step0/forward/fc1#0:output"] == ("step0/forward/x#0:output", "value", 1.0)
    assert found["step0/forward/fc2#0:output"] == ("step0/forward/y#0:output", "value", 1.0)


def test_layers_of_other_names_and_weights_are_paired_by_the_order_in_which_they_run() -> None:
    ours, _ = pair_of_models()
    theirs = Model(PADDLE).linear("x", FIRST + 7, np.ones((5, 4))).linear("y", SECOND + 7, np.ones((5, 2)))
    found = partners(match(ours.recording(), theirs.recording()))
    assert found["step0/forward/fc1#0:output"] == ("step0/forward/x#0:output", "order", 0.8)
    assert found["step0/forward/fc2#0:output"] == ("step0/forward/y#0:output", "order", 0.8)
    assert found["step0/gradient/fc1.weight:raw"] == ("step0/gradient/x.weight:raw", "structure", 0.9)
    assert found["step0/parameter/fc2.weight"] == ("step0/parameter/y.weight", "structure", 0.9)


def test_registration_order_does_not_matter() -> None:
    ours, _ = pair_of_models()
    theirs = Model(PADDLE).linear("y", SECOND).linear("x", FIRST)
    theirs.entry("step0/forward/x#0:output", np.ones((5, 4))).entry("step0/forward/y#0:output", np.ones((5, 2)))
    found = partners(match(ours.recording(), theirs.recording()))
    assert found["step0/forward/fc1#0:output"][0] == "step0/forward/x#0:output"
    assert found["step0/gradient/fc2.weight:raw"][0] == "step0/gradient/y.weight:raw"


def test_rename_map_goes_before_everything_else() -> None:
    same = np.ones((3, 3))
    ours = Model().linear("a", same, np.ones((2, 3))).linear("b", same, np.ones((2, 3)))
    theirs = Model(PADDLE).linear("a", same, np.ones((2, 3))).linear("b", same, np.ones((2, 3)))
    pairing = match(ours.recording(), theirs.recording(), rename={"a": "b", "b": "a"})
    found = partners(pairing)
    assert found["step0/forward/a#0:output"] == ("step0/forward/b#0:output", "rename", 1.0)
    assert found["step0/gradient/a.weight:raw"][0] == "step0/gradient/b.weight:raw"
    assert found["step0/gradient/b.weight:raw"][0] == "step0/gradient/a.weight:raw"
    assert all(pair.view is not None for pair in pairing.pairs if pair.reference.key.phase == "gradient")


def test_activations_between_layers_are_paired_by_kind_and_shape() -> None:
    ours, theirs = Model(), Model(PADDLE)
    ours.linear("fc1", FIRST, np.ones((5, 4))).simple("act", "relu", (5, 4)).linear("fc2", SECOND, np.ones((5, 2)))
    ours.simple("last", "relu", (5, 2))
    theirs.linear("x", FIRST, np.ones((5, 4))).simple("drop", "dropout", (5, 4)).simple("f", "relu", (5, 4))
    theirs.linear("y", SECOND, np.ones((5, 2))).simple("g", "relu", (5, 2))
    assert modules(ours, theirs) == {
        "fc1": ("x", "value"), "fc2": ("y", "value"), "act": ("f", "order"), "last": ("g", "order"),
    }  # fmt: skip
    pairing = match(ours.recording(), theirs.recording())
    assert unmatched(pairing) == ([], [], ["step0/forward/drop#0:output"])


@pytest.mark.parametrize(
    ("kind", "shape", "paired"),
    [
        ("relu", (5, 4), True),
        ("relu", (4, 5), True),
        ("relu", (5, 3), False),
        ("dropout", (5, 4), False),
        ("", (5, 4), False),
    ],
)
def test_activation_of_another_kind_or_shape_is_no_partner(kind: str, shape: tuple[int, ...], paired: bool) -> None:
    ours = Model().linear("fc", FIRST, np.ones((5, 4))).simple("act", "relu", (5, 4))
    theirs = Model(PADDLE).linear("fc", FIRST, np.ones((5, 4))).simple("f", kind, shape)
    assert modules(ours, theirs).get("act") == (("f", "order") if paired else None)


def test_activation_of_the_same_name_is_said_to_be_so() -> None:
    ours, theirs = Model(), Model(PADDLE)
    for model in (ours, theirs):
        model.linear("fc", FIRST, np.ones((5, 4))).simple("act", "relu", (5, 4))
    assert modules(ours, theirs)["act"] == ("act", "name")


def test_containers_belong_to_those_that_hold_the_same_layers() -> None:
    ours = Model().module("", "").module("body", "").linear("body.fc1", FIRST, np.ones((5, 4)))
    ours.linear("head", SECOND, np.ones((5, 2))).entry("step0/forward/body#0:output", np.ones((5, 4)))
    ours.entry("step0/forward/#0:output", np.ones((5, 2)))
    theirs = (
        Model(PADDLE)
        .module("", "")
        .module("net", "")
        .module("net.part", "")
        .linear("net.part.x", FIRST, np.ones((5, 4)))
    )
    theirs.linear("y", SECOND, np.ones((5, 2))).entry("step0/forward/net.part#0:output", np.ones((5, 4)))
    theirs.entry("step0/forward/net#0:output", np.ones((5, 4))).entry("step0/forward/#0:output", np.ones((5, 2)))
    assert modules(ours, theirs)[""] == ("", "name")
    found = partners(match(ours.recording(), theirs.recording()))
    assert found["step0/forward/body#0:output"][0] == "step0/forward/net#0:output"


def test_layers_without_a_partner_are_named_five_and_how_many_more() -> None:
    ours, theirs = pair_of_models()
    for number in range(7):
        ours.linear(f"extra{number}", np.ones((9, 10 + number)))
    theirs.linear("more", np.ones((30, 31)))
    pairing = match(ours.recording(), theirs.recording())
    assert tuple(map(str, pairing.notes)) == (
        "layers of the reference without a partner: extra0, extra1, extra2, extra3, extra4 and 2 more",
        "layers of the candidate without a partner: more",
    )
    only_here, only_there, _ = unmatched(pairing)
    assert "step0/parameter/extra0.weight" in only_here
    assert only_there == ["step0/gradient/more.weight:raw", "step0/parameter/more.weight"]


def test_five_layers_without_a_partner_are_all_named() -> None:
    ours, theirs = pair_of_models()
    for number in range(5):
        ours.linear(f"extra{number}", np.ones((9, 10 + number)))
    (note,) = match(ours.recording(), theirs.recording()).notes
    assert str(note).endswith("extra3, extra4")


def test_output_and_its_only_part_are_the_same() -> None:
    for ours_role, theirs_role in (("output", "output.0"), ("output.0", "output")):
        ours, theirs = Model(), Model(PADDLE)
        for model, role in ((ours, ours_role), (theirs, theirs_role)):
            model.linear("fc", FIRST).entry(f"step0/forward/fc#0:{role}", np.ones((5, 4)))
        found = partners(match(ours.recording(), theirs.recording()))
        assert found[f"step0/forward/fc#0:{ours_role}"][0] == f"step0/forward/fc#0:{theirs_role}"


def test_name_that_belongs_to_another_layer_there_is_not_taken() -> None:
    ours = Model().linear("x", FIRST, np.ones((5, 4))).simple("a", "dropout", (9, 9))
    theirs = Model(PADDLE).linear("a", FIRST, np.ones((5, 4)))
    found = partners(match(ours.recording(), theirs.recording()))
    assert found["step0/forward/x#0:output"][0] == "step0/forward/a#0:output"
    assert "step0/forward/a#0:output" not in found


def test_module_without_parameters_that_one_side_lacks_is_structural() -> None:
    ours = Model().linear("fc", FIRST, np.ones((5, 4))).simple("act", "relu", (5, 4))
    theirs = Model(PADDLE).linear("fc", FIRST, np.ones((5, 4)))
    assert unmatched(match(ours.recording(), theirs.recording())) == ([], [], ["step0/forward/act#0:output"])
    assert unmatched(match(theirs.recording(), ours.recording())) == ([], [], ["step0/forward/act#0:output"])
    # With parameters it is missing, and without a description of the models nothing is known.
    ours.linear("more", np.ones((9, 7)), np.ones((5, 9)))
    assert "step0/forward/more#0:output" in unmatched(match(ours.recording(), theirs.recording()))[0]
    bare = Recording(theirs.recording().entries)
    assert "step0/forward/act#0:output" in unmatched(match(ours.recording(), bare))[0]


@pytest.mark.parametrize(
    ("dtype", "structural"), [(np.int64, True), (np.uint8, True), (np.bool_, True), (np.float32, False)]
)
def test_counters_and_position_ids_are_bookkeeping(dtype: Any, structural: bool) -> None:
    for turned in (False, True):
        ours = Model().linear("fc", FIRST, np.ones((5, 4))).module("pos", "", {"ids": (4,)})
        ours.entry("step0/buffer/pos.ids", np.ones(4, dtype)).entry("step0/forward/pos#0:output", np.ones((5, 1)))
        theirs = Model(PADDLE).linear("fc", FIRST, np.ones((5, 4)))
        sides = (theirs, ours) if turned else (ours, theirs)
        pairing = match(*(side.recording() for side in sides))
        kept = unmatched(pairing)[2]
        assert ("step0/buffer/pos.ids" in kept) == structural
        assert ("step0/forward/pos#0:output" in kept) == structural
        assert bool(pairing.notes) != structural


def test_gradient_of_zeros_that_one_side_does_not_give_is_structural() -> None:
    ours = Recording.from_arrays({"step0/gradient/w:raw": np.zeros(3), "step0/gradient/v:raw": np.ones(3)})
    empty = Recording.from_arrays({"step0/loss/loss": np.ones(())})
    assert unmatched(match(ours, empty)) == (["step0/gradient/v:raw"], ["step0/loss/loss"], ["step0/gradient/w:raw"])
    assert unmatched(match(empty, ours))[2] == ["step0/gradient/w:raw"]
    assert unmatched(match(Recording.from_arrays({"step0/parameter/w": np.zeros(3)}), empty))[2] == []
    assert unmatched(match(Recording.from_arrays({"step0/backward/fc#0:output": np.zeros(3)}), empty))[2] != []


def test_second_group_with_the_same_rate_is_structural() -> None:
    one = Recording.from_arrays({"step0/lr/adam:group0": np.array(0.1)})
    for rate, structural in ((0.1, True), (0.2, False)):
        two = Recording.from_arrays({"step0/lr/adam:group0": np.array(0.1), "step0/lr/adam:group1": np.array(rate)})
        for sides in ((one, two), (two, one)):
            kept = unmatched(match(*sides))[2]
            assert (kept == ["step0/lr/adam:group1"]) == structural
    alone = Recording.from_arrays({"step0/lr/adam:group1": np.array(0.1), "x": np.ones(1)})
    assert unmatched(match(alone, Recording.from_arrays({"x": np.ones(1)})))[0] == ["step0/lr/adam:group1"]


def test_inputs_losses_and_rates_of_other_names_are_paired_by_place() -> None:
    ours = {"step0/data/image": np.ones((2, 3)), "step0/data/label": np.ones(2), "step0/loss/loss": np.ones(())}
    theirs = {"step0/data/x": np.ones((2, 3)), "step0/data/y": np.ones(2), "step0/loss/cost": np.ones((1,))}
    found = partners(match(Recording.from_arrays(ours), Recording.from_arrays(theirs)))
    assert found == {
        "step0/data/image": ("step0/data/x", "order", 0.8),
        "step0/data/label": ("step0/data/y", "order", 0.8),
        "step0/loss/loss": ("step0/loss/cost", "order", 0.8),
    }
    other_shape = {**theirs, "step0/data/x": np.ones((2, 4))}
    found = partners(match(Recording.from_arrays(ours), Recording.from_arrays(other_shape)))
    assert set(found) == {"step0/data/label", "step0/loss/loss"}
    one_more = {**theirs, "step0/data/z": np.ones(1)}
    assert set(partners(match(Recording.from_arrays(ours), Recording.from_arrays(one_more)))) == {"step0/loss/loss"}
    other_step = {key.replace("step0", "step1"): value for key, value in theirs.items()}
    assert partners(match(Recording.from_arrays(ours), Recording.from_arrays(other_step))) == {}
    metric = match(
        Recording.from_arrays({"step0/metric/acc": np.ones(1)}),
        Recording.from_arrays({"step0/metric/top1": np.ones(1)}),
    )
    assert metric.pairs == ()


def test_place_is_counted_within_one_pass() -> None:
    ours = Recording.from_arrays({"step0/loss/a": np.ones(()), "float64@step0/loss/a": np.zeros(())})
    theirs = Recording.from_arrays({"float64@step0/loss/b": np.zeros(()), "step0/loss/b": np.ones(())})
    assert {pair[0] for pair in partners(match(ours, theirs)).values()} == {"step0/loss/b", "float64@step0/loss/b"}
    assert partners(match(ours, theirs))["step0/loss/a"][0] == "step0/loss/b"


@pytest.mark.parametrize(("ours", "theirs"), [((), (1,)), ((1,), ())])
def test_single_numbers_are_compared_in_either_shape(ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    pairing = match(Recording.from_arrays({"x": np.ones(ours)}), Recording.from_arrays({"x": np.ones(theirs)}))
    assert pairing.pairs[0].view == View(message("view.one_number"), shape=ours)
    assert pairing.pairs[0].view.of(np.ones(theirs)).shape == ours
    for other in ((2,), (1, 1)):
        assert (
            match(Recording.from_arrays({"x": np.ones(ours)}), Recording.from_arrays({"x": np.ones(other)}))
            .pairs[0]
            .view
            is None
        )


def test_passes_that_the_candidate_lacks_are_noted_and_no_failure() -> None:
    runs = ("", "float64", "isolated", "isolated.float64", "repeat")
    ours = Recording.from_arrays({f"{run}@step0/loss/l" if run else "step0/loss/l": np.ones(1) for run in runs})
    pairing = match(ours, Recording.from_arrays({"step0/loss/l": np.ones(1)}))
    assert tuple(map(str, pairing.notes)) == (
        "the candidate has no float64 pass", "the candidate has no isolated pass",
        "the candidate has no isolated.float64 pass",
    )  # fmt: skip
    assert unmatched(pairing) == ([], [], [])
    assert unmatched(match(Recording.from_arrays({"step0/loss/l": np.ones(1)}), ours)) == ([], [], [])


def test_projections_of_one_input_are_settled_by_their_values() -> None:
    square = np.ones((3, 3))
    values = {name: np.random.default_rng(place).normal(size=(2, 3)) for place, name in enumerate("pqr")}
    ours, theirs = Model(), Model(PADDLE)
    for name in "pqr":
        ours.linear(f"one{name}", square, values[name])
        ours.entry(f"step0/forward/one{name}#0:input.0", np.ones((2, 3)), hash="same")
    for place, name in enumerate("rpq"):
        theirs.linear(f"other{place}", square, values[name] * 1.00005)
    found = partners(match(ours.recording(), theirs.recording()))
    assert {key: value[:2] for key, value in found.items() if key.endswith("#0:output")} == {
        "step0/forward/onep#0:output": ("step0/forward/other1#0:output", "value"),
        "step0/forward/oneq#0:output": ("step0/forward/other2#0:output", "value"),
        "step0/forward/oner#0:output": ("step0/forward/other0#0:output", "value"),
    }


def test_projections_are_settled_by_their_roles_before_their_values() -> None:
    square = np.ones((3, 3))
    ours, theirs = Model(), Model(PADDLE)
    for name in ("query", "key", "value"):
        ours.linear(f"att.{name}", square, np.ones((2, 3)))
        ours.entry(f"step0/forward/att.{name}#0:input.0", np.ones((2, 3)), hash="same")
    for name in ("v_proj", "q_proj", "k_proj"):
        theirs.linear(f"self.{name}", square, np.ones((2, 3)))
    found = partners(match(ours.recording(), theirs.recording()))
    for name, other in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        assert found[f"step0/forward/att.{name}#0:output"][0] == f"step0/forward/self.{other}#0:output"


@pytest.mark.parametrize(("factor", "paired"), [(1.0, True), (1.04, True), (1.06, False)])
def test_tensor_outside_of_layers_is_paired_when_its_values_agree(factor: float, paired: bool) -> None:
    table = np.arange(1.0, 7.0).reshape(2, 3)
    ours = Model().module("", "", {"pos": (2, 3)}).linear("fc", FIRST, np.ones((5, 4)))
    theirs = Model(PADDLE).module("", "", {"table": (2, 3)}).linear("fc", FIRST, np.ones((5, 4)))
    ours.entry("step0/parameter/pos", table)
    theirs.entry("step0/parameter/table", table * factor)
    found = partners(match(ours.recording(), theirs.recording()))
    assert ("step0/parameter/pos" in found) == paired


@pytest.mark.parametrize(("ours_format", "theirs_format"), [("NCHW", "NHWC"), ("NHWC", "NCHW"), ("NCHW", "NCHW")])
def test_channels_last_is_turned_because_the_layer_says_so(ours_format: str, theirs_format: str) -> None:
    image = np.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    ours, theirs = Model(), Model(PADDLE)
    for model, layout in ((ours, ours_format), (theirs, theirs_format)):
        shown = image if layout == "NCHW" else image.transpose(0, 2, 3, 1)
        model.module("conv", "conv2d", {"weight": (3, 3, 1, 1)}, data_format=layout)
        model.entry("step0/parameter/conv.weight", np.ones((3, 3, 1, 1))).entry("step0/forward/conv#0:output", shown)
    pair = next(
        one for one in match(ours.recording(), theirs.recording()).pairs if one.reference.key.phase == "forward"
    )
    if ours_format == theirs_format:
        assert pair.view is None
        return
    assert pair.view is not None
    where = "last" if theirs_format == "NHWC" else "first"
    assert str(pair.view.reason) == f"Conv2D keeps channels {where}"
    np.testing.assert_array_equal(pair.view.of(pair.candidate.array()), pair.reference.array())


@pytest.mark.parametrize(("ours_first", "time_major"), [(True, True), (False, False), (True, False)])
def test_time_and_batch_are_exchanged_because_the_layer_says_so(ours_first: bool, time_major: bool) -> None:
    sequence = np.arange(2 * 5 * 3.0).reshape(2, 5, 3)
    ours, theirs = Model(), Model(PADDLE)
    ours.module("rnn", "lstm", batch_first=ours_first)
    theirs.module("rnn", "lstm", time_major=time_major)
    for model, batch in ((ours, ours_first), (theirs, not time_major)):
        shown = sequence if batch else sequence.transpose(1, 0, 2)
        model.entry("step0/forward/rnn#0:output.0", shown).entry("step0/forward/rnn#0:output.1", np.ones((1, 2, 3)))
    first, second = match(ours.recording(), theirs.recording()).pairs
    assert second.view is None
    if ours_first == (not time_major):
        assert first.view is None
        return
    assert first.view is not None
    assert str(first.view.reason) == f"LSTM has {'time' if time_major else 'batch'} first"
    np.testing.assert_array_equal(first.view.of(first.candidate.array()), first.reference.array())


def test_optimizer_powers_without_a_layout_are_paired() -> None:
    ours, theirs = pair_of_models(("fc1", "fc2"))
    ours.entry("step0/optimizer/fc1.weight:beta1_pow", np.ones(()))
    theirs.entry("step0/optimizer/fc1.weight:beta1_pow", np.ones((1,)))
    ours.entry("step0/optimizer/fc2.weight:exp_avg", SECOND)
    theirs.entry("step0/optimizer/fc2.weight:exp_avg", SECOND.T)
    found = {str(pair.reference.key): pair for pair in match(ours.recording(), theirs.recording()).pairs}
    power = found["step0/optimizer/fc1.weight:beta1_pow"]
    assert power.candidate.shape in ((), (1,))
    moment = found["step0/optimizer/fc2.weight:exp_avg"]
    np.testing.assert_array_equal(moment.candidate.array(), SECOND)


def test_layer_that_the_other_side_runs_elsewhere_stops_no_others() -> None:
    third = np.arange(10.0).reshape(5, 2)
    ours = Model().linear("a", FIRST, np.ones((5, 4))).simple("f", "relu", (5, 4)).linear("b", SECOND, np.ones((5, 2)))
    ours.linear("c", third, np.ones((5, 5))).simple("g", "relu", (5, 5))
    theirs = Model(PADDLE).linear("b", SECOND, np.ones((5, 2))).linear("a", FIRST, np.ones((5, 4)))
    theirs.simple("h", "relu", (5, 4)).linear("c", third, np.ones((5, 5))).simple("i", "relu", (5, 5))
    found = modules(ours, theirs)
    assert found["g"] == ("i", "order")
    assert found["a"] == ("a", "name")


def test_number_that_the_other_side_keeps_for_every_element_is_incomparable() -> None:
    ours = Model().linear("fc", FIRST, np.ones((5, 4))).entry("step0/optimizer/fc.weight:mu", np.float32(0.9))
    theirs = Model(PADDLE).linear("fc", FIRST, np.ones((5, 4))).entry("step0/optimizer/fc.weight:mu", np.ones((3, 4)))
    (row,) = [one for one in measure(match(ours.recording(), theirs.recording())).rows if one.key.role == "mu"]
    assert "shapes differ" in str(row.incomparable)
