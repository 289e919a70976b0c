"""The two models of a port, made from a seed; the candidate loaded by the hand-written converter or fresh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import paddle
import torch

from ports.port import Formulation, Port, State


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """New models and constants in this floating type."""
    before = torch.get_default_dtype(), paddle.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before[0])
        paddle.set_default_dtype(before[1])


def parts(model: Any) -> Mapping[str, Any]:
    return model if isinstance(model, Mapping) else {"": model}


def tensors_of(model: Any) -> dict[str, Any]:
    """Parameters and persistent buffers by name (the model's in front); what is shared under its first name."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for prefix, one in parts(model).items():
        kept = one.state_dict(keep_vars=True) if isinstance(one, torch.nn.Module) else one.state_dict()
        for name, tensor in [*one.named_parameters(), *kept.items()]:
            full = f"{prefix}.{name}" if prefix else name
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found[full] = tensor
    return found


def state_of(model: Any) -> State:
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors_of(model).items()}


def load(model: Any, state: State, unused: tuple[str, ...] = ()) -> None:
    """Fill a model by name. Every tensor must be given, in its own shape, and nothing else."""
    tensors = tensors_of(model)
    missing = [n for n in tensors if n not in state and not n.startswith(unused or ("\0",))]
    if missing or set(state) - set(tensors):
        raise AssertionError(f"not converted: {missing}; not in the model: {sorted(set(state) - set(tensors))}")
    for name, array in state.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != np.shape(array):
            raise AssertionError(f"{name} has shape {tuple(tensor.shape)}, the converter gives {np.shape(array)}")
        if isinstance(tensor, torch.Tensor):
            with torch.no_grad():
                tensor.copy_(torch.from_numpy(np.array(array)))
        else:
            kind = str(tensor.dtype).rpartition(".")[2]
            tensor.set_value(np.array(array, dtype=kind, order="C"))


def make_generic(model: Any, seed: int, kept: frozenset[str] = frozenset()) -> None:
    """Weights that no exchange and no missing term leaves unchanged: no zeros, no ones, other statistics."""
    generator = np.random.default_rng(7000 + seed)
    with torch.no_grad():
        for name, tensor in tensors_of(model).items():
            if name in kept or not tensor.is_floating_point():
                continue
            if name.endswith("running_var"):
                tensor.copy_(torch.from_numpy(generator.uniform(0.5, 1.5, tensor.shape)))
            elif tensor.ndim < 2 or float(tensor.std()) == 0.0:
                tensor.add_(torch.from_numpy(np.asarray(0.2 * generator.normal(size=tuple(tensor.shape)))))


def make_pair(port: Port, formulation: Formulation, seed: int, *, loaded: bool) -> tuple[Any, Any]:
    """(torch model, paddle model) in the default precision; both hold one function's weights if `loaded`."""
    torch.manual_seed(seed)
    paddle.seed(seed + 100)
    ours, theirs = port.reference(), formulation.make()
    make_generic(ours, seed, port.kept)
    if loaded:
        load(theirs, formulation.convert(state_of(ours)), formulation.unused)
    for model in (ours, theirs):
        for one in parts(model).values():
            one.train() if port.mode == "train" else one.eval()
    return ours, theirs


def sources(port: Port, formulation: Formulation, seed: int = 0) -> dict[str, frozenset[str]]:
    """The true weight map: of each tensor of the formulation, the tensors of the reference that it is made of."""
    torch.manual_seed(seed)
    reference = port.reference()
    make_generic(reference, seed, port.kept)
    state = state_of(reference)
    plain = formulation.convert(state)
    found: dict[str, set[str]] = {name: set() for name in plain}
    for old, array in state.items():
        moved = formulation.convert({**state, old: array + 1})
        for new, value in plain.items():
            if not np.array_equal(value, moved[new]):
                found[new].add(old)
    return {name: frozenset(old) for name, old in found.items()}


def batch(port: Port, seed: int) -> tuple[dict[str, np.ndarray], Any]:
    generator = np.random.default_rng(1000 + seed)
    inputs = {name: kind.draw(generator) for name, kind in port.inputs.items()}
    return inputs, _draw(port.targets, generator)


def _draw(kind: Any, generator: np.random.Generator) -> Any:
    if isinstance(kind, Mapping):
        return {name: one.draw(generator) for name, one in kind.items()}
    return None if kind is None else kind.draw(generator)


def flat(outputs: Any) -> list[Any]:
    """The tensors of whatever a model returns, in order."""
    if outputs is None:
        return []
    if is_dataclass(outputs):
        return [one for field in fields(outputs) for one in flat(getattr(outputs, field.name))]
    if isinstance(outputs, Mapping):
        return [one for value in outputs.values() for one in flat(value)]
    if isinstance(outputs, (tuple, list)):
        return [one for value in outputs for one in flat(value)]
    return [outputs]
