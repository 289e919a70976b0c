"""Isolation: every module alone, on the reference's own input and a fixed gradient of its output.

A module's own error then stands apart from what it inherited from those before it.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reprod_log.capture import flatten, to_numpy
from reprod_log.errors import first_line
from reprod_log.experiments.masks import Masks, shared_masks
from reprod_log.experiments.program import Program, cast_floating
from reprod_log.frameworks.nests import is_portable, mapped
from reprod_log.layers.arrangement import canonical_output
from reprod_log.recording import Array, Entry, Key
from reprod_log.recording.recorder import Recorder


@dataclass(frozen=True)
class Call:
    """What a module was given at its first call, with arrays in place of tensors."""

    path: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: Mapping[str, tuple[int, ...]]
    """Shapes of the floating outputs by role."""
    exchanged: bool = False
    """Whether the module to be run wants time and batch the other way round."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """What the reference calls each argument, where that is not what it is called here."""
    shared: frozenset[str] | None = None
    """The outputs that the partner gives as well, which alone are given gradients; None: all."""


def first_calls(program: Program, inputs: Any, targets: Any = None) -> list[Call]:
    """The first call of every module that was given tensors and plain values only, children before parents."""
    model = program.fresh()
    framework = program.framework
    pending: dict[str, list[tuple[Any, Any]]] = {}
    calls: dict[str, Call] = {}
    undo = []

    def attach(path: str, module: Any) -> None:
        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            pending.setdefault(path, []).append((_arrays(args, framework), _arrays(kwargs, framework)))

        def after(output: Any) -> None:
            args, kwargs = pending[path].pop()
            if path in calls or output is None or not is_portable((args, kwargs)):
                return
            shapes = {
                role: tuple(int(size) for size in tensor.shape)
                for role, tensor in flatten(canonical_output(framework.kind(module), output), "output")
                if framework.is_tensor(tensor) and framework.dtype_of(tensor).startswith("float")
            }
            calls[path] = Call(path, args, kwargs, shapes)

        undo.append(framework.on_call(module, before, after))

    state = framework.rng_state()
    try:
        framework.seed(0)
        for path, module in program.modules(model):
            attach(path, module)
        with shared_masks(program, model, Masks(seed=0)):
            given = program.tensors(inputs, None)
            if program.step is None:
                program.call(model, given)
            else:
                # Only the loop itself knows how it calls its models.
                optimizer, _ = program.make_optimizer(model)
                program.iterate(model, optimizer, given, None if targets is None else program.tensors(targets, None))
    finally:
        for one in undo:
            one()
        framework.set_rng_state(state)
    return list(calls.values())


def run_isolated(
    program: Program,
    calls: Sequence[Call],
    *,
    run: str,
    dtype: str | None,
    paths: Mapping[str, str],
    exchanged: Collection[str] = (),
    change: Callable[[Any], None] | None = None,
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Entries of every module run alone, and notes about those that could not be.

    `paths` maps the reference's paths (those of `calls`) to this program's; modules in `exchanged` want time and batch
    the other way round. `change` mends each module (a copy) before it is run.
    """
    framework = program.framework
    recorder = Recorder()
    notes: list[str] = []
    state = framework.rng_state()
    try:
        with program.hands.precision(dtype) if dtype is not None else nullcontext():
            modules = dict(program.modules(program.fresh(dtype)))
            for call in calls:
                path = paths.get(call.path)
                if path is None or path not in modules:
                    continue
                framework.seed(0)
                given = replace(call, exchanged=True) if call.path in exchanged else call
                module = copy.deepcopy(modules[path])
                try:
                    if change is not None:
                        change(module)
                    _run_one(program, given, path, module, recorder, run, dtype)
                except Exception as error:  # a layer may raise anything on a foreign input; the reason is kept
                    notes.append(f"{path} ({framework.NAME}) could not be run alone{_in(dtype)}: {first_line(error)}")
    finally:
        framework.set_rng_state(state)
    return recorder.close().entries, tuple(notes)


def _run_one(
    program: Program, call: Call, path: str, module: Any, recorder: Recorder, run: str, dtype: str | None
) -> None:
    framework, hands = program.framework, program.hands
    leaves: list[tuple[str, Any]] = []
    arguments = tuple(_exchanged(arg) for arg in call.args) if call.exchanged else call.args
    args = tuple(as_leaves(arg, f"input.{place}", dtype, hands, leaves) for place, arg in enumerate(arguments))
    named = {name: _exchanged(arg) if call.exchanged else arg for name, arg in call.kwargs.items()}
    kwargs = {name: as_leaves(arg, f"input.{name}", dtype, hands, leaves) for name, arg in named.items()}
    kind = type(module).__name__
    with shared_masks(program, module, Masks(seed=0)):
        output = canonical_output(framework.kind(module), module(*args, **kwargs))
    found = [(role, tensor) for role, tensor in flatten(output, "output") if framework.is_tensor(tensor)]
    entries: list[tuple[Key, Array]] = []
    for role, tensor in found:
        entries.append((Key(path, "forward", 0, 0, role, run), to_numpy(tensor)))
    if backward_from(program, call, output):
        for role, tensor in leaves:
            gradient = framework.gradient(tensor)
            if gradient is not None:
                entries.append((Key(path, "backward", 0, 0, call.roles.get(role, role), run), to_numpy(gradient)))
        for name, parameter in _parameters(program, module, path):
            gradient = framework.gradient(parameter)
            if gradient is not None:
                entries.append((Key(name, "gradient", 0, None, "raw", run, region=call.path), to_numpy(gradient)))
    for name, buffer in _buffers(program, module, path):
        entries.append((Key(name, "buffer", 0, None, "", run, region=call.path), to_numpy(buffer)))
    for key, array in entries:
        recorder.add(key, array, layer_type=kind)


def backward_from(program: Program, call: Call, output: Any) -> bool:
    """Run the backward pass of a module that was run alone; False when nothing of its output has a gradient."""
    framework = program.framework
    weighted = [
        program.hands.total(tensor, cotangent(call, role, tuple(int(size) for size in tensor.shape)))
        for role, tensor in flatten(output, "output")
        if framework.is_tensor(tensor)
        and framework.dtype_of(tensor).startswith("float")
        and (call.shared is None or plain_role(role) in call.shared)
    ]
    differentiable = [one for one in weighted if _differentiable(one)]
    if not differentiable:
        return False
    total = differentiable[0]
    for one in differentiable[1:]:
        total = total + one
    total.backward()
    return True


def _exchanged(value: Any) -> Any:
    return value.swapaxes(0, 1) if isinstance(value, np.ndarray) and value.ndim == 3 else value


def cotangent(call: Call, role: str, shape: tuple[int, ...]) -> Array:
    """The gradient given to an output: the same for both sides, different for every module."""
    seed = hashlib.blake2b(f"{call.path}:{plain_role(role)}".encode(), digest_size=8).digest()
    generator = np.random.default_rng(int.from_bytes(seed, "little"))
    if call.exchanged and role in ("output", "output.0") and len(shape) == 3:
        return generator.standard_normal((shape[1], shape[0], shape[2])).swapaxes(0, 1).astype(np.float32)
    return generator.standard_normal(shape).astype(np.float32)


def plain_role(role: str) -> str:
    """The role of an output: a lone one is 'output' on one side and may be 'output.0' on the other."""
    return role.removesuffix(".0")


def as_leaves(value: Any, role: str, dtype: str | None, hands: Any, leaves: list[tuple[str, Any]]) -> Any:
    """The value with arrays as tensors that collect gradients, each remembered under its role."""

    def convert(name: str, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        tensor = hands.leaf(cast_floating(leaf, dtype))
        if leaf.dtype.kind != "f":
            return tensor
        leaves.append((name, tensor))
        # A module may work in place, which a tensor that collects gradients does not allow.
        return tensor * 1

    return mapped(value, convert, role)


def _differentiable(scalar: Any) -> bool:
    return bool(getattr(scalar, "requires_grad", not getattr(scalar, "stop_gradient", False)))


def _parameters(program: Program, module: Any, path: str) -> list[tuple[str, Any]]:
    framework = program.framework
    found = _named(program, module, path, framework.parameters)
    return [(name, parameter) for name, parameter in found if framework.takes_gradient(parameter)]


def _buffers(program: Program, module: Any, path: str) -> list[tuple[str, Any]]:
    framework = program.framework
    found = _named(program, module, path, framework.buffers)
    return [(name, buffer) for name, buffer in found if framework.dtype_of(buffer).startswith("float")]


def _named(
    program: Program, module: Any, path: str, tensors_of: Callable[[Any], list[tuple[str, Any]]]
) -> list[tuple[str, Any]]:
    """Each tensor once, under its first name: shared weights, and layers that list their weights twice."""
    seen: dict[int, tuple[str, Any]] = {}
    for inner, part in program.modules(module):
        for name, tensor in tensors_of(part):
            seen.setdefault(id(tensor), (".".join(word for word in (path, inner, name) if word), tensor))
    return list(seen.values())


def _arrays(value: Any, framework: Any) -> Any:
    return mapped(value, lambda _, leaf: to_numpy(leaf) if framework.is_tensor(leaf) else leaf)


def _in(dtype: str | None) -> str:
    return f" in {dtype}" if dtype else ""
