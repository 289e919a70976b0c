"""paddle: what transfer needs to know of it. The same functions as the other framework's file (see `Framework`)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import paddle

from reprod_log.frameworks.nests import flatten, mapped
from reprod_log.layers.transform import Array, Shape
from reprod_log.transfer.frameworks import Call, Kept

NAME = "paddle"

# paddle hands out and takes in bfloat16 as its bits.
_BITS = np.dtype(np.uint16)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def children(module: Any) -> list[tuple[str, Any]]:
    """The direct sub-layers by name, in the order of registration."""
    return [(name, child) for name, child in module._sub_layers.items() if child is not None]


def own_tensors(module: Any) -> dict[str, Any]:
    """The layer's own parameters and persistent buffers by name."""
    own = {name: tensor for name, tensor in module._parameters.items() if tensor is not None}
    skipped = module._non_persistable_buffer_names_set
    own.update((name, t) for name, t in module._buffers.items() if t is not None and name not in skipped)
    return own


def state_names(model: Any) -> dict[str, Any]:
    """Every tensor of the model's state under every name that its own files would have."""
    return dict(model.state_dict())


def is_parameter(tensor: Any) -> bool:
    """Whether the tensor is trained, or would be if it were not frozen."""
    return isinstance(tensor, paddle.base.framework.EagerParamBase)


def wrapped(module: Any) -> Any | None:
    """The model inside a wrapper that only passes calls on; None if this is no wrapper."""
    cls = type(module)
    return module._layers if cls.__name__ == "DataParallel" and _ours(cls) else None


def kept_weights(module: Any) -> dict[str, Kept]:
    """Weights of the layer that are kept in weight norm's or spectral norm's form, by name."""
    kept = {}
    for hook in module._forward_pre_hooks.values():
        if type(hook).__name__ == "WeightNorm" and _ours(type(hook)):
            # paddle says "all axes" as -1.
            kept[hook.name] = Kept("WeightNorm", None if hook.dim == -1 else int(hook.dim))
        elif type(hook).__name__ == "SpectralNorm" and _ours(type(hook)):
            kept[hook.name] = Kept("SpectralNorm", int(hook.dim))
    return kept


def shape(tensor: Any) -> Shape:
    """The shape as plain numbers."""
    return tuple(int(size) for size in tensor.shape)


def dtype(tensor: Any) -> str:
    """The dtype's plain name, such as "float32"."""
    return str(tensor.dtype).removeprefix("paddle.")


def read(tensor: Any) -> Array:
    """A copy of the values."""
    array = np.array(tensor.detach().cpu().numpy())
    return array.view(_BFLOAT16) if dtype(tensor) == "bfloat16" else array


def write(tensor: Any, array: Array) -> None:
    """Overwrites the values in place; dtype, device and trainability stay."""
    with paddle.no_grad():
        tensor.set_value(_storable(array, dtype(tensor)).reshape(shape(tensor)))


def refresh(module: Any) -> None:
    """Recomputes weights that the layer derives from what was just written."""
    for hook in module._forward_pre_hooks.values():
        if not _ours(type(hook)):
            continue
        if type(hook).__name__ == "WeightNorm":
            setattr(module, hook.name, hook.compute_weight(module))
        elif type(hook).__name__ == "SpectralNorm":
            setattr(module, hook.name, hook.compute_weight(module, do_power_iteration=False))


def read_gradient(tensor: Any) -> Array | None:
    """A copy of the gradient, or None."""
    return None if tensor.grad is None else read(tensor.grad)


def write_gradient(tensor: Any, array: Array | None) -> None:
    """Replaces the gradient."""
    if array is None:
        tensor.clear_gradient(False)
    else:
        tensor.grad = _tensor(array, dtype(tensor), tensor.place)


@contextmanager
def substituted(module: Any, arrays: Mapping[int, Array], dtype: str | None) -> Iterator[None]:
    """While it lasts, tensors (by `id`) have other values; with a dtype, all floating tensors are of that dtype."""
    new: dict[int, Any] = {}

    def stand_in(tensor: Any) -> Any:
        if id(tensor) not in new:
            with paddle.no_grad():
                value = tensor.detach().clone()
                if id(tensor) in arrays:
                    array = arrays[id(tensor)].reshape(shape(tensor))
                    value = _tensor(array, dtype or str(tensor.dtype).removeprefix("paddle."), tensor.place)
                if dtype is not None and paddle.is_floating_point(value):
                    value = value.astype(dtype)
                new[id(tensor)] = value
        return new[id(tensor)]

    with ExitStack() as undo:
        for part in module.sublayers(include_self=True):
            for store in (part._parameters, part._buffers):
                undo.callback(store.update, dict(store))
                store.update({name: stand_in(t) for name, t in store.items() if _holds_values(t)})
            flat = part.__dict__.get("_all_weights")
            if flat is not None:
                undo.callback(part.__dict__.__setitem__, "_all_weights", flat)
                part.__dict__["_all_weights"] = [stand_in(t) for t in flat]
        yield


@contextmanager
def undisturbed(module: Any) -> Iterator[None]:
    """While it lasts: evaluation mode, no gradients, no foreign hooks. Mode, hooks and random state are put back."""
    with ExitStack() as undo:
        undo.callback(paddle.set_rng_state, paddle.get_rng_state())
        # A converted forward pass would call hooks once, with symbols instead of tensors.
        translator = paddle.jit.dy2static.program_translator.ProgramTranslator()
        undo.callback(translator.enable, translator.enable_to_static)
        translator.enable(False)
        for part in module.sublayers(include_self=True):
            undo.callback(setattr, part, "training", part.training)
            part.training = False
            for store in (part._forward_pre_hooks, part._forward_post_hooks):
                undo.callback(store.update, dict(store))
                undo.callback(store.clear)
                for key in [key for key, hook in store.items() if not _ours(type(hook))]:
                    del store[key]
        undo.enter_context(paddle.no_grad())
        yield


def run(module: Any, arguments: Any, keywords: Mapping[str, Any]) -> tuple[Array, ...]:
    """Calls the layer with arrays turned into tensors and returns all its output tensors as arrays."""

    def convert(_: str, value: Any) -> Any:
        if not _convertible(value):
            return value
        return value if isinstance(value, paddle.Tensor) else _tensor(value, None, None)

    given, named = mapped(arguments, convert), mapped(dict(keywords), convert)
    return _arrays(module(*given, **named))


@contextmanager
def traced(modules: Mapping[str, Any], record: Callable[[Call], None]) -> Iterator[None]:
    """While it lasts, `record` gets every call of the layers, in the order of the calls' ends."""
    with ExitStack() as undo:
        for path, module in modules.items():
            pending: list[tuple[Array, ...]] = []

            def before(_: Any, args: Any, kwargs: Any, pending: list[tuple[Array, ...]] = pending) -> None:
                pending.append(_arrays((args, kwargs)))

            def after(_: Any, args: Any, output: Any, path: str = path, pending: Any = pending) -> None:
                record(Call(path, pending.pop(), _arrays(output)))

            undo.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            undo.callback(module.register_forward_post_hook(after).remove)
        yield


def _convertible(value: Any) -> bool:
    return isinstance(value, (np.ndarray, paddle.Tensor))


def _arrays(value: Any) -> tuple[Array, ...]:
    return tuple(read(tensor) for _, tensor in flatten(value) if isinstance(tensor, paddle.Tensor))


def _holds_values(tensor: Any) -> bool:
    # The dropout state of a recurrent layer is a tensor that was never filled.
    return tensor is not None and tensor._is_initialized()


def _tensor(array: Array, dtype: str | None, place: Any) -> Any:
    name = dtype or str(array.dtype)
    if name == "bfloat16":
        return paddle.to_tensor(_storable(array, name), dtype="bfloat16", place=place)
    return paddle.to_tensor(_storable(array, name), dtype=name, place=place)


def _storable(array: Array, name: str) -> Array:
    array = np.array(array, order="C")
    if name == "bfloat16":
        return array.astype(_BFLOAT16).view(_BITS)
    return array.astype(name)


def _ours(cls: type) -> bool:
    return cls.__module__ == "paddle" or cls.__module__.startswith("paddle.")
