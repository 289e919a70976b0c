"""Every framework in the folder has the same functions, and is only asked when it is loaded."""

import inspect
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from reprod_log import frameworks
from reprod_log.capture import to_numpy, watch
from reprod_log.errors import CaptureError
from reprod_log.frameworks import contract as lookup
from reprod_log.frameworks.contract import Framework, TensorFramework, framework_of

NAMES = sorted(lookup._OURS)
WATCHABLE = ("paddle", "torch")


def functions(protocol):
    return {
        name: inspect.signature(value)
        for owner in protocol.__mro__
        for name, value in vars(owner).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def without_self(signature):
    return [(one.name, one.kind, one.default) for one in list(signature.parameters.values()) if one.name != "self"]


@pytest.mark.parametrize("name", WATCHABLE)
def test_framework_has_every_function_with_the_same_parameters(name):
    module = import_module(f"{frameworks.__name__}.{name}")
    assert isinstance(module, Framework)
    assert name == module.NAME
    for function, signature in functions(Framework).items():
        assert without_self(inspect.signature(getattr(module, function))) == without_self(signature), function
    assert sorted(module.__all__) == sorted([*functions(Framework), "NAME"])


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(WATCHABLE)))
def test_framework_of_tensors_only_has_its_two_functions(name):
    tree = (Path(frameworks.__path__[0]) / f"{name}.py").read_text()
    for function, signature in functions(TensorFramework).items():
        parameters = ", ".join(parameter for parameter, _, _ in without_self(signature))
        assert f"def {function}({parameters.split(',')[0]}" in tree
    assert f'NAME = "{name}"' in tree


def test_folder_holds_the_frameworks_of_the_design():
    assert NAMES == ["jax", "paddle", "tensorflow", "torch"]


def test_owner_of_each_thing_is_found(lab):
    model = lab.models.Mlp()
    for thing in (model, lab.sgd(model.parameters()), lab.tensor(2)):
        assert lab.name == framework_of(thing).NAME


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
def third_party(monkeypatch):
    """A framework called `gear`, made known through an entry point."""
    gear = ModuleType("gear")
    gear.Tensor = Ours
    monkeypatch.setitem(sys.modules, "gear", gear)
    plugin = SimpleNamespace(
        NAME="gear",
        is_tensor=lambda value: isinstance(value, Ours),
        view=lambda tensor: (np.asarray(tensor.values), False),
    )
    point = SimpleNamespace(name="gear", value="gear_plugin", load=lambda: plugin)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == "reprod_log.frameworks" else [])
    lookup._known.cache_clear()
    yield plugin
    lookup._known.cache_clear()


def test_framework_of_a_third_party_is_found_through_its_entry_point(third_party):
    assert to_numpy(Ours([1, 2])).tolist() == [1, 2]
    with pytest.raises(CaptureError, match="cannot be watched"):
        watch(Ours([1]))


def test_entry_point_without_the_functions_is_refused_by_name(third_party):
    del third_party.view
    with pytest.raises(CaptureError, match=r"entry point 'gear' .*lacks 'view'"):
        to_numpy(Ours([1, 2]))


def test_entry_point_group_is_the_documented_one():
    assert lookup.GROUP == "reprod_log.frameworks"
    assert list(metadata.entry_points(group=lookup.GROUP)) == []
