"""The contract, held by every framework: torch, paddle, and two of the tests that have a single file each.

`kit` is a framework whose modules run eagerly; `program` is any that runs, twig too, whose models are values.
"""

from __future__ import annotations

import copy
import inspect
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import torch

from reprod_log.capture import to_numpy
from reprod_log.capture.eager import runner_of
from reprod_log.capture.live import live_model
from reprod_log.capture.probing import stand_ins, undisturbed
from reprod_log.frameworks import contract, framework_of, known_names
from reprod_log.frameworks.module_tree import Root, Tree, kind_of_module, named_modules, parameters_of
from reprod_log.frameworks.side import Scope, Side, batches_of
from reprod_log.layers.lookup import kind_of

ROWS = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.second(self.first(x))


class PaddleNet(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        paddle.seed(0)
        self.first, self.second = paddle.nn.Linear(5, 4), paddle.nn.Linear(4, 3)

    def forward(self, x):
        return self.second(self.first(x))


EAGER = ("torch", "paddle", "gear")


@pytest.fixture(params=EAGER)
def kit(request):
    """One eager framework with a small model and an optimizer for it."""
    return made_kit(request)


@pytest.fixture(params=[*EAGER, "twig"])
def program(request):
    """One framework of any kind with a small model, a loss and an optimizer for it."""
    return made_kit(request)


def made_kit(request):
    loss = squares
    if request.param == "torch":
        made, sgd = TorchNet, lambda model: torch.optim.SGD(model.parameters(), 0.1)
    elif request.param == "paddle":
        made, sgd = PaddleNet, lambda model: paddle.optimizer.SGD(0.1, parameters=model.parameters())
    elif request.param == "twig":
        twig, loss = request.getfixturevalue("twig"), squares_with_gradient
        made, sgd = (
            lambda: twig.Chain({"first": twig.Linear(5, 4), "second": twig.Linear(4, 3)}).model(),
            twig_sgd(twig),
        )
    else:
        gear = request.getfixturevalue("gear")

        class GearNet(gear.Module):
            def __init__(self):
                self.first, self.second = gear.Linear(5, 4), gear.Linear(4, 3)

            def forward(self, x):
                return self.second(self.first(x))

        made, sgd = GearNet, lambda model: gear.SGD(model, 0.1)
    framework = framework_of(made())
    return SimpleNamespace(
        name=request.param, framework=framework, model=made, sgd=sgd, loss=loss, tensors=framework.tensors
    )


def twig_sgd(twig):
    return lambda model: twig.SGD(0.1)


def squares(outputs):
    return (outputs * outputs).mean()


def squares_with_gradient(outputs):
    return squares(outputs), outputs * outputs.dtype.type(2 / outputs.size)


def state_of(model):
    live = live_model(model)
    return {name: live.read(name) for name in live.file_names()}


PARTS = {"tensors": contract.Tensors, "parts": contract.Eager}


def parameters_of_function(function):
    return [(one.name, one.kind) for one in inspect.signature(function).parameters.values() if one.name != "self"]


@pytest.mark.parametrize("part", PARTS)
def test_every_function_has_the_parameters_of_the_contract(kit, part):
    found = getattr(kit.framework, part)
    for name, function in vars(PARTS[part]).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            ours, theirs = parameters_of_function(function), parameters_of_function(getattr(found, name))
            assert [kind for _, kind in ours] == [kind for _, kind in theirs], name


def test_capabilities_follow_from_the_parts(kit):
    assert kit.framework.name in known_names()
    assert {"watch", "gradient", "update", "float64", "isolate"} <= kit.framework.can
    assert ("operators" in kit.framework.can) is (
        type(kit.framework.eager).each_kernel is not contract.Eager.each_kernel
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_arrays_go_into_tensors_and_come_back(kit, dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = kit.tensors.tensor(array)
    assert kit.tensors.is_tensor(tensor)
    assert not kit.tensors.is_tensor(array)
    assert kit.tensors.facts(tensor)[:2] == ((2, 3), dtype)
    np.testing.assert_array_equal(kit.tensors.view(tensor)[0], array)


def test_tensor_is_a_copy_in_the_dtype_asked_for(kit):
    array = np.ones(3, np.float32)
    tensor = kit.tensors.tensor(array, dtype="float64")
    array[:] = 7
    assert to_numpy(tensor).tolist() == [1.0, 1.0, 1.0]
    assert kit.tensors.facts(tensor).dtype == "float64"


def test_scalar_stays_a_scalar(kit):
    assert kit.tensors.facts(kit.tensors.tensor(np.array(2.0, np.float32))).shape == ()


def test_tree_has_every_module_and_parameter_once(kit):
    tree = Tree(kit.framework)
    tree.add(Root("", kit.model()))
    assert [node.path for node in tree.nodes] == ["", "first", "second"]
    assert [node.kind for node in tree.nodes] == ["", "linear", "linear"]
    assert len(tree.slots) == 4
    assert {slot.node.path for slot in tree.slots} == {"first", "second"}


def test_modules_have_names_and_kinds(kit):
    found = dict(named_modules(kit.framework, {"a": kit.model()}))
    assert list(found) == ["a", "a.first", "a.second"]
    assert kind_of_module(kit.framework, found["a.first"]) == "linear"


def test_setting_is_changed_under_the_name_it_is_read_by(kit):
    module = kit.model().first
    modules = kit.framework.eager
    vars(module)["_slope"] = 0.1
    assert modules.settings(module)["slope"] == 0.1
    modules.set_setting(module, "slope", 0.2)
    assert modules.settings(module)["slope"] == 0.2


def test_values_are_written_in_place(kit):
    module = kit.model().first
    hooks, own = kit.framework.eager, kit.framework.eager.own
    before = own(module)[0].tensor
    wanted = np.full(kit.tensors.facts(before).shape, 3.0, np.float32)
    hooks.write(before, wanted)
    assert own(module)[0].tensor is before
    np.testing.assert_array_equal(to_numpy(before), wanted)
    assert hooks.takes_gradient(before)


def test_gradient_is_put_in_and_forgotten(kit):
    parameter = kit.framework.eager.own(kit.model().first)[0].tensor
    hooks = kit.framework.eager
    wanted = np.full(kit.tensors.facts(parameter).shape, 2.0, np.float32)
    hooks.set_gradient(parameter, wanted)
    np.testing.assert_array_equal(to_numpy(hooks.gradient(parameter)), wanted)
    hooks.set_gradient(parameter, None)
    assert hooks.gradient(parameter) is None


def test_backward_leaves_gradients_with_the_parameters(kit):
    model, hooks = kit.model(), kit.framework.eager
    value = hooks.backward(lambda: squares(model(kit.tensors.tensor(ROWS))))
    assert kit.tensors.facts(value).shape == ()
    for module in (model.first, model.second):
        for _, parameter in parameters_of(kit.framework.eager.own(module)):
            assert np.any(to_numpy(hooks.gradient(parameter)))


def test_calls_gradients_and_steps_are_reported_and_undone(kit):
    model, hooks = kit.model(), kit.framework.eager
    optimizer = kit.sgd(model)
    heard = []
    parameter = kit.framework.eager.own(model.first)[0].tensor
    undos = [
        hooks.on_call(model.first, lambda args, kwargs: heard.append("before"), lambda output: heard.append("after")),
        hooks.on_gradient(parameter, lambda gradient: heard.append("gradient")),
        hooks.on_backward(lambda tensors, accumulates: heard.append("begin"), lambda well: heard.append("end")),
        hooks.on_step(optimizer, lambda closure: heard.append("step"), lambda _: None, lambda: heard.append("stepped")),
    ]

    def train():
        hooks.backward(lambda: squares(model(kit.tensors.tensor(ROWS))))
        kit.framework.eager.step(optimizer)
        kit.framework.eager.clear(optimizer)

    train()
    assert heard == ["before", "after", "begin", "gradient", "end", "step", "stepped"]
    for undo in undos:
        undo()
        undo()
    train()
    assert len(heard) == 7


def test_what_a_hook_returns_stands_in_for_the_output(kit):
    model, hooks = kit.model(), kit.framework.eager
    given = kit.tensors.tensor(ROWS)
    undo = hooks.on_call(model.first, lambda args, kwargs: None, lambda output: hooks.multiply(output, np.zeros(4)))
    assert not np.any(to_numpy(model.first(given)))
    undo()
    assert np.any(to_numpy(model.first(given)))


def test_hook_is_told_when_a_call_fails(kit):
    model, heard = kit.model(), []
    undo = kit.framework.eager.on_call(model.first, lambda args, kwargs: None, heard.append)
    with pytest.raises(Exception):  # noqa: B017  # each framework has its own
        model.first(kit.tensors.tensor(ROWS[:, :2]))
    assert heard == [None]
    undo()


def test_copy_of_a_hooked_model_reports_nothing(kit):
    model, heard = kit.model(), []
    undo = kit.framework.eager.on_call(model.first, lambda args, kwargs: heard.append(1), lambda output: None)
    copy.deepcopy(model)(kit.tensors.tensor(ROWS))
    assert heard == []
    undo()


def test_optimizer_is_described(kit):
    model = kit.model()
    optimizer, optimizers = kit.sgd(model), kit.framework.eager
    assert optimizers.is_optimizer(optimizer)
    assert not optimizers.is_optimizer(model)
    assert len(optimizers.parameters_of(optimizer)) == 4
    assert optimizers.rates(optimizer) == [pytest.approx(0.1)]
    assert optimizers.describe(optimizer)["type"] == "SGD"
    assert [one.lr for one in optimizers.treatments(optimizer)] == [pytest.approx(0.1)] * 4


def test_stand_ins_leave_the_model_as_it_was(kit):
    model = kit.model()
    before, tensor = state_of(model), kit.framework.eager.own(model.first)[0].tensor
    zeros = {id(tensor): np.zeros(kit.tensors.facts(tensor).shape, np.float32)}
    given = kit.tensors.tensor(ROWS)
    plain = to_numpy(model(given))
    with undisturbed(kit.framework, model), stand_ins(kit.framework, model, zeros, None):
        assert not np.array_equal(to_numpy(model(given)), plain)
    with undisturbed(kit.framework, model), stand_ins(kit.framework, model, {}, "float64"):
        wide = to_numpy(model(kit.tensors.tensor(ROWS.astype(np.float64))))
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, plain, rtol=1e-5, atol=1e-6)
    assert kit.framework.eager.own(model.first)[0].tensor is tensor
    for name, array in state_of(model).items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_run_repeats_itself_and_leaves_the_side_alone(program, dtype):
    model = program.model()
    before = state_of(model)
    side = Side(model, loss=program.loss, optimizer=program.sgd)
    runs = [
        runner_of(program.framework).run(side, batches_of((ROWS,), None, 2), Scope(dtype=dtype, run="x"))
        for _ in range(2)
    ]
    assert {entry.key.run for entry in runs[0].entries} == {"x"}
    assert {entry.key.phase for entry in runs[0].entries} >= {"forward", "loss", "backward", "gradient", "update"}
    for one, other in zip(runs[0].entries, runs[1].entries, strict=True):
        assert one.key == other.key
        np.testing.assert_array_equal(one.array(), other.array())
    assert runs[0].entries[0].dtype == (dtype or "float32")
    for name, array in state_of(model).items():
        np.testing.assert_array_equal(array, before[name])


def test_gradients_are_put_in_while_it_runs(program):
    side = Side(program.model(), loss=program.loss, optimizer=program.sgd)
    name = next(iter(state_of(side.model)))
    wanted = np.full(state_of(side.model)[name].shape, 0.5, np.float32)
    batches, scope = batches_of((ROWS,), None, 1), Scope(gradients={0: {name: wanted}})
    recording = runner_of(program.framework).run(side, batches, scope)
    np.testing.assert_allclose(recording[f"step0/update/{name}"].array(), -0.1 * wanted, rtol=1e-5)
    assert not np.array_equal(recording[f"step0/gradient/{name}:raw"].array(), wanted)


def test_layer_is_run_alone_as_it_was_called(program):
    side = Side(program.model(), loss=program.loss)
    runner = runner_of(program.framework)
    calls = {call.path: call for call in runner.calls(side, ((ROWS,), None))}
    assert list(calls) == ["first", "second", ""]
    given = calls["second"]
    ones = np.ones((4, 3), np.float32)
    found = runner.call(side, "second", given, Scope(), lambda role, shape: ones)
    assert list(found.outputs) == ["output"]
    assert found.input_gradients["input.0"].shape == (4, 4)
    assert len(found.parameter_gradients) == 2
    np.testing.assert_allclose(
        found.parameter_gradients[
            min(found.parameter_gradients, key=lambda name: found.parameter_gradients[name].ndim)
        ],
        ones.sum(0),
    )
    wide = runner.call(side, "second", given, Scope(dtype="float64"), lambda role, shape: ones)
    assert wide.outputs["output"].dtype == np.float64


def test_model_is_known_by_names_and_arrays(program):
    live = live_model(program.model())
    assert [(one.path, one.parent) for one in live.modules] == [("", None), ("first", ""), ("second", "")]
    layer = live.modules[1]
    assert kind_of(layer.classes, program.framework.name) == "linear"
    assert sorted(len(layer.inside[name].shape) for name in layer.own) == [1, 2]
    assert all(one.trained for one in layer.inside.values())
    for name, first in live.file_names().items():
        assert live.read(name).shape == live.read(first).shape


def test_values_are_written_all_at_once(program):
    model = program.model()
    before = state_of(model)
    written = live_model(model).write({name: array + 1 for name, array in before.items()})
    for name, array in state_of(written).items():
        np.testing.assert_array_equal(array, before[name] + 1)


def test_first_calls_are_those_of_a_run_in_evaluation_mode(program):
    live = live_model(program.model())
    calls = live.calls((ROWS,), {}, paths=("first", "second"), arrays={})
    assert list(calls) == ["first", "second", ""]
    np.testing.assert_array_equal(calls["first"].inputs[0], ROWS)
    np.testing.assert_array_equal(calls["second"].inputs[0], calls["first"].outputs[0])
    zeros = {name: np.zeros_like(array) for name, array in state_of(live.model).items()}
    changed = live.calls((ROWS,), {}, paths=("second",), arrays=zeros)
    assert list(changed) == ["second", ""]
    assert not np.any(changed[""].outputs[0])
    wide = live.call("first", (ROWS.astype(np.float64),), arrays={}, dtype="float64")
    assert wide[0].dtype == np.float64
    np.testing.assert_allclose(wide[0], calls["first"].outputs[0], rtol=1e-5, atol=1e-6)


def test_values_of_a_scope_stand_in_for_one_run(program):
    side, runner = Side(program.model()), runner_of(program.framework)
    before = state_of(side.model)
    changed = next(name for name, array in before.items() if name.startswith("second.") and array.ndim == 1)
    scope = Scope(state={changed: before[changed] + 1}, evaluation=True)
    batches = batches_of((ROWS,), None, 1)
    plain, moved = (runner.run(side, batches, one)["step0/forward/#0:output"].array() for one in (Scope(), scope))
    np.testing.assert_allclose(moved, plain + 1, rtol=1e-6)
    call = next(one for one in runner.calls(side, batches[0]) if one.path == "second")
    alone = runner.call(side, "second", call, scope, lambda role, shape: None)
    np.testing.assert_allclose(alone.outputs["output"], moved, rtol=1e-5, atol=1e-6)
    for name, array in state_of(side.model).items():
        np.testing.assert_array_equal(array, before[name])


def test_function_is_evaluated_with_the_gradients_of_its_arguments(kit):
    found = runner_of(kit.framework).evaluate(kit.framework, lambda x: {"a": squares(x)}, [ROWS], "float64")
    np.testing.assert_allclose(found.outputs["a"], np.mean(ROWS.astype(np.float64) ** 2))
    np.testing.assert_allclose(found.input_gradients["input.0"], 2 * ROWS.astype(np.float64) / ROWS.size)


def test_random_state_is_put_back(kit):
    process = kit.framework.eager
    process.seed(3)
    before = process.random_state()
    with process.precision("float64") if kit.name != "gear" else nullcontext():
        process.seed(4)
    process.set_random_state(before)
    assert kit.framework.version is not None


def test_operators_are_recorded_with_lines_where_the_framework_can(kit):
    side = Side(kit.model(), loss=squares)
    runner = runner_of(kit.framework)
    call = next(one for one in runner.calls(side, ((ROWS,), None)) if one.path == "")
    if "operators" not in kit.framework.can:
        with pytest.raises(contract.CaptureError, match="operators of gear"):
            runner.operators_of_call(side, "", call, Scope(), lambda role, shape: None)
        return
    trace = runner.operators_of_call(side, "", call, Scope(), lambda role, shape: np.ones(shape, np.float32))
    assert any("test_contract.py" in one.line for one in trace.operators)
    assert trace.results
    assert trace.gradients
