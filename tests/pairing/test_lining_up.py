"""How modules are lined up around paired layers: own layers, wholes of pieces, containers, activations between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pairing.test_matching_cases import FIRST, PADDLE, SECOND, Model
from reprod_log.pairing import layers
from reprod_log.pairing.layers import match_layers
from reprod_log.pairing.unit import BARE, PIECE, Unit
from reprod_log.pairing.weight_map import UnitPair
from reprod_log.recording import Recording


def unit(path: str, owner: str | None = None, *, kind: str = "Linear", class_name: str = "Linear") -> Unit:
    return Unit(path, kind, "torch", class_name, (), owner=path if owner is None else owner)


def bare(path: str) -> Unit:
    """A tensor outside of known layers, whose module is what stands before its last dot."""
    return unit(path, path.rpartition(".")[0], kind=BARE)


def test_leaves_are_owners_that_hold_no_other_owner() -> None:
    found = layers._leaves([bare("norm.scale"), bare("block.gamma"), unit("block.a.fc"), bare("a.b.c.x"), bare("a.y")])
    assert found == {"norm", "block.a.fc", "a.b.c"}
    assert layers._leaves([bare("x"), unit("fc")]) == {"fc"}
    assert layers._leaves([bare("x")]) == {""}


def own(*pairs: tuple[str, str], modules: dict[str, Any] | None = None, how: str = "name") -> dict[str, Any]:
    made = [UnitPair(bare(one), bare(other), how) for one, other in pairs]
    ours, theirs = (
        layers._leaves(unit for unit in side) for side in zip(*((m.source, m.target) for m in made), strict=True)
    )
    return layers._own_layers(made, modules or {}, ours, theirs)


def test_module_of_own_tensors_has_the_partner_that_all_of_them_have() -> None:
    assert own(("norm.scale", "rms.weight"), ("norm.shift", "rms.bias")) == {"norm": ("rms", "name")}
    assert own(("norm.scale", "rms.weight"), how="values") == {"norm": ("rms", "value")}
    assert own(("norm.scale", "rms.weight"), ("norm.shift", "other.bias")) == {}
    assert own(("norm.scale", "rms.weight"), ("other.shift", "rms.bias")) == {}


def test_own_module_is_not_paired_twice_nor_when_it_holds_others() -> None:
    one = ("norm.scale", "rms.weight")
    assert own(one, modules={"norm": ("x", "name")}) == {}
    assert own(one, modules={"x": ("rms", "name")}) == {}
    assert own(one, modules={"x": ("y", "name")}) == {"norm": ("rms", "name")}
    assert own(one, ("norm.deep.scale", "r.weight")) == {"norm.deep": ("r", "name")}
    assert own(one, ("deep.scale", "rms.r.weight")) == {"deep": ("rms.r", "name")}
    layer = UnitPair(unit("fc"), unit("linear"), "name")
    assert layers._own_layers([layer], {}, frozenset({"fc"}), frozenset({"linear"})) == {}


@pytest.mark.parametrize(
    ("said", "how"),
    [("name", "name"), ("rename", "rename"), ("values", "value"), ("execution order", "order"), ("role", "structure")],
)
def test_how_a_layer_was_found_is_told_in_a_few_words(said: str, how: str) -> None:
    assert layers._how(said) == how


def attention(origins: Any, block: str, names: tuple[str, ...]) -> Recording:
    """A block that holds these linear layers, and one more around it."""
    model = (Model() if origins is None else Model(origins)).module("", "").module(block, "")
    for name in names:
        model.linear(f"{block}.{name}", FIRST, np.ones((5, 4)))
    model.linear("last", SECOND, np.ones((5, 2)))
    model.entry(f"step0/forward/{block}#0:output", np.ones((5, 4)))
    return model.entry("step0/forward/#0:output", np.ones((5, 2))).recording()


def pieces(whole: str, parts: list[str], *, here: bool) -> list[UnitPair]:
    found = []
    for place, part in enumerate(parts):
        one = unit(f"{whole}[{place}]", whole, class_name=PIECE)
        other = unit(part)
        found.append(UnitPair(one, other, "structure") if here else UnitPair(other, one, "structure"))
    return found


def test_layer_paired_in_pieces_has_the_block_that_holds_just_these_as_partner() -> None:
    whole = Model().module("", "").module("attn", "").entry("step0/forward/attn#0:output", np.ones((5, 4))).recording()
    parts = attention(PADDLE, "self", ("q", "k"))
    found = layers._wholes(whole, parts, pieces("attn", ["self.q", "self.k"], here=True))
    assert found == {"attn": ("self", "structure")}
    # The other way round, and with several of them.
    there = pieces("attn", ["self.q", "self.k"], here=False)
    assert layers._wholes(parts, whole, there) == {"self": ("attn", "structure")}
    both = attention(None, "self", ("q", "k"))
    more = pieces("other", ["self.q", "self.k"], here=True)
    assert layers._wholes(both, parts, more + there) == {
        "other": ("self", "structure"),
        "self": ("attn", "structure"),
    }


def test_block_that_holds_more_or_less_than_the_pieces_is_no_partner() -> None:
    whole = Recording(())
    parts = attention(PADDLE, "self", ("q", "k", "v"))
    assert layers._wholes(whole, parts, pieces("attn", ["self.q", "self.k"], here=True)) == {}
    assert layers._wholes(whole, parts, pieces("attn", ["self.q"], here=True)) == {}
    single = attention(PADDLE, "self", ("q",))
    assert layers._wholes(whole, single, pieces("attn", ["self.q"], here=True)) == {}, "one piece is no whole"
    assert layers._wholes(whole, parts, []) == {}


def test_ends_are_where_the_first_output_stands() -> None:
    model = Model().entry("step0/forward/a#0:input.0", 1.0).entry("step0/forward/b#0:output", 1.0)
    model.entry("step0/forward/a#0:output", 1.0).entry("step0/backward/c#0:output", 1.0)
    model.entry("step1/forward/a#0:output.0", 1.0).entry("step0/parameter/d", 1.0)
    assert layers._ends(model.recording()) == {"b": 1, "a": 2}
    assert layers._execution_order(model.recording()) == {"a": 0, "b": 1}


def between(*names: str, origins: Any = None, kinds: str = "relu", shape: tuple[int, ...] = (5, 4)) -> Model:
    """Activations around two linear layers, in the order of their names; `1` and `2` are the linear layers."""
    model = Model() if origins is None else Model(origins)
    for name in names:
        if name in "12":
            model.linear(f"fc{name}", FIRST if name == "1" else SECOND, np.ones((5, 4 if name == "1" else 2)))
        else:
            model.simple(name, kinds, shape)
    return model


def modules(ours: Model, theirs: Model) -> dict[str, str]:
    found = match_layers(ours.recording(), theirs.recording(), rename={}).modules
    return {one: other for one, (other, _) in found.items() if not one.startswith("fc")}


def test_activations_are_paired_between_the_same_two_layers_only() -> None:
    assert modules(between("1", "a", "2"), between("1", "x", "2", origins=PADDLE)) == {"a": "x"}
    assert modules(between("1", "a", "2"), between("1", "2", "x", origins=PADDLE)) == {}
    assert modules(between("a", "1", "2"), between("1", "2", "x", origins=PADDLE)) == {}
    assert modules(between("a", "1", "b", "2", "c"), between("x", "1", "y", "2", "z", origins=PADDLE)) == {
        "a": "x",
        "b": "y",
        "c": "z",
    }
    # Where the layers come in the other order, nothing can be told.
    assert modules(between("1", "a", "2"), between("2", "x", "1", origins=PADDLE)) == {}


def test_first_output_of_the_plain_run_says_what_a_call_gave() -> None:
    ours, theirs = between("1"), between("1", origins=PADDLE)
    for model, path, shape in ((ours, "a", (5, 4)), (theirs, "x", (5, 4))):
        model.module(path, "relu")
        model.entry(f"float64@step0/forward/{path}#0:output", np.ones((1, len(path))))
        model.entry(f"step0/forward/{path}#0:input.0", np.ones((9, 1 if path == "a" else 2)))
        model.entry(f"step0/forward/{path}#0:output", np.ones(shape))
        model.entry(f"step0/forward/{path}#1:output", np.ones((2, 2 if path == "a" else 3)))
    calls = {call.path: call.shape for call in layers._leaf_calls(ours.recording())}
    assert calls == {"fc1": (5, 4), "a": (5, 4)}
    assert modules(ours, theirs) == {"a": "x"}


def test_modules_of_unknown_kind_are_alike_by_class() -> None:
    ours, theirs = between("1"), between("1", origins=PADDLE)
    for model, path, origin in (
        (ours, "a", "mine.Swish"),
        (theirs, "x", "theirs.SWISH"),
        (theirs, "y", "theirs.Other"),
    ):
        model.origins = {**model.origins, "own": origin}
        model.module(path, "own")
        model.modules[-1] = type(model.modules[-1])(path, origin.rpartition(".")[2], "", {}, origin)
        model.entry(f"step0/forward/{path}#0:output", np.ones((5, 4)))
    assert modules(ours, theirs)["a"] == "x"
    assert layers._kind(None) == ""


def wrapped(origins: Any, *paths: str) -> Model:
    """Containers inside each other around one linear layer, the outermost first."""
    model = Model() if origins is None else Model(origins)
    for path in paths:
        model.module(path, "")
    model.linear(f"{paths[-1]}.fc", FIRST, np.ones((5, 4)))
    for path in reversed(paths):
        model.entry(f"step0/forward/{path}#0:output", np.ones((5, 4)))
    return model


def test_containers_are_paired_from_the_outside_whatever_their_names() -> None:
    ours, theirs = wrapped(None, "", "z", "z.a", "z.a.b"), wrapped(PADDLE, "", "y", "y.c")
    assert modules(ours, theirs) | {"fc": ""} == {"": "", "z": "y", "z.a": "y.c", "z.a.b.fc": "y.c.fc", "fc": ""}
    assert [layers._depth(path) for path in ("", "a", "a.b", "a.b.c")] == [0, 1, 2, 3]


def test_containers_of_other_layers_are_not_paired() -> None:
    ours, theirs = wrapped(None, "z"), wrapped(PADDLE, "y")
    ours.module("w", "").linear("w.fc", SECOND, np.ones((5, 2))).entry("step0/forward/w#0:output", np.ones((5, 2)))
    theirs.linear("v", SECOND, np.ones((5, 2)))
    found = modules(ours, theirs)
    assert (found["z"], found.get("w")) == ("y", None)


def test_layers_without_partner_are_named_on_their_side() -> None:
    ours, theirs = between("1", "2"), between("1", origins=PADDLE)
    found = match_layers(ours.recording(), theirs.recording(), rename={})
    assert (found.left_in_reference, found.left_in_candidate) == (("fc2",), ())
    found = match_layers(theirs.recording(), ours.recording(), rename={})
    assert (found.left_in_reference, found.left_in_candidate) == ((), ("fc2",))


def test_rule_of_a_rename_map_is_for_units_only_when_it_names_one() -> None:
    assert layers._names("a", ["b", "a.c"])
    assert layers._names("a", ["a"])
    assert not layers._names("a", ["ab", "b.a"])
