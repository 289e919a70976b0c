"""Eager: programs of eager frameworks run from their start: recorded, one region alone, a function, its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from reprod_log.capture.operators import OperatorTrace, ProgramRecorder
from reprod_log.capture.probing import undisturbed
from reprod_log.capture.run import Run
from reprod_log.capture.stand_ins import Feeding, shared_masks
from reprod_log.capture.watching import watch
from reprod_log.frameworks import Framework
from reprod_log.frameworks.contract import Call, Cotangent, Evaluated, OwnTensor, Program, Runner, Trace
from reprod_log.frameworks.hooks import Undo
from reprod_log.frameworks.module_tree import (
    buffers_of,
    join,
    kind_of_module,
    modules_below,
    named_modules,
    parameters_of,
)
from reprod_log.frameworks.nests import flatten, is_portable, mapped
from reprod_log.frameworks.side import Batch, Masks, Scope, Side, as_mapping
from reprod_log.frameworks.tensors import cast_floating, plain_batch, to_numpy
from reprod_log.layers.arrangement import canonical_output
from reprod_log.progress import each
from reprod_log.recording import Array, Recording

_FLOATING = ("float", "bfloat")


def runner_of(framework: Framework) -> Runner:
    """The framework's own runner, or the one that all eager frameworks share."""
    return framework.programs or EAGER


class EagerRunner(Runner):
    """Runs programs of every eager framework; each run begins with a copy of the model and puts random state back."""

    def run(self, side: Side, batches: Sequence[Batch], scope: Scope) -> Recording:
        if scope.full_steps is None:
            return _run(side, batches, scope)
        first = _run(side, batches[: scope.full_steps], scope)
        if scope.full_steps >= len(batches):
            return first
        # Both start alike and repeat each other bit for bit, so the second continues the first.
        rest = _run(side, batches, replace(scope, phases=scope.brief))
        # An iteration may have several steps (updates).
        last = max(first.steps, default=-1)
        return replace(first, entries=(*first.entries, *(one for one in rest.entries if (one.key.step or 0) > last)))

    def calls(self, side: Side, batch: Batch) -> list[Call]:
        framework = side.framework
        calls: dict[str, Call] = {}
        with _started(side, None, Scope()) as model, ExitStack() as undo:
            for path, module in named_modules(framework, model):
                undo.callback(_record_first_call(framework, path, module, calls))
            undo.enter_context(shared_masks(framework, Masks()))
            inputs, targets = side.tensors(batch[0], side.narrow), side.tensors(batch[1], None)
            if side.step is None:
                side.call(model, inputs)
            else:
                # Only the loop itself knows how it calls its models.
                optimizer, _ = side.make_optimizer(model)
                side.iterate(model, optimizer, inputs, targets)
        return list(calls.values())

    def call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Evaluated:
        framework = side.framework
        # Masks last for the backward pass, which runs checkpointed parts again.
        with _started(side, path, scope) as module, shared_masks(framework, Masks()):
            given, leaves = as_leaves(framework, (call.args, dict(call.kwargs)), scope.dtype or side.narrow)
            output = _canonical(framework, module, module(*given[0], **given[1]))
            outputs = {role: to_numpy(tensor) for role, tensor in framework.tensors_in(output, "output")}
            gradients: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
            if _backward_from(framework, output, cotangent):
                parameters = _own(framework, module, parameters_of)
                trained = {path: one for path, one in parameters.items() if framework.eager.takes_gradient(one)}
                gradients = _gradients(framework, dict(leaves)), _gradients(framework, trained)
            buffers = {
                name: to_numpy(buffer)
                for name, buffer in _own(framework, module, buffers_of).items()
                if framework.tensors.facts(buffer).dtype.startswith(_FLOATING)
            }
        return Evaluated(outputs, *gradients, buffers, type(module).__name__)

    def evaluate(
        self, framework: Framework, function: Callable[..., Any], arguments: Sequence[Any], dtype: str | None
    ) -> Evaluated:
        (given, _), leaves = as_leaves(framework, (tuple(arguments), {}), dtype, in_place=False)
        terms: list[tuple[str, Any]] = []

        def total() -> Any:
            terms.extend(flatten(function(*given)))
            return reduce(add, [term for _, term in terms])

        framework.eager.backward(total)
        outputs = {role: to_numpy(term) for role, term in terms}
        return Evaluated(outputs, _gradients(framework, dict(leaves)))

    def operators_of_call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Trace:
        framework = side.framework
        listener = OperatorTrace(framework)
        with _started(side, path, scope) as module, shared_masks(framework, Masks()):
            (args, kwargs), _ = as_leaves(framework, (call.args, dict(call.kwargs)), scope.dtype)
            listener.given((args, kwargs))
            with listener.recording():
                output = _canonical(framework, module, module(*args, **kwargs))
            listener.gave(output)
            _backward_from(framework, output, cotangent)
        return listener.trace()

    def operators_of_loss(self, side: Side, batch: Batch, scope: Scope) -> Trace:
        framework, hooks = side.framework, side.framework.eager
        listener = OperatorTrace(framework)

        with _started(side, None, scope) as model, shared_masks(framework, Masks()), ExitStack() as undo:
            inputs, targets = (None if one is None else side.tensors(one, scope.dtype) for one in batch)
            listener.given((inputs, targets))
            optimizer, _ = side.make_optimizer(model)
            if scope.stand_ins is not None:
                undo.enter_context(Feeding(framework, scope.stand_ins, lambda: 0).attached(model, {}))
            for one in as_mapping(model).values():
                undo.callback(hooks.on_call(one, listener.pause, listener.resume))
            undo.callback(hooks.on_backward(listener.pause, lambda _: listener.resume()))
            with listener.recording():
                side.iterate(model, optimizer, inputs, targets)
        return listener.trace().to_results()

    def program(self, side: Side, batch: Batch, scope: Scope) -> Program:
        framework = side.framework
        with _started(side, None, scope) as model, ExitStack() as undo:
            modules = dict(named_modules(framework, model))
            for module in modules.values():
                _without_dropout(framework, module)
            for one in as_mapping(model).values() if scope.evaluation else ():
                undo.enter_context(undisturbed(framework, one))
            undo.enter_context(framework.eager.masked(lambda shape, rate: None))
            recorder = ProgramRecorder(framework, _own(framework, model, _kept_tensors), scope.spool)
            inputs, targets = (side.tensors(one, scope.dtype) for one in batch)
            recorder.given(inputs, "input")
            recorder.given(targets, "target")
            if side.step is not None:
                _listen_to_models(framework, as_mapping(model), modules, recorder, undo)
                optimizer, _ = side.make_optimizer(model)
                side.iterate(model, optimizer, inputs, targets)
                return recorder.program
            with recorder.recording(modules):
                outputs = side.call(model, inputs)
                recorder.gave(outputs, "output")
                if side.loss is not None:
                    recorder.gave(side.loss_of(outputs, targets), "loss")
        return recorder.program


def _listen_to_models(
    framework: Framework,
    models: Mapping[str, Any],
    modules: Mapping[str, Any],
    recorder: ProgramRecorder,
    undo: ExitStack,
) -> None:
    """Record the kernels of these models' calls until the first backward pass: what lies between is the user's loop."""
    open_calls: list[ExitStack] = []
    done: list[str] = []

    def attach(name: str, model: Any) -> Undo:
        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not open_calls and not done:
                recorder.given((args, kwargs), f"call{len(recorder.program.results)}")
                listening = ExitStack()
                listening.enter_context(recorder.recording(modules, gradients=True))
                open_calls.append(listening)

        def after(output: Any) -> None:
            if open_calls:
                open_calls.pop().close()
                recorder.gave(output, f"{name or 'output'}{len(recorder.program.results)}")

        return framework.eager.on_call(model, before, after)

    for name, model in models.items():
        undo.callback(attach(name, model))
    undo.callback(framework.eager.on_backward(lambda *_: done.append("backward"), lambda _: None))


def _kept_tensors(own: list[OwnTensor]) -> list[tuple[str, Any]]:
    return [(one.name, one.tensor) for one in own if one.has_values and not one.counter]


def _without_dropout(framework: Framework, module: Any) -> None:
    """Take away the dropout that a layer has inside a kernel of its own (a recurrent one between its layers)."""
    if isinstance(framework.eager.settings(module).get("dropout"), float):
        framework.eager.set_setting(module, "dropout", 0.0)


EAGER = EagerRunner()


def is_compiled(side: Side) -> bool:
    """Whether a module of the side's models runs as something else than its Python code."""
    models = as_mapping(side.model).values()
    return any(side.framework.eager.opaque(one) for model in models for one in modules_below(side.framework, model))


@contextmanager
def _started(side: Side, path: str | None, scope: Scope, *, compiled: bool = False) -> Iterator[Any]:
    """A copy of the model, or of one module of it, as a run of this scope begins; random state is put back.

    What records the inside of a model requires it to run uncompiled.
    """
    framework, process = side.framework, side.framework.eager
    with ExitStack() as undo:
        undo.callback(process.set_random_state, process.random_state())
        if not compiled:
            undo.enter_context(process.uncompiled())
        if scope.dtype is not None and not scope.emulated:
            undo.enter_context(process.precision(scope.dtype))
        process.seed(scope.seed)
        made = side.copied(side.model if path is None else side.modules[path], scope.dtype)
        if path is not None:
            for place, module in named_modules(framework, made):
                if (mode := side.training.get(join(path, place) if place else path)) is not None:
                    process.set_setting(module, "training", mode)
        if scope.state or scope.settings:
            _put_in_scope(framework, made, path or "", scope)
        if scope.evaluation:
            for one in as_mapping(made).values():
                undo.enter_context(framework.eager.quiet(one))
        if scope.emulated:
            undo.enter_context(_emulated(framework, made, scope))
        yield made


@contextmanager
def _emulated(framework: Framework, made: Any, scope: Scope) -> Iterator[None]:
    """Kernels in a narrow type; where the model itself is not of it, during its calls, as autocast chooses them."""
    emulation = framework.eager.operators
    assert emulation is not None
    with ExitStack() as undo:
        if scope.dtype is None:
            for model in as_mapping(made).values():
                undo.callback(_autocast_calls(framework, model, emulation.autocast, scope.emulated))
        undo.enter_context(emulation.emulated(scope.emulated))
        yield


def _autocast_calls(framework: Framework, model: Any, autocast: Callable[[str], Any], dtype: str) -> Undo:
    opened: list[ExitStack] = []

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        opened.append(ExitStack())
        opened[-1].enter_context(autocast(dtype))

    def after(output: Any) -> None:
        opened.pop().close()

    return framework.eager.on_call(model, before, after)


def _put_in_scope(framework: Framework, made: Any, path: str, scope: Scope) -> None:
    """Give a copy the values and settings of the scope in place of its own."""
    modules = framework.eager
    for place, module in named_modules(framework, made):
        for name, value in scope.settings.get(join(path, place) if place else path, {}).items():
            modules.set_setting(module, name, value)
        for one in modules.own(module):
            array = scope.state.get(".".join(part for part in (path, place, one.name) if part))
            if array is not None:
                framework.eager.write(one.tensor, array)
        modules.refresh(module)


def _run(side: Side, batches: Sequence[Batch], scope: Scope) -> Recording:
    framework, dtype = side.framework, scope.dtype
    with _started(side, None, scope, compiled=not scope.emulated) as model, ExitStack() as undo:
        optimizer, scheduler = side.make_optimizer(model)
        masks = Masks()
        if not is_compiled(side):
            # Compiled code has its random numbers inside.
            undo.enter_context(shared_masks(framework, masks))
        seen: list[Run] = []
        injection = _Injection(framework, dict(_parameters(framework, model)))

        def after_backward(returned: Sequence[tuple[Any, Any]] | None) -> None:
            if returned is not None and seen:
                # By the number that the gradients were recorded with: an iteration may have several updates.
                injection.put_in(scope.gradients.get(seen[0].step_number, {}))

        # Watched before gradients are put in, so that what is recorded as the raw gradient is what was computed.
        def watching() -> Run:
            return watch(model, optimizer=optimizer, run=scope.run, phases=scope.phases).keep_in(scope.spool)

        if not scope.record_given:
            seen.append(undo.enter_context(watching()))
        if scope.gradients:
            undo.callback(framework.eager.on_backward(injection.take_out, after_backward))
        if scope.record_given:
            seen.append(undo.enter_context(watching()))
        watched = seen[0]
        if scope.stand_ins is not None:
            feeding = Feeding(framework, scope.stand_ins, lambda: watched.step_number)
            undo.enter_context(feeding.attached(model, dict(_parameters(framework, model))))
        for inputs, targets in each("progress.steps", batches):
            # A loss is given its targets as they are, whatever the model computes in.
            wanted = side.tensors(targets, None if scope.emulated else dtype)
            side.iterate(model, optimizer, side.tensors(inputs, dtype or side.narrow), wanted)
            if optimizer is None and side.loss is not None:
                watched.end_step()
                _forget_gradients(framework, model)
            if scheduler is not None:
                scheduler.step()
            masks.next_step()
    return watched.recording


@dataclass
class _Injection:
    """Gradients in the place of computed ones, to which a further backward pass of the step adds as it would."""

    framework: Framework
    parameters: Mapping[str, Any]
    computed: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    """By parameter: the gradient that was there, and what was put in its place."""

    def put_in(self, gradients: Mapping[str, Array]) -> None:
        own = _gradients(self.framework, {name: one for name, one in self.parameters.items() if name in gradients})
        for name in gradients.keys() & self.parameters.keys():
            self.framework.eager.set_gradient(self.parameters[name], gradients[name])
        put = _gradients(self.framework, {name: self.parameters[name] for name in own})
        self.computed = {name: (array, put[name]) for name, array in own.items() if name in put}

    def take_out(self, *_: Any) -> None:
        now = _gradients(self.framework, {name: self.parameters[name] for name in self.computed})
        for name, (array, put) in self.computed.items():
            # What was cleared since is gone.
            if name in now and np.array_equal(now[name], put):
                self.framework.eager.set_gradient(self.parameters[name], array)
        self.computed = {}


def _forget_gradients(framework: Framework, model: Any) -> None:
    for _, parameter in _parameters(framework, model):
        framework.eager.set_gradient(parameter, None)


def _parameters(framework: Framework, model: Any) -> Iterator[tuple[str, Any]]:
    for path, module in named_modules(framework, model):
        for name, parameter in parameters_of(framework.eager.own(module)):
            yield join(path, name), parameter


def _own(
    framework: Framework, module: Any, tensors_of: Callable[[list[OwnTensor]], list[tuple[str, Any]]]
) -> dict[str, Any]:
    """Each tensor once, under its first name: shared weights, and layers that list their weights twice."""
    first: dict[int, tuple[str, Any]] = {}
    for path, part in named_modules(framework, module):
        for name, tensor in tensors_of(framework.eager.own(part)):
            first.setdefault(id(tensor), (join(path, name), tensor))
    return dict(first.values())


def _gradients(framework: Framework, tensors: Mapping[str, Any]) -> dict[str, Array]:
    found = {name: framework.eager.gradient(tensor) for name, tensor in tensors.items()}
    return {name: to_numpy(gradient) for name, gradient in found.items() if gradient is not None}


def _record_first_call(framework: Framework, path: str, module: Any, calls: dict[str, Call]) -> Undo:
    pending: list[tuple[Any, Any]] = []

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        pending.append((plain_batch(args), plain_batch(kwargs)))

    def after(output: Any) -> None:
        args, kwargs = pending.pop()
        if path in calls or output is None or not is_portable((args, kwargs)):
            return
        found = framework.tensors_in(_canonical(framework, module, output), "output")
        facts = [(role, framework.tensors.facts(one)) for role, one in found]
        shapes = {role: one.shape for role, one in facts if one.dtype.startswith(_FLOATING)}
        calls[path] = Call(path, args, kwargs, shapes)

    return framework.eager.on_call(module, before, after)


def _canonical(framework: Framework, module: Any, output: Any) -> Any:
    return canonical_output(kind_of_module(framework, module), output)


def as_leaves(
    framework: Framework, given: tuple[tuple[Any, ...], dict[str, Any]], dtype: str | None, *, in_place: bool = True
) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], list[tuple[str, Any]]]:
    """Positional and named arguments with arrays as tensors that collect gradients, and these by role (`input.0`).

    With `in_place`, what they are given to may write into its arguments.
    """
    leaves: list[tuple[str, Any]] = []

    def convert(role: str, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        tensor = framework.tensors.tensor(cast_floating(leaf, dtype), gradient=True)
        if not framework.tensors.facts(tensor).dtype.startswith(_FLOATING):
            return tensor
        leaves.append((role, tensor))
        # A tensor that collects gradients may not be written in place.
        return tensor * 1 if in_place else tensor

    args, kwargs = (mapped(one, convert, "input") for one in given)
    return (args, kwargs), leaves


def _backward_from(framework: Framework, output: Any, cotangent: Cotangent) -> bool:
    """Run the backward pass of a module that was run alone; False when nothing of its output has a gradient."""
    hooks = framework.eager
    weighted = []
    for role, tensor in framework.tensors_in(output, "output"):
        facts = framework.tensors.facts(tensor)
        weights = cotangent(role, facts.shape) if facts.dtype.startswith(_FLOATING) else None
        if weights is not None:
            weighted.append(hooks.multiply(tensor, weights).sum())
    differentiable = [one for one in weighted if hooks.takes_gradient(one)]
    if not differentiable:
        return False
    hooks.backward(lambda: reduce(add, differentiable))
    return True
