"""Entries that follow their layers: arguments, calls in another order, rows along other axes, one's own outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairing.made import FIRST, PADDLE, SECOND, Model, matched, pair_of_models, partners, unmatched

A, B = np.arange(1.0, 7).reshape(2, 3), np.arange(11.0, 17).reshape(2, 3)


def forward(ours: Model, theirs: Model) -> dict[str, str]:
    """Partners of what modules took and gave, by 'path#call:role'."""
    found = partners(matched(ours, theirs))
    short = {one.partition("/forward/")[2]: other[0].partition("/forward/")[2] for one, other in found.items()}
    return {one: other for one, other in short.items() if one}


def layers(names: tuple[str, str], *inputs: dict[str, Any]) -> Model:
    """Two linear layers; each was given these arguments (role to array) at its first call."""
    model = Model() if names[0] == "fc1" else Model(PADDLE)
    for name, weight, given in zip(names, (FIRST, SECOND), inputs, strict=True):
        for role, array in given.items():
            model.entry(f"step0/forward/{name}#0:{role}", array)
        model.linear(name, weight, np.random.default_rng(0).normal(size=(5, weight.shape[0])))
    return model


def test_arguments_of_layers_that_agree_need_no_partner() -> None:
    ours = layers(("fc1", "fc2"), {"input.0": A}, {"input.0": B})
    theirs = layers(("x", "y"), {"input.0": 9 * A}, {"input": 9 * B})
    pairing = matched(ours, theirs)
    found = partners(pairing)
    assert "step0/forward/fc1#0:input.0" not in found, "what both give agrees, so what they take is formulation"
    assert unmatched(pairing)[:2] == ([], [])


def test_arguments_of_known_layers_under_other_names_are_paired_by_value() -> None:
    ours = layers(("fc1", "fc2"), {"input.x": A}, {"input.x": B})
    theirs = layers(("x", "y"), {"input.a": A}, {"input.a": 9 * B})
    pairing = matched(ours, theirs)
    assert partners(pairing)["step0/forward/fc1#0:input.x"] == ("step0/forward/x#0:input.a", "value", 1.0)
    # Nothing is lost by it: every argument is another layer's output or data.
    assert unmatched(pairing) == ([], [], ["step0/forward/fc2#0:input.x", "step0/forward/y#0:input.a"])


def own(model: Model, path: str, outputs: dict[str, Any], *, call: int = 0, step: int = 0, **given: Any) -> Model:
    """A module of the user's own around one linear layer, with its arguments and outputs."""
    if call == step == 0:
        model.module(path, "")
    for role, array in given.items():
        model.entry(f"step{step}/forward/{path}#{call}:input.{role}", array)
    if call == step == 0:
        model.linear(f"{path}.fc", FIRST, np.ones((5, 4)))
    for role, array in outputs.items():
        model.entry(f"step{step}/forward/{path}#{call}:{role}", array)
    return model


def test_arguments_of_own_modules_are_found_by_value_and_taken_once() -> None:
    out = {"output": np.ones((5, 4))}
    ours = own(Model(), "block", out, x=A, mask=B, extra=A)
    theirs = own(Model(PADDLE), "part", out, hidden=B, h=A)
    found = forward(ours, theirs)
    assert found["block#0:input.x"] == "part#0:input.h"
    assert found["block#0:input.mask"] == "part#0:input.hidden"
    assert "block#0:input.extra" not in found, "its only partner is taken"
    assert unmatched(matched(ours, theirs)) == ([], [], ["step0/forward/block#0:input.extra"])


def test_arguments_go_where_their_values_are() -> None:
    out = {"output": np.ones((5, 4))}
    ours = own(own(Model(), "block", out, x=A), "block", out, call=1, x=B)
    theirs = own(own(Model(PADDLE), "part", out, y=B), "part", out, call=1, y=A)
    found = forward(ours, theirs)
    assert (found["block#0:input.x"], found["block#1:input.x"]) == ("part#1:input.y", "part#0:input.y")
    again = own(own(Model(PADDLE), "part", out, y=A), "part", out, call=1, y=B)
    assert forward(ours, again)["block#1:input.x"] == "part#1:input.y"


def test_further_output_of_an_inner_module_is_its_author_s_own() -> None:
    ours = own(Model().module("", ""), "block", {"output.0": np.ones((5, 4)), "output.1": A})
    theirs = own(Model(PADDLE).module("", ""), "block", {"output.0": np.ones((5, 4))})
    assert unmatched(matched(ours, theirs)) == ([], [], ["step0/forward/block#0:output.1"])
    assert unmatched(matched(theirs, ours)) == ([], [], ["step0/forward/block#0:output.1"])
    deep = own(Model().module("", "").module("a", ""), "a.block", {"output.0": np.ones((5, 4)), "output.1": A})
    plain = own(Model(PADDLE).module("", "").module("a", ""), "a.block", {"output.0": np.ones((5, 4))})
    assert unmatched(matched(deep, plain))[2] == ["step0/forward/a.block#0:output.1"]


def test_further_output_without_an_answered_call_or_of_the_model_itself_is_missing() -> None:
    whole = {"output.0": np.ones((5, 4)), "output.1": A}
    ours = Model().module("", "").linear("fc", FIRST, np.ones((5, 4)))
    theirs = Model(PADDLE).module("", "").linear("fc", FIRST, np.ones((5, 4)))
    for role, array in whole.items():
        ours.entry(f"step0/forward/#0:{role}", array)
    theirs.entry("step0/forward/#0:output.0", np.ones((5, 4)))
    assert unmatched(matched(ours, theirs)) == (["step0/forward/#0:output.1"], [], [])
    twice, once = called("a", None, C, D), called("b", PADDLE, 9 * C, last=7.0)
    assert unmatched(matched(twice, once))[0] == ["step0/forward/a#1:output"], "its partner was not called again"
    # Outside of any module that was described, nothing is known about it.
    ours, theirs = pair_of_models(("fc1", "fc2"))
    ours.entry("step0/forward/fc1#0:output.1", A)
    assert unmatched(matched(ours, theirs))[0] == ["step0/forward/fc1#0:output.1"]


def test_gradient_of_an_output_is_its_author_s_own_only_when_the_output_is() -> None:
    shared, packed = np.ones((5, 4)), {"output.0.data": A, "output.1": np.ones((5, 4))}
    ours = own(Model().module("", ""), "block", packed).entry("step0/backward/block#0:output.0.data", B)
    theirs = own(Model(PADDLE).module("", ""), "block", {"output.0": B, "output.1": shared})
    theirs.entry("step0/backward/block#0:output.0", 2 * A)
    assert unmatched(matched(ours, theirs))[:2] == ([], [])
    assert unmatched(matched(theirs, ours))[:2] == ([], [])
    # An output that both have, from which a gradient comes on one side only, is a cut graph, unless the weights of the
    # block get the same gradients all the same.
    ours.entry("step0/backward/block#0:output.1", B)
    again = own(Model(PADDLE).module("", ""), "block", {"output.0": B, "output.1": shared})
    assert unmatched(matched(ours, again))[0] == []
    again.entries = [row for row in again.entries if "gradient" not in row[0]]
    again.entry("step0/gradient/block.fc.weight:raw", FIRST.T)
    assert "step0/backward/block#0:output.1" in unmatched(matched(ours, again))[0]
    # Without the outputs nothing is known about what the gradient is of.
    bare = own(Model().module("", ""), "block", {"output.1": shared})
    bare.entry("step0/backward/block#0:output.0.data", B)
    assert unmatched(matched(bare, again))[0] == ["step0/backward/block#0:output.0.data"]


def test_gradient_of_an_argument_must_have_a_partner_unless_it_answers() -> None:
    ours, theirs = pair_of_models(("fc1", "fc2"))
    ours.module("", "").entry("step0/backward/fc1#0:input.0", A)
    theirs.module("", "")
    assert unmatched(matched(ours, theirs))[0] == ["step0/backward/fc1#0:input.0"]


def called(path: str, origins: Any, *outputs: np.ndarray, extra: tuple[str, ...] = (), last: float = 1.0) -> Model:
    """One linear layer called several times, followed by another one that gave `last`."""
    model = (Model() if origins is None else Model(origins)).module("", "")
    for call, output in enumerate(outputs):
        model.entry(f"step0/forward/{path}#{call}:output", output)
        for phase in extra:
            model.entry(f"{phase}/{path}#{call}:output", output)
    model.linear(path, FIRST)
    return model.linear(f"{path}_last", SECOND, np.full((5, 2), last))


C, D = np.arange(20.0).reshape(5, 4) + 1, np.full((5, 4), -3.0)


def test_calls_in_another_order_are_paired_in_it() -> None:
    ours, theirs = called("a", None, C, D), called("b", PADDLE, D, C)
    pairing = matched(ours, theirs)
    found = partners(pairing)
    assert found["step0/forward/a#0:output"] == ("step0/forward/b#1:output", "value", 1.0)
    assert found["step0/forward/a#1:output"] == ("step0/forward/b#0:output", "value", 1.0)
    assert unmatched(pairing) == ([], [], [])


def test_gradients_follow_the_order_of_calls_and_layers_alone_do_not() -> None:
    phases = ("step0/backward", "isolated@step0/forward")
    ours, theirs = called("a", None, C, D, extra=phases), called("b", PADDLE, D, C, extra=phases)
    found = {one: other for one, (other, _, _) in partners(matched(ours, theirs)).items()}
    assert found["step0/backward/a#0:output"] == "step0/backward/b#1:output"
    assert found["isolated@step0/forward/a#0:output"] == "isolated@step0/forward/b#0:output"
    assert found["isolated@step0/forward/a#1:output"] == "isolated@step0/forward/b#1:output"


def test_layer_called_on_other_parts_of_the_data_is_compared_by_its_weights() -> None:
    phases = ("isolated@step0/forward",)
    ours, theirs = called("a", None, C, D, extra=phases), called("b", PADDLE, np.concatenate([C, D]))
    theirs.entry("isolated@step0/forward/b#0:output", C)
    for model, given in ((ours, C), (theirs, D)):
        model.module("", "").entry("step0/forward/#0:output", given)
    pairing = matched(ours, theirs)
    found = partners(pairing)
    assert "step0/forward/a#0:output" not in found
    assert found["isolated@step0/forward/a#0:output"][0] == "isolated@step0/forward/b#0:output"
    assert found["step0/parameter/a.weight"][0] == "step0/parameter/b.weight"
    here, there, structural = unmatched(pairing)
    assert (here, there) == ([], [])
    assert {"step0/forward/a#0:output", "step0/forward/a#1:output", "step0/forward/b#0:output"} <= set(structural)


def block_model(origins: Any, path: str, gives: np.ndarray, *, name: str = "fc") -> Model:
    model = (Model() if origins is None else Model(origins)).module("", "").module(path, "")
    model.linear(f"{path}.{name}", FIRST, C)
    model.entry(f"step0/forward/{path}#0:output", gives)
    model.entry("step0/forward/last#0:input.0", C, meta={"from": f"step0/forward/{path}#0:output"})
    return model.linear("last", SECOND, C[:, :2] ** 2)


def test_block_that_ends_elsewhere_is_not_compared() -> None:
    ours, theirs = block_model(None, "block", C), block_model(PADDLE, "block", 2 * C)
    pairing = matched(ours, theirs)
    assert "step0/forward/block#0:output" not in partners(pairing)
    assert unmatched(pairing) == ([], [], ["step0/forward/block#0:output", "step0/forward/block#0:output"])
    same = matched(block_model(None, "block", C), block_model(PADDLE, "block", C))
    assert "step0/forward/block#0:output" in partners(same)
    assert same.notes == ()


def test_name_that_belongs_to_another_layer_there_is_not_followed() -> None:
    ours = Model().linear("a", FIRST, C).linear("b", SECOND, np.ones((5, 2)))
    ours.module("x", "").entry("step0/forward/x#0:output", np.ones(3))
    theirs = Model(PADDLE).linear("x", FIRST, C).linear("y", SECOND, np.ones((5, 2)))
    found = partners(matched(ours, theirs))
    assert found["step0/forward/a#0:output"][0] == "step0/forward/x#0:output"
    assert "step0/forward/x#0:output" not in found


SEQUENCE = np.random.default_rng(0).normal(size=(4, 2, 3))


def rowwise(origins: Any, path: str, *outputs: np.ndarray, run: str = "") -> Model:
    model = (Model() if origins is None else Model(origins)).module("", "")
    for call, output in enumerate(outputs):
        model.entry(f"{run}step0/forward/{path}#{call}:output", output)
    return model.linear(path, np.ones((3, 3)))


def views(ours: Model, theirs: Model) -> dict[str, Any]:
    found = matched(ours, theirs).pairs
    return {
        str(pair.reference.key): pair.view and pair.view.axes for pair in found if pair.reference.key.call is not None
    }


def test_rows_along_other_axes_are_turned() -> None:
    turned = SEQUENCE.transpose(1, 0, 2)
    assert views(rowwise(None, "a", SEQUENCE), rowwise(PADDLE, "b", turned)) == {"step0/forward/a#0:output": (1, 0, 2)}
    assert views(rowwise(None, "a", SEQUENCE), rowwise(PADDLE, "b", SEQUENCE)) == {"step0/forward/a#0:output": None}
    alone = views(rowwise(None, "a", SEQUENCE, run="isolated@"), rowwise(PADDLE, "b", turned, run="isolated@"))
    assert alone == {"isolated@step0/forward/a#0:output": None}, "it was given the reference's own input"


def test_view_of_rows_is_told_once_and_kept_where_it_fits() -> None:
    square = np.random.default_rng(1).normal(size=(3, 3, 3))
    ours, theirs = rowwise(None, "a", square), rowwise(PADDLE, "b", square.transpose(1, 0, 2))
    for model, path, values in ((ours, "a", 5 * square), (theirs, "b", square)):
        model.entry(f"step1/forward/{path}#0:output", values)
        model.entry(f"step1/backward/{path}#0:output", SEQUENCE if path == "a" else SEQUENCE.transpose(1, 0, 2))
        model.entry(f"step2/backward/{path}#0:output", SEQUENCE[:1])
    found = views(ours, theirs)
    assert found == {
        "step0/forward/a#0:output": (1, 0, 2),
        "step1/forward/a#0:output": (1, 0, 2),
        "step1/backward/a#0:output": (1, 0, 2),
        "step2/backward/a#0:output": (1, 0, 2),
    }


def test_channels_kept_last_are_turned_after_a_rename() -> None:
    images = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    ours, theirs = Model(), Model(PADDLE)
    ours.module("c", "conv2d").entry("step0/forward/c#0:output", images)
    theirs.module("d", "conv2d", data_format="NHWC").entry("step0/forward/d#0:output", np.moveaxis(images, 1, 3))
    pairing = matched(ours, theirs, rename={"c": "d"})
    assert [pair.view and pair.view.axes for pair in pairing.pairs] == [(0, 3, 1, 2)]
    assert [pair.how for pair in pairing.pairs] == ["rename"]


def test_rename_of_a_module_without_tensors_is_followed_by_its_entries() -> None:
    ours, theirs = pair_of_models(("fc1", "fc2"))
    ours.simple("act", "relu", (5, 2))
    theirs.simple("f", "relu", (5, 2)).simple("g", "relu", (5, 2))
    found = partners(matched(ours, theirs, rename={"act": "g"}))
    assert found["step0/forward/act#0:output"] == ("step0/forward/g#0:output", "rename", 1.0)


def test_rate_of_the_first_group_is_never_a_repetition() -> None:
    ours, theirs = pair_of_models(("fc1", "fc2"))
    ours.entry("step0/lr/optimizer:group0", 0.1).entry("step0/lr/optimizer:group1", 0.1)
    pairing = matched(ours, theirs)
    assert unmatched(pairing) == (["step0/lr/optimizer:group0"], [], ["step0/lr/optimizer:group1"])
