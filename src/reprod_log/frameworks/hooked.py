"""Hooked: what eager frameworks with modules in the manner of torch do alike; each writes only where it differs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from inspect import signature
from typing import Any

from reprod_log.frameworks.contract import Draw, Eager, KeptForm
from reprod_log.frameworks.hooks import (
    After,
    AnyBefore,
    Before,
    Hook,
    Undo,
    around_module,
    before_any_module,
    passing,
    replaced,
    subclasses,
    unhooked,
)

_NORMS = ("WeightNorm", "SpectralNorm")
_OF_CHANNELS = ("dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")
_DROPOUTS = ("dropout", "alpha_dropout", *_OF_CHANNELS)


class Hooked(Eager):
    """Modules that keep their tensors in `_parameters` and `_buffers`, and tensors that know their graph."""

    package: str
    """The framework's top-level module."""
    module_class: type
    optimizer_class: type
    child_store: str
    """The attribute in which a module keeps its children."""
    no_gradients: Callable[[], AbstractContextManager[Any]]
    """While it lasts, nothing is kept for a backward pass."""
    flat_weights: str
    """The attribute with the list that a recurrent layer keeps its weights in a second time."""
    hook_attributes: tuple[str, ...]
    functions: Any
    """The module of functions that layers call, too."""

    def children(self, module: Any) -> list[tuple[str, Any]]:
        # Those with two names too, which a framework's own list of them omits.
        return [(name, child) for name, child in getattr(module, self.child_store).items() if child is not None]

    @contextmanager
    def quiet(self, model: Any) -> Iterator[None]:
        with self.uncompiled(), self.no_gradients(), ExitStack() as undo:
            for one in self._inside(model):
                undo.callback(setattr, one, "training", one.training)
                one.training = False
            yield

    def _inside(self, module: Any) -> Iterator[Any]:
        yield module
        for _, child in self.children(module):
            yield from self._inside(child)

    @contextmanager
    def masked(self, draw: Draw) -> Iterator[None]:
        with ExitStack() as undo:
            for name in _DROPOUTS:
                function = getattr(self.functions, name, None)
                if function is not None:
                    undo.callback(replaced(self.functions, name, self._masked(function, draw)))
            yield

    def _masked(self, function: Callable[..., Any], draw: Draw) -> Callable[..., Any]:
        parameters = signature(function)

        @wraps(function)
        def masked_instead(*args: Any, **kwargs: Any) -> Any:
            given = parameters.bind(*args, **kwargs)
            given.apply_defaults()
            settings = given.arguments
            tensor, rate = next(iter(settings.values())), float(settings["p"])
            if not settings["training"] or rate == 0.0:
                return function(*args, **kwargs)
            mask = draw(_mask_shape(function.__name__, tensor, settings), rate)
            if mask is None:
                return tensor
            if settings.get("mode") == "downscale_in_infer":
                # The other way to scale: training only drops values, evaluation scales them down.
                mask = mask * (1.0 - rate)
            return self.multiply(tensor, mask, in_place=bool(settings.get("inplace")))

        return masked_instead

    def is_module(self, thing: object) -> bool:
        return isinstance(thing, self.module_class)

    def is_optimizer(self, thing: object) -> bool:
        return isinstance(thing, self.optimizer_class)

    @abstractmethod
    def groups(self, optimizer: Any) -> list[dict[str, Any]]:
        """Its groups of parameters, each with these and settings of its own."""

    def parameters_of(self, optimizer: Any) -> list[Any]:
        return [parameter for group in self.groups(optimizer) for parameter in group["params"]]

    def kept_norms(self, module: Any) -> list[tuple[str, Any]]:
        """Weight and spectral norms of a module, each with the name of the weight that it makes."""
        return [(hook.name, hook) for hook in self._norm_hooks(module)]

    def kept_weights(self, module: Any) -> dict[str, KeptForm]:
        return {name: form for name, norm in self.kept_norms(module) if (form := _kept_form(norm)) is not None}

    def _norm_hooks(self, module: Any) -> list[Any]:
        """The hooks by which weight_norm and spectral_norm compute a weight before each call."""
        hooks, front = module._forward_pre_hooks.values(), f"{self.package}."
        return [one for one in hooks if type(one).__name__ in _NORMS and type(one).__module__.startswith(front)]

    def refresh(self, module: Any) -> None:
        for hook in self._norm_hooks(module):
            options = {"do_power_iteration": False} if type(hook).__name__ == "SpectralNorm" else {}
            setattr(module, hook.name, hook.compute_weight(module, **options))

    def stores(self, module: Any) -> Iterator[dict[str, Any] | list[Any]]:
        yield module._parameters
        yield module._buffers
        if vars(module).get(self.flat_weights) is not None:
            yield vars(module)[self.flat_weights]

    def hook_stores(self, module: Any) -> Iterator[dict[Any, Any]]:
        return (getattr(module, name) for name in self.hook_attributes)

    def on_call(self, module: Any, before: Before, after: After) -> Undo:
        return around_module(self.module_class, self.is_tracing, module, before, after)

    def on_any_call(self, before: AnyBefore) -> Undo:
        return before_any_module(self.module_class, self.is_tracing, before)

    def on_gradient(self, tensor: Any, call: Callable[[Any], Any]) -> Undo | None:
        if not self.takes_gradient(tensor):
            return None
        hook = Hook(call)
        handle = tensor.register_hook(hook)
        # The handle of a computed tensor may hold the tensor, so it is not kept: the hook passes with the graph.
        return unhooked((handle,), (hook,)) if tensor.is_leaf else passing

    def on_new_optimizer(self, found: Callable[[Any], None]) -> Undo:
        undos = ExitStack()
        # Some optimizers do not call their parent's constructor, so each class that has one of its own is replaced.
        for owner in {self.optimizer_class, *subclasses(self.optimizer_class)}:
            if "__init__" in vars(owner):
                undos.callback(replaced(owner, "__init__", _announcing(vars(owner)["__init__"], found)))
        return undos.close

    def is_computed(self, tensor: Any) -> bool:
        return not tensor.is_leaf

    def gradient(self, tensor: Any) -> Any | None:
        return tensor.grad

    def backward(self, compute: Callable[[], Any]) -> Any:
        value = compute()
        if self.takes_gradient(value):
            # Otherwise no gradient is there to compare, which shows where the other side has one.
            value.backward()
        return value


def _announcing(made: Callable[..., None], found: Callable[[Any], None]) -> Callable[..., None]:
    @wraps(made)
    def instead(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        found(self)

    return instead


def _kept_form(norm: Any) -> KeptForm | None:
    """The form in which a weight norm or spectral norm keeps its weight; None for anything else."""
    form = type(norm).__name__.lstrip("_")
    if form not in _NORMS:
        return None
    # "All axes" is -1 or None.
    axis = None if norm.dim is None or norm.dim == -1 else int(norm.dim)
    return KeptForm(form, axis)  # type: ignore[arg-type]  # one of the two


def _mask_shape(name: str, tensor: Any, settings: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape in which a dropout draws: of single elements, of whole channels, or along the axes that are asked."""
    shape = tuple(int(size) for size in tensor.shape)
    axes = settings.get("axis")
    if axes is None and name not in _OF_CHANNELS:
        return shape
    if axes is None:
        axes = (0, len(shape) - 1 if str(settings.get("data_format", "")).endswith("C") else 1)
    drawn = (axes,) if isinstance(axes, int) else tuple(axes)
    return tuple(size if place in drawn else 1 for place, size in enumerate(shape))
