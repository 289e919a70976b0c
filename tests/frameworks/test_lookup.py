"""Frameworks are looked up by what is loaded, here or through an entry point, and only asked when they are loaded."""

import subprocess
import sys
from importlib import metadata
from types import ModuleType, SimpleNamespace

import numpy as np
import paddle
import pytest
import torch

from reprod_log import frameworks
from reprod_log.capture import to_numpy, watch
from reprod_log.errors import CaptureError
from reprod_log.frameworks import framework_of


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (torch.nn.Linear(2, 2), "torch"),
        (torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), 0.1), "torch"),
        (torch.ones(2), "torch"),
        (paddle.nn.Linear(2, 2), "paddle"),
        (paddle.optimizer.SGD(0.1, parameters=paddle.nn.Linear(2, 2).parameters()), "paddle"),
        (paddle.ones([2]), "paddle"),
    ],
)
def test_owner_of_each_thing_is_found(thing, name):
    assert framework_of(thing).name == name


def test_no_framework_is_imported_by_looking_for_an_owner():
    program = (
        "import sys, numpy; from reprod_log.capture import to_numpy, watch, is_tensor\n"
        "to_numpy(numpy.ones(2)); is_tensor(3)\n"
        "try: watch(object())\n"
        "except Exception as error: print(error)\n"
        "print([name for name in ('torch', 'paddle', 'jax', 'tensorflow') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "a framework in this process" in answer.stdout
    assert answer.stdout.strip().endswith("[]")


class Ours:
    """A tensor of a framework that nobody knows."""

    def __init__(self, values):
        self.values = values


@pytest.fixture
def third_party(monkeypatch, entry_points):
    """A framework of tensors called `cog`, made known through an entry point in the form of an earlier version."""
    cog = ModuleType("cog")
    cog.Tensor = Ours
    monkeypatch.setitem(sys.modules, "cog", cog)
    plugin = SimpleNamespace(
        NAME="cog",
        is_tensor=lambda value: isinstance(value, Ours),
        view=lambda tensor: (np.asarray(tensor.values), False),
    )
    entry_points(cog=plugin)
    return plugin


def test_framework_of_a_third_party_is_found_through_its_entry_point(third_party):
    assert to_numpy(Ours([1, 2])).tolist() == [1, 2]
    with pytest.raises(CaptureError, match="cannot be watched"):
        watch(Ours([1]))


def test_entry_point_without_the_functions_is_refused_by_name(third_party):
    del third_party.view
    with pytest.raises(CaptureError, match=r"entry point 'cog' .*lacks 'view'"):
        to_numpy(Ours([1, 2]))


def test_entry_point_of_the_earlier_form_that_watches_models_is_refused_with_what_changed(third_party):
    third_party.on_call = lambda module, before, after: None
    with pytest.raises(CaptureError, match=r"one value FRAMEWORK"):
        to_numpy(Ours([1, 2]))


def test_entry_point_group_is_the_documented_one():
    assert frameworks.GROUP == "reprod_log.frameworks"
    assert list(metadata.entry_points(group=frameworks.GROUP)) == []


def test_names_of_all_that_could_be_looked_up_are_known():
    assert set(frameworks.known_names()) == {"jax", "keras", "mindspore", "onnx", "paddle", "tensorflow", "torch"}
