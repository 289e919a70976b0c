"""Nests of tensors are taken apart into named leaves."""

from collections import UserDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from reprod_log.frameworks.nests import flatten


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
