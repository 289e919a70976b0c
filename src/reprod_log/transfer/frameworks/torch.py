"""torch: what transfer needs to know of it. The same functions as the other framework's file (see `Framework`)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import torch

from reprod_log.frameworks.nests import flatten, mapped
from reprod_log.layers.transform import Array, Shape
from reprod_log.transfer.frameworks import Call, Kept

NAME = "torch"

_WRAPPERS = {"DataParallel": "module", "DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}
# numpy has no such types of its own; their bits travel as integers.
_BIT_TYPES = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.int8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.int8, ml_dtypes.float8_e5m2),
}


def children(module: Any) -> list[tuple[str, Any]]:
    """The direct sub-modules by name, in the order of registration."""
    return [(name, child) for name, child in module._modules.items() if child is not None]


def own_tensors(module: Any) -> dict[str, Any]:
    """The module's own parameters and persistent buffers by name."""
    own = {name: tensor for name, tensor in module._parameters.items() if tensor is not None}
    skipped = module._non_persistent_buffers_set
    own.update((name, t) for name, t in module._buffers.items() if t is not None and name not in skipped)
    return own


def state_names(model: Any) -> dict[str, Any]:
    """Every tensor of the model's state under every name that its own files would have."""
    return dict(model.state_dict(keep_vars=True))


def is_parameter(tensor: Any) -> bool:
    """Whether the tensor is trained, or would be if it were not frozen."""
    return isinstance(tensor, torch.nn.Parameter)


def wrapped(module: Any) -> Any | None:
    """The model inside a wrapper that only passes calls on; None if this is no wrapper."""
    cls = type(module)
    return getattr(module, _WRAPPERS[cls.__name__]) if _ours(cls) and cls.__name__ in _WRAPPERS else None


def kept_weights(module: Any) -> dict[str, Kept]:
    """Weights of the module that are kept in weight norm's or spectral norm's form, by name."""
    kept = {}
    for hook in module._forward_pre_hooks.values():
        if type(hook).__name__ in ("WeightNorm", "SpectralNorm") and _ours(type(hook)):
            kept[hook.name] = Kept(type(hook).__name__, _axis(hook.dim))
    for name, chain in getattr(module, "parametrizations", {}).items():
        form = type(chain[0]).__name__.lstrip("_")
        if form in ("WeightNorm", "SpectralNorm") and len(chain) == 1:
            kept[name] = Kept(form, _axis(chain[0].dim))
    return kept


def shape(tensor: Any) -> Shape:
    """The shape as plain numbers."""
    return tuple(int(size) for size in tensor.shape)


def dtype(tensor: Any) -> str:
    """The dtype's plain name, such as "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def read(tensor: Any) -> Array:
    """A copy of the values."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype in _BIT_TYPES:
        bits, numpy_type = _BIT_TYPES[tensor.dtype]
        return np.array(tensor.view(bits).numpy()).view(numpy_type)
    return np.array(tensor.numpy())


def write(tensor: Any, array: Array) -> None:
    """Overwrites the values in place; dtype, device and trainability stay."""
    with torch.no_grad():
        tensor.copy_(tensor_of(array))


def refresh(module: Any) -> None:
    """Recomputes weights that the module derives from what was just written."""
    for hook in module._forward_pre_hooks.values():
        if not _ours(type(hook)):
            continue
        if type(hook).__name__ == "WeightNorm":
            setattr(module, hook.name, hook.compute_weight(module))
        elif type(hook).__name__ == "SpectralNorm":
            setattr(module, hook.name, hook.compute_weight(module, do_power_iteration=False))


def read_gradient(tensor: Any) -> Array | None:
    """A copy of the gradient, or None."""
    if tensor.grad is None:
        return None
    return read(tensor.grad.to_dense() if tensor.grad.is_sparse else tensor.grad)


def write_gradient(tensor: Any, array: Array | None) -> None:
    """Replaces the gradient."""
    tensor.grad = None if array is None else tensor_of(array).to(dtype=tensor.dtype, device=tensor.device)


@contextmanager
def substituted(module: Any, arrays: Mapping[int, Array], dtype: str | None) -> Iterator[None]:
    """While it lasts, tensors (by `id`) have other values; with a dtype, all floating tensors are of that dtype."""
    wanted = None if dtype is None else getattr(torch, dtype)
    new: dict[int, Any] = {}

    def stand_in(tensor: Any) -> Any:
        if id(tensor) not in new:
            with torch.no_grad():
                value = tensor.detach()
                if id(tensor) in arrays:
                    value = tensor_of(arrays[id(tensor)]).to(tensor.device)
                    value = value if wanted is not None else value.to(tensor.dtype)
                if wanted is not None and value.is_floating_point():
                    value = value.to(wanted)
                # A buffer may be changed in place by a forward pass; the original must not be.
                new[id(tensor)] = value.clone() if value.data_ptr() == tensor.data_ptr() else value
        return new[id(tensor)]

    with ExitStack() as undo:
        for part in module.modules():
            names = set(kept_weights(part))
            for name in names & part.__dict__.keys():
                undo.callback(part.__dict__.__setitem__, name, part.__dict__[name])
            for store in (part._parameters, part._buffers):
                undo.callback(store.update, dict(store))
                store.update({name: stand_in(t) for name, t in store.items() if t is not None})
            flat = part.__dict__.get("_flat_weights")
            if flat is not None:
                undo.callback(part.__dict__.__setitem__, "_flat_weights", flat)
                part.__dict__["_flat_weights"] = [None if t is None else stand_in(t) for t in flat]
        yield


@contextmanager
def undisturbed(module: Any) -> Iterator[None]:
    """While it lasts: evaluation mode, no gradients, no foreign hooks. Mode, hooks and random state are put back."""
    with ExitStack() as undo:
        undo.callback(torch.set_rng_state, torch.get_rng_state())
        undo.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        # The fused path of an encoder layer calls none of the layers inside it.
        torch.backends.mha.set_fastpath_enabled(False)
        if any(type(part).__name__ == "OptimizedModule" for part in module.modules()):
            # Compiled code does not call hooks that came after it.
            undo.enter_context(torch.compiler.set_stance("force_eager"))
        for part in module.modules():
            undo.callback(setattr, part, "training", part.training)
            part.training = False
            for store in (part._forward_pre_hooks, part._forward_hooks):
                undo.callback(store.update, dict(store))
                undo.callback(store.clear)
                for key in [key for key, hook in store.items() if not _ours(type(hook))]:
                    del store[key]
        undo.enter_context(torch.no_grad())
        yield


def run(module: Any, arguments: Any, keywords: Mapping[str, Any]) -> tuple[Array, ...]:
    """Calls the module with arrays turned into tensors and returns all its output tensors as arrays."""
    own = next((tensor for part in module.modules() for tensor in own_tensors(part).values()), None)
    device = None if own is None else own.device

    def convert(_: str, value: Any) -> Any:
        if not _convertible(value):
            return value
        return value.to(device) if isinstance(value, torch.Tensor) else tensor_of(value).to(device)

    given, named = mapped(arguments, convert), mapped(dict(keywords), convert)
    return _arrays(module(*given, **named))


@contextmanager
def traced(modules: Mapping[str, Any], record: Callable[[Call], None]) -> Iterator[None]:
    """While it lasts, `record` gets every call of the modules, in the order of the calls' ends."""
    with ExitStack() as undo:
        for path, module in modules.items():
            pending: list[tuple[Array, ...]] = []

            def before(_: Any, args: Any, kwargs: Any, pending: list[tuple[Array, ...]] = pending) -> None:
                pending.append(_arrays((args, kwargs)))

            def after(_: Any, args: Any, output: Any, path: str = path, pending: Any = pending) -> None:
                record(Call(path, pending.pop(), _arrays(output)))

            undo.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            undo.callback(module.register_forward_hook(after).remove)
        yield


def _convertible(value: Any) -> bool:
    return isinstance(value, (np.ndarray, torch.Tensor))


def _arrays(value: Any) -> tuple[Array, ...]:
    return tuple(read(tensor) for _, tensor in flatten(value) if isinstance(tensor, torch.Tensor))


def tensor_of(array: Array) -> Any:
    """A tensor with its own copy of the values."""
    array = np.array(array, order="C")
    for torch_type, (bits, numpy_type) in _BIT_TYPES.items():
        if array.dtype == np.dtype(numpy_type):
            whole = np.dtype(f"int{8 * np.dtype(numpy_type).itemsize}")
            return torch.from_numpy(array.view(whole)).view(bits).view(torch_type)
    return torch.from_numpy(array)


def _axis(dim: int | None) -> int | None:
    # The parametrization says "all axes" as -1, the hook as None.
    return None if dim is None or dim == -1 else int(dim)


def _ours(cls: type) -> bool:
    return cls.__module__ == "torch" or cls.__module__.startswith("torch.")
