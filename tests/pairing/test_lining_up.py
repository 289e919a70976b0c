"""How modules are lined up around paired layers: own layers, wholes of pieces, containers, activations between."""

from __future__ import annotations

import numpy as np
import pytest

from pairing.made import FIRST, PADDLE, SECOND, TORCH, Model, attention, matched, modules, packed_attention, partners
from reprod_log.recording import Recording

OUT = np.ones((5, 4))


def own(origins: dict[str, str], *tensors: str) -> Model:
    """Modules of one's own, of other classes on the two sides, that hold these tensors (path with name)."""
    model = Model(origins).module("", "").linear("fc", FIRST, OUT)
    model.origins = {**origins, "": "mine.Scale" if origins is TORCH else "theirs.Gain"}
    held: dict[str, dict[str, tuple[int, ...]]] = {}
    for tensor in tensors:
        path, _, name = tensor.rpartition(".")
        held.setdefault(path, {})[name] = (4,)
        model.entry(f"step0/parameter/{tensor}", np.ones(4))
    for path, names in held.items():
        model.module(path, "", names)
    # A module ends after those that it holds.
    for path in sorted(held, key=lambda path: (-path.count("."), list(held).index(path))):
        model.entry(f"step0/forward/{path}#0:output", OUT)
    return model


def lined_up(ours: tuple[str, ...], theirs: tuple[str, ...]) -> dict[str, str]:
    found = modules(own(TORCH, *ours), own(PADDLE, *theirs))
    return {one: other for one, (other, _) in found.items() if one != "fc"}


def test_module_of_own_tensors_has_the_partner_that_all_of_them_have() -> None:
    assert lined_up(("norm.scale", "norm.shift"), ("rms.weight", "rms.bias")) == {"norm": "rms"}
    assert lined_up(("norm.scale",), ("rms.weight",)) == {"norm": "rms"}
    assert lined_up(("norm.scale", "norm.shift"), ("rms.weight", "other.bias")) == {}
    assert lined_up(("norm.scale", "other.shift"), ("rms.weight", "rms.bias")) == {}


def test_own_module_that_holds_another_is_not_paired_by_its_tensors() -> None:
    assert "norm.deep" in lined_up(("norm.scale", "norm.deep.scale"), ("rms.weight", "r.weight"))
    assert "norm" not in lined_up(("norm.scale", "norm.deep.scale"), ("rms.weight", "r.weight"))


@pytest.mark.parametrize(
    ("names", "rename", "how"),
    [
        (("fc1", "fc2"), {}, "name"),
        (("x", "y"), {"fc1": "x", "fc2": "y"}, "rename"),
        (("x", "y"), {}, "value"),
        (("other", "another"), {}, "order"),
    ],
)
def test_how_a_layer_was_found_is_told(names: tuple[str, str], rename: dict[str, str], how: str) -> None:
    ours, theirs = between("1", "2"), Model(PADDLE)
    factor = 3.0 if how == "order" else 1.0
    theirs.linear(names[0], factor * FIRST, np.ones((5, 4))).linear(names[1], factor * SECOND, np.ones((5, 2)))
    assert {found for _, found in modules(ours, theirs, rename=rename).values()} == {how}


def test_layer_paired_in_pieces_has_the_block_that_holds_just_these_as_partner() -> None:
    assert modules(packed_attention(), attention())["attn"][0] == "self"
    assert modules(attention(), packed_attention())["self"][0] == "attn"


def test_block_with_a_layer_too_many_is_the_partner_and_the_layer_is_named() -> None:
    parts = attention(("q_proj", "k_proj", "v_proj", "out_proj", "gate"))
    assert modules(packed_attention(), parts)["attn"][0] == "self"
    notes = [str(note) for note in matched(packed_attention(), parts).notes]
    assert notes == ["layers of the candidate without a partner: self.gate"]


def between(*names: str, origins: dict[str, str] = TORCH) -> Model:
    """Activations around two linear layers, in the order of their names; `1` and `2` are the linear layers."""
    model = Model(origins)
    for name in names:
        if name in "12":
            model.linear(f"fc{name}", FIRST if name == "1" else SECOND, np.ones((5, 4 if name == "1" else 2)))
        else:
            model.simple(name, "relu", (5, 4))
    return model


def activations(ours: Model, theirs: Model) -> dict[str, str]:
    return {one: other for one, (other, _) in modules(ours, theirs).items() if not one.startswith("fc")}


def test_activations_are_paired_between_the_same_two_layers_only() -> None:
    assert activations(between("1", "a", "2"), between("1", "x", "2", origins=PADDLE)) == {"a": "x"}
    assert activations(between("1", "a", "2"), between("1", "2", "x", origins=PADDLE)) == {}
    assert activations(between("a", "1", "2"), between("1", "2", "x", origins=PADDLE)) == {}
    assert activations(between("a", "1", "b", "2", "c"), between("x", "1", "y", "2", "z", origins=PADDLE)) == {
        "a": "x",
        "b": "y",
        "c": "z",
    }
    # Where the layers come in the other order, nothing can be told.
    assert activations(between("1", "a", "2"), between("2", "x", "1", origins=PADDLE)) == {}


def test_first_output_of_the_plain_run_says_what_a_call_gave() -> None:
    ours, theirs = between("1"), between("1", origins=PADDLE)
    for model, path, shape in ((ours, "a", (5, 4)), (theirs, "x", (5, 4))):
        model.module(path, "relu")
        model.entry(f"float64@step0/forward/{path}#0:output", np.ones((1, len(path))))
        model.entry(f"step0/forward/{path}#0:input.0", np.ones((9, 1 if path == "a" else 2)))
        model.entry(f"step0/forward/{path}#0:output", np.ones(shape))
    assert activations(ours, theirs) == {"a": "x"}


def test_modules_of_unknown_kind_are_alike_by_class() -> None:
    ours, theirs = between("1"), between("1", origins=PADDLE)
    for model, path, origin in (
        (ours, "a", "mine.Swish"),
        (theirs, "y", "theirs.Other"),
        (theirs, "x", "theirs.SWISH"),
    ):
        model.origins = {**model.origins, "": origin}
        model.module(path, "").entry(f"step0/forward/{path}#0:output", OUT)
    assert activations(ours, theirs)["a"] == "x"


def wrapped(origins: dict[str, str], *paths: str) -> Model:
    """Containers inside each other around one linear layer, the outermost first."""
    model = Model(origins)
    for path in paths:
        model.module(path, "")
    model.linear(f"{paths[-1]}.fc", FIRST, OUT)
    for path in reversed(paths):
        model.entry(f"step0/forward/{path}#0:output", OUT)
    return model


def test_containers_are_paired_from_the_outside_whatever_their_names() -> None:
    ours, theirs = wrapped(TORCH, "", "z", "z.a", "z.a.b"), wrapped(PADDLE, "", "y", "y.c")
    found = {one: other for one, (other, _) in modules(ours, theirs).items()}
    assert found == {"": "", "z": "y", "z.a": "y.c", "z.a.b.fc": "y.c.fc"}


def test_containers_of_other_layers_are_not_paired() -> None:
    ours, theirs = wrapped(TORCH, "z"), wrapped(PADDLE, "y")
    ours.module("w", "").linear("w.fc", SECOND, np.ones((5, 2))).entry("step0/forward/w#0:output", np.ones((5, 2)))
    theirs.linear("v", SECOND, np.ones((5, 2)))
    found = modules(ours, theirs)
    assert (found["z"][0], found.get("w")) == ("y", None)


def test_layers_without_partner_are_named_on_their_side() -> None:
    ours, theirs = between("1", "2"), between("1", origins=PADDLE)
    assert [str(note) for note in matched(ours, theirs).notes] == ["layers of the reference without a partner: fc2"]
    assert [str(note) for note in matched(theirs, ours).notes] == ["layers of the candidate without a partner: fc2"]


def test_rule_of_a_rename_map_that_names_part_of_a_word_is_for_nothing() -> None:
    ours, theirs = (Model(origins).linear("ab", FIRST, OUT).simple("a", "relu") for origins in (TORCH, PADDLE))
    theirs.simple("x", "relu")
    found = partners(matched(ours, theirs, rename={"a": "x"}))
    assert found["step0/forward/ab#0:output"][:2] == ("step0/forward/ab#0:output", "name")
    assert found["step0/parameter/ab.weight"][:2] == ("step0/parameter/ab.weight", "name")
    assert found["step0/forward/a#0:output"][:2] == ("step0/forward/x#0:output", "rename")


# What of a recording is one layer.


def tensors_paired(ours: Recording, theirs: Recording) -> dict[str, str]:
    found = matched(ours, theirs).pairs
    return {
        pair.reference.key.path: pair.candidate.key.path for pair in found if pair.reference.key.phase == "parameter"
    }


def test_layer_that_is_the_whole_model_is_a_layer() -> None:
    ours, theirs = (Model(origins) for origins in (TORCH, PADDLE))
    for model, stored in ((ours, FIRST), (theirs, FIRST.T)):
        model.module("", "linear", {"weight": stored.shape}).entry("step0/parameter/weight", stored)
    (pair,) = matched(ours, theirs).pairs
    np.testing.assert_array_equal(pair.candidate.array(), FIRST)


def test_what_lies_inside_a_known_layer_belongs_to_it() -> None:
    ours = Model().module("fc", "linear", {"weight": (4, 3)}).module("fc.inner", "linear", {"weight": (2, 2)})
    ours.entry("step0/parameter/fc.weight", FIRST)
    theirs = Model(PADDLE).module("fc", "linear", {"weight": (3, 4)}).entry("step0/parameter/fc.weight", FIRST.T)
    assert matched(ours, theirs).notes == ()
    assert tensors_paired(ours.recording(), theirs.recording()) == {"fc.weight": "fc.weight"}


def test_tensor_that_two_modules_list_is_one() -> None:
    ours = Model().module("", "", {"a.scale": (3,)}).module("a", "", {"scale": (3,)}).linear("fc", FIRST, OUT)
    theirs = Model(PADDLE).linear("fc", FIRST, OUT)
    assert [str(note) for note in matched(ours, theirs).notes] == ["layers of the reference without a partner: a.scale"]


@pytest.mark.parametrize("phase", ["parameter", "gradient"])
def test_tensor_listed_under_two_names_is_the_one_that_was_recorded(phase: str) -> None:
    names = {"weight_ih_l0": (12, 3), "weight_hh_l0": (12, 3), "bias_ih_l0": (12,), "bias_hh_l0": (12,)}
    cells = {f"0.cell.{name[:-3]}": shape for name, shape in names.items()}
    ours = Model().module("lstm", "lstm", names)
    for name, shape in names.items():
        ours.entry(f"step0/{phase}/lstm.{name}", np.ones(shape))
    for recorded in (names, cells):
        theirs = Model(PADDLE).module("lstm", "lstm", {**names, **cells})
        for name, shape in recorded.items():
            theirs.entry(f"step0/{phase}/lstm.{name}", np.ones(shape))
        found = {pair.candidate.key.path for pair in matched(ours, theirs).pairs}
        assert found == {f"lstm.{name}" for name in recorded}


# What is left when names, values and order have decided.


def test_layer_that_is_the_only_one_of_its_shapes_is_a_partner_in_any_order() -> None:
    ours, theirs = Model(), Model(PADDLE)
    for model, names in ((ours, ("a", "b")), (theirs, ("y", "x"))):
        for name in names:
            first = name in "ax"
            shape = (4, 3) if first else (2, 4)
            model.linear(name, np.full(shape, float(ord(name))), np.ones((5, shape[0])))
    assert {one: other for one, (other, _) in modules(ours, theirs).items()} == {"a": "x", "b": "y"}


def test_what_a_model_is_given_follows_the_model_whatever_its_name() -> None:
    ours, theirs = Model(), Model(PADDLE)
    for model, names in ((ours, ("gen", "dis")), (theirs, ("D", "G"))):
        for name in names:
            first = name in ("gen", "G")
            model.module(name, "").linear(f"{name}.fc", FIRST if first else SECOND, np.ones((5, 4 if first else 2)))
            model.entry(f"step0/data/{name}#0:input.0", np.full((5, 3 if first else 4), 1.0 + first))
            model.entry(f"step0/forward/{name}#0:output", np.ones((5, 4 if first else 2)))
    # A loss that is a module on one side only.
    ours.module("bce", "").entry("step0/data/bce#0:input.1", np.zeros((5, 1)))
    pairing = matched(ours, theirs)
    found = {one: other for one, (other, _, _) in partners(pairing).items() if "/data/" in one}
    assert found == {
        "step0/data/gen#0:input.0": "step0/data/G#0:input.0",
        "step0/data/dis#0:input.0": "step0/data/D#0:input.0",
    }
    assert pairing.only_in_reference == ()


def test_layer_that_runs_twice_stands_for_the_one_that_does_not_run() -> None:
    random = np.random.default_rng(0)
    given, middle, wrong = (random.normal(size=(5, 4)) for _ in range(3))
    weights = [random.normal(size=(4, 4)) for _ in range(2)]
    ours, theirs = Model(), Model(PADDLE)
    for model, names, second in ((ours, ("a", "b"), "b#0"), (theirs, ("x", "y"), "x#1")):
        for name, weight in zip(names, weights, strict=True):
            model.linear(name, weight)
        model.entry(f"step0/forward/{names[0]}#0:input.0", given)
        model.entry(f"step0/forward/{names[0]}#0:output", middle)
        model.entry(f"step0/forward/{second}:input.0", middle)
        model.entry(f"step0/forward/{second}:output", wrong if model is theirs else random.normal(size=(5, 4)))
    assert partners(matched(ours, theirs))["step0/forward/b#0:output"][0] == "step0/forward/x#1:output"
