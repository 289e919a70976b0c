"""Nests of tensors are taken apart into named leaves."""

from collections import UserDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from reprod_log.frameworks.nests import filled, flatten, is_portable, mapped


@dataclass
class Output:
    logits: object
    hidden: object = None


class Attributes:
    """As the package attrs makes them."""

    __attrs_attrs__ = (SimpleNamespace(name="left"), SimpleNamespace(name="right"))
    left, right = 1, 2


class ModelOutput(dict):
    """Like that of Hugging Face: a mapping that is also a dataclass and leaves out what is None."""

    __dataclass_fields__ = Output.__dataclass_fields__


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("structure", "rows"),
    [
        (1, [("out", 1)]),
        (None, []),
        ((1, None, 2), [("out.0", 1), ("out.2", 2)]),
        ([1, [2, [3]]], [("out.0", 1), ("out.1.0", 2), ("out.1.1.0", 3)]),
        ({"a": 1, "b": {"c": 2}}, [("out.a", 1), ("out.b.c", 2)]),
        (UserDict(a=1), [("out.a", 1)]),
        ({("x", 1): 1, "a:b#c/d": 2}, [("out.('x', 1)", 1), ("out.a_b_c_d", 2)]),
        (Output(1), [("out.logits", 1)]),
        (Output(1, (2, 3)), [("out.logits", 1), ("out.hidden.0", 2), ("out.hidden.1", 3)]),
        (Attributes(), [("out.left", 1), ("out.right", 2)]),
        (ModelOutput(logits=1), [("out.logits", 1)]),
        (Point(1, (2,)), [("out.x", 1), ("out.y.0", 2)]),
        ((), []),
        (Output, [("out", Output)]),
    ],
)
def test_leaves_have_dotted_names(structure, rows):
    assert list(flatten(structure, "out")) == rows


def test_nest_that_contains_itself_comes_to_an_end():
    endless: list = [1]
    endless.append(endless)
    rows = list(flatten(endless, "out"))
    assert len(rows) < 100
    assert rows[0] == ("out.0", 1)


def double(name, leaf):
    return (name, leaf * 2) if isinstance(leaf, int) else leaf


@pytest.mark.parametrize(
    ("structure", "wanted"),
    [
        (1, ("in", 2)),
        (None, None),
        ((1, [None, 2]), (("in.0", 2), [None, ("in.1.1", 4)])),
        ({3: 1}, {3: ("in.3", 2)}),
        (UserDict(a=1), {"a": ("in.a", 2)}),
        (Output("x", 1), Output("x", ("in.hidden", 2))),
        (Point(1, "y"), Point(("in.x", 2), "y")),
        (ModelOutput(logits=1), ModelOutput(logits=("in.logits", 2))),
    ],
)
def test_leaves_are_converted_in_containers_of_the_same_class(structure, wanted):
    made = mapped(structure, double, "in")
    assert made == wanted
    assert type(made) is type(wanted)


def test_object_without_anything_to_convert_is_given_as_it_is():
    output = Output("x")
    assert mapped(output, double) is output
    assert mapped([output], double)[0] is output


def test_leaves_are_filled_in_by_name():
    assert filled((1, {"a": 2, "b": 3}), {"in.1.a": "new"}, "in") == (1, {"a": "new", "b": 3})


@pytest.mark.parametrize(
    ("structure", "portable"),
    [((1, {"a": np.ones(2)}, None, "x"), True), (Point(1, 2), True), (Output(1), False), ([object()], False)],
)
def test_arrays_and_plain_values_are_portable(structure, portable):
    assert is_portable(structure) is portable


def test_nest_that_contains_itself_is_not_portable():
    endless: list = [1]
    endless.append(endless)
    assert not is_portable(endless)
