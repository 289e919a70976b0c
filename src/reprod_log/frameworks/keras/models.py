"""Keras models taken apart: layers and variables by path, their settings in shared words, another floating type."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import keras
import numpy as np
from keras.src.backend.common import dtypes as keras_dtypes

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import ModuleFacts, StateFacts, plain_settings
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.side import Scope
from reprod_log.frameworks.trees import Leaf, Model, Taps
from reprod_log.frameworks.values import Channels, fits, module_facts, written_padding
from reprod_log.layers.rows import data_format_says_last
from reprod_log.recording import Array, ModuleInfo

_ENDING_IN_ACTIVATION = ("Dense", "EinsumDense", "BaseConv", "BaseConvTranspose", "BaseDepthwiseConv")
"""Layers that apply their activation to what they would give without it: two layers in one."""
_LISTS = ("_layers", "_functional", "_operations", "_operations_by_depth", "_metrics", "_tracker", "_modules")
"""Attributes of Keras's own that name layers a second time."""
_FORMATS = {3: "NLC", 4: "NHWC", 5: "NDHWC"}
_PADS = ("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
_NOT_IN_A_NAME = re.compile(r"[:#/.\s]+")


@dataclass(frozen=True, eq=False)
class KerasModel(Model):
    """A Keras model, the arguments of its calls (`training`), and values in place of those of its variables."""

    model: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    changed: Mapping[str, Array] = field(default_factory=dict)
    package = "keras"

    def write(self) -> Any:
        """The Keras model itself, with these values written into its variables."""
        for path, array in self.changed.items():
            self.variables[path].assign(array)
        return self.model

    @cached_property
    def arrays(self) -> Mapping[str, Array]:  # type: ignore[override]  # it is never set
        return {path: to_array(self.changed.get(path, one)) for path, one in self.variables.items()}

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:  # type: ignore[override]
        return tuple(
            Leaf(path, path in self.trained, True, tuple(one.shape), str(one.dtype), path in self.parameters)
            for path, one in self.variables.items()
        )

    @property
    def to_train(self) -> Any:
        return self.model

    @property
    def about(self) -> dict[str, Any]:
        return {"backend": keras.backend.backend()}

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return str(self.model.compute_dtype)

    def modules(self) -> Mapping[str, Any]:
        return self.layers

    def call(
        self, path: str, args: Any, kwargs: Any, arrays: Mapping[str, Any], scope: Scope, taps: Taps
    ) -> tuple[Any, Mapping[str, Any]]:
        options = self.options_in(scope)
        with (
            taps.of(self, options),  # type: ignore[attr-defined]  # those of Keras
            keras.StatelessScope([(one, arrays[place]) for place, one in self.variables.items()]) as state,
        ):
            output = self._alone(path, args, kwargs, options) if path else self._whole(args, kwargs, options)
        return output, {place: state.get_current_value(one) for place, one in self.variables.items()}

    def _whole(self, args: Any, kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        if kwargs and not set(kwargs) <= set(inspect.signature(self.model.call).parameters):
            args, kwargs = (kwargs,), {}
        elif len(args) > 1 and len(getattr(self.model, "inputs", None) or ()) == len(args):
            args = (list(args),)
        return self.model(*args, **kwargs, **options)

    def _alone(self, path: str, args: Any, kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        layer = self.layers[path]
        if isinstance(layer, Activation):
            return layer.function(*args, **kwargs)
        own = options if layer._call_has_training_arg else {}
        end, pad = self.layers.get(join(path, "activation")), self.pad_of(layer)
        # A layer that ends in an activation is one without it here: that is a layer of its own.
        with ended_by(end, keras.activations.linear) if isinstance(end, Activation) else nullcontext():
            args = args if pad is None else (pad(*args),)
            return layer(*args, **{**own, **kwargs})

    def options_in(self, scope: Scope) -> dict[str, Any]:
        return {**self.options, **({"training": False} if scope.evaluation else {})}

    @contextmanager
    def opened(self, scope: Scope) -> Iterator[None]:
        _refuse_randomness(self, self.options_in(scope))
        with _in_precision(self, scope.dtype), _with_settings(self, scope.settings):
            yield

    def arranged(self, inputs: Any) -> Any:
        """With channels last where only that fits the model."""
        wanted = [tuple(one.shape) for one in getattr(self.model, "inputs", None) or ()]
        moved = False

        def moved_in(_: str, leaf: Any) -> Any:
            nonlocal moved
            if not isinstance(leaf, np.ndarray) or leaf.ndim < 3 or len(wanted) != 1 or fits(leaf.shape, wanted[0]):
                return leaf
            last = np.moveaxis(leaf, 1, -1)
            moved = moved or fits(last.shape, wanted[0])
            return last if fits(last.shape, wanted[0]) else leaf

        made = mapped(inputs, moved_in)
        return made if moved else inputs

    def channels(self, module: ModuleInfo) -> Channels:
        rank = len(module.settings["data_format"]) if data_format_says_last(module.settings) else 0
        return Channels(lambda axes: axes == rank > 0)

    @property
    def has_images_last(self) -> bool:
        return bool(self.image_format)

    def facts(self) -> tuple[ModuleFacts, ...]:
        first = {id(one): path for path, one in self.variables.items()}
        tensors = {
            join(path, name): StateFacts(tuple(one.shape), str(one.dtype), trained, first[id(one)])
            for path, layer in self.layers.items()
            for name, one, trained in _own(layer)
        }
        return module_facts(self.layers, tensors, lambda one, _: _classes(one), lambda _, one: settings_of(one, self))

    @cached_property
    def layers(self) -> dict[str, Any]:
        """Every layer once under its first path, and the activation that ends a layer as one below it."""
        found: dict[str, Any] = {}
        seen: set[int] = set()

        def visit(path: str, layer: Any) -> None:
            if id(layer) in seen or id(layer) in self.pads:
                return
            seen.add(id(layer))
            found[path] = layer
            if ends_in_activation(layer):
                found[join(path, "activation")] = Activation(layer, layer.activation)
            for name, child in _children(layer):
                visit(join(path, name), child)

        visit("", self.model)
        return found

    @cached_property
    def pads(self) -> dict[int, Any]:
        """Layers of a functional model that only pad what one convolution is given: that one, by the id of the layer.

        Such a convolution is one with the padding as its own: Keras has no other way to write most paddings.
        """
        before = {id(one): _pad_before(one) for one in self.model._flatten_layers()}
        padded = {id(pad): one for one in self.model._flatten_layers() if (pad := before[id(one)]) is not None}
        return {
            id(pad): padded[id(pad)] for pad in before.values() if pad is not None and len(pad._outbound_nodes) == 1
        }

    def pad_of(self, layer: Any) -> Any | None:
        """The layer that pads for this one, if there is one."""
        pad = _pad_before(layer)
        return pad if pad is not None and id(pad) in self.pads else None

    @cached_property
    def variables(self) -> dict[str, Any]:
        """Every variable by its path, once."""
        found: dict[str, Any] = {}
        known: set[int] = set()
        for path, layer in self.layers.items():
            for name, variable, _ in _own(layer):
                if id(variable) not in known:
                    known.add(id(variable))
                    found[join(path, name)] = variable
        return found

    @cached_property
    def parameters(self) -> frozenset[str]:
        """The paths of the variables that are parameters, frozen ones too."""
        own = {id(one) for layer in self.layers.values() for _, one, trained in _own(layer) if trained}
        return frozenset(path for path, one in self.variables.items() if id(one) in own)

    @cached_property
    def trained(self) -> frozenset[str]:
        return frozenset(path for path in self.parameters if self.variables[path].trainable)

    @cached_property
    def paths(self) -> dict[int, str]:
        """By the id of the layer."""
        return {id(one): path for path, one in self.layers.items()}

    @cached_property
    def image_format(self) -> str:
        """How what goes between the layers of an image model is arranged; '' where no layer tells."""
        ranks = [_rank(one) for one in self.layers.values() if getattr(one, "data_format", "") == "channels_last"]
        return _FORMATS.get(max(ranks, default=0), "")


@dataclass(frozen=True, eq=False)
class Activation:
    """The function at the end of a layer, as a module of its own."""

    layer: Any
    function: Any


def is_model(thing: object) -> bool:
    if isinstance(thing, tuple):
        layer, options = thing if len(thing) == 2 else (None, None)
        return isinstance(layer, keras.layers.Layer) and isinstance(options, Mapping)
    return isinstance(thing, (keras.layers.Layer, KerasModel))


def model_of(thing: Any) -> KerasModel:
    """A model as people give it: alone, or with the arguments of its calls, (model, {"training": True})."""
    if isinstance(thing, KerasModel):
        return thing
    model, options = thing if isinstance(thing, tuple) else (thing, {})
    if not model.built or any(not layer.built for layer in model._flatten_layers()):
        raise UsageError(
            f"the Keras model {model.name!r} has no weights yet: call it once on a batch, model(batch), or build it"
        )
    return KerasModel(model, dict(options))


def to_array(value: Any) -> Array:
    return np.array(value) if isinstance(value, np.ndarray) else np.array(keras.ops.convert_to_numpy(value))


def ends_in_activation(layer: Any) -> bool:
    function = getattr(layer, "activation", None)
    if function is None or function is keras.activations.linear or isinstance(function, keras.layers.Layer):
        return False
    return any(one.__name__ in _ENDING_IN_ACTIVATION and _is_keras(one) for one in type(layer).__mro__)


def _pad_before(layer: Any) -> Any | None:
    """The layer of zeros around what a layer of a functional model is given, where the layer itself adds none."""
    nodes: list[Any] = getattr(layer, "_inbound_nodes", [])
    if getattr(layer, "padding", "") != "valid" or len(nodes) != 1 or len(nodes[0].input_tensors) != 1:
        return None
    pad = getattr(getattr(nodes[0].input_tensors[0], "_keras_history", None), "operation", None)
    # The largest of a window is another one with zeros in it.
    largest = type(layer).__name__.startswith("Max")
    return pad if type(pad).__name__ in _PADS and not largest and not isinstance(layer, keras.Model) else None


def _is_keras(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "keras"


def _children(layer: Any) -> list[tuple[str, Any]]:
    if isinstance(layer, Activation):
        return []
    names: dict[int, str] = {}

    def visit(name: str, value: Any, depth: int = 0) -> None:
        if isinstance(value, keras.layers.Layer):
            names.setdefault(id(value), name)
        elif isinstance(value, (list, tuple)) and depth < 3:
            for place, one in enumerate(value):
                visit(f"{name}.{place}", one, depth + 1)
        elif isinstance(value, Mapping) and depth < 3:
            for key, one in value.items():
                visit(f"{name}.{_plain_name(str(key))}", one, depth + 1)

    # On the backend torch a layer keeps others where every module of torch does.
    for name, value in (*vars(layer).items(), *vars(layer).get("_modules", {}).items()):
        if name not in _LISTS:
            visit(name.lstrip("_"), value)
    return [
        (names.get(id(one), _plain_name(one.name)), one)
        for one in layer._flatten_layers(include_self=False, recursive=False)
        if not isinstance(one, keras.layers.InputLayer)
    ]


def _plain_name(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name).strip("_")


def _own(layer: Any) -> list[tuple[str, Any, bool]]:
    """The variables that a layer itself keeps: name, variable, and whether it is a parameter."""
    if isinstance(layer, Activation):
        return []
    depthwise = any(one.__name__ == "BaseDepthwiseConv" for one in type(layer).__mro__)
    found: dict[str, tuple[str, Any, bool]] = {}
    for variables, trained in ((layer._trainable_variables, True), (layer._non_trainable_variables, False)):
        for one in variables:
            # A depthwise kernel has its axes in another order than that of a convolution.
            name = "depthwise_kernel" if depthwise and one.name == "kernel" else _plain_name(one.name)
            name = name if name not in found else f"{name}_{len(found)}"
            found[name] = (name, one, trained)
    return list(found.values())


def _classes(one: Any) -> tuple[str, ...]:
    """Its class and those it descends from; a function of Keras comes first, under a name that the table has."""
    ancestors = tuple(f"{cls.__module__}.{cls.__name__}" for cls in getattr(type(one), "__mro__", ()))
    if isinstance(one, Activation):
        return (_named(one.function),)
    if type(one) is keras.layers.Activation:
        return (_named(one.activation), *ancestors)
    if type(one) is keras.layers.ReLU and not one.threshold:
        if one.max_value == 6 and not one.negative_slope:
            return ("keras.activations.relu6", *ancestors)
        if one.negative_slope and one.max_value is None:
            return ("keras.activations.leaky_relu", *ancestors)
    return ancestors


def _named(function: Any) -> str:
    home, name = getattr(function, "__module__", ""), getattr(function, "__name__", type(function).__name__)
    return f"keras.activations.{name}" if home.startswith("keras.") else f"{home or 'function'}.{name}"


def settings_of(one: Any, model: KerasModel) -> dict[str, Any]:
    """Plain attributes; those of windows under the words that frameworks share, because their forms differ."""
    image_format = model.image_format
    if isinstance(one, Activation):
        slope = {"negative_slope": 0.2} if one.function is keras.activations.leaky_relu else {}
        return {**slope, **({"data_format": image_format} if image_format else {})}
    settings = plain_settings(one, inherited=("training", "built", "autocast", "supports_masking", "name"))
    window = next((settings[name] for name in ("kernel_size", "pool_size") if name in settings), None)
    if window is not None:
        window = [window] if isinstance(window, int) else list(window)
        settings["kernel_size"] = window
        settings["stride"] = settings.get("strides", 1)
        settings["dilation"] = settings.get("dilation_rate", 1)
        pad = model.pad_of(one)
        # ZeroPadding1D has the two ends of its only axis, the others have them for each axis.
        ends = None if pad is None else pad.padding if isinstance(pad.padding[0], (tuple, list)) else [pad.padding]
        given = settings.get("padding") if ends is None else ends
        settings["padding"] = written_padding(given, window, settings["stride"], settings["dilation"])
        settings["groups"] = getattr(one, "groups", 1)
        if any(cls.__name__ == "BaseDepthwiseConv" for cls in type(one).__mro__):
            settings["groups"] = int(one.kernel.shape[-2])
    own = settings.pop("data_format", None)
    axis = getattr(one, "axis", None)
    if own is not None:
        own = _FORMATS.get(_rank(one), "") if own == "channels_last" else "NCHW"
    elif isinstance(one, (keras.layers.BatchNormalization, keras.layers.GroupNormalization)):
        rank = getattr(getattr(one, "input_spec", None), "ndim", None) or len(image_format)
        own = _FORMATS.get(rank, "") if axis in (-1, rank - 1) else "NCHW"
    settings["data_format"] = image_format if own is None else own
    return {name: value for name, value in settings.items() if value != ""}


def _rank(one: Any) -> int:
    """The number of axes that a layer of images works on, the batch's too; 0 where it does not tell."""
    inner = next((getattr(one, name) for name in ("rank", "pool_dimensions") if hasattr(one, name)), None)
    return int(getattr(getattr(one, "input_spec", None), "ndim", None) or 0) if inner is None else int(inner) + 2


@contextmanager
def _with_settings(model: KerasModel, settings: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """While it lasts, layers have these settings."""
    with ExitStack() as undo:
        for path, changed in settings.items():
            for name, value in changed.items():
                layer = model.layers.get(path)
                if isinstance(layer, Activation) or name not in vars(layer):
                    raise UsageError(f"{path or 'the model'} has no setting {name!r} that can be changed")
                before = getattr(layer, name)
                _replace(undo, layer, name, type(before)(value) if isinstance(before, (tuple, list)) else value)
        yield


@contextmanager
def _in_precision(model: KerasModel, dtype: str | None) -> Iterator[None]:
    """While it lasts, the model computes in another floating type, in the places too where Keras would narrow it."""
    if dtype is None:
        yield
        return
    table = keras_dtypes.BIT64_TO_BIT32_DTYPE
    with ExitStack() as undo:
        for name in ("floatx", "dtype_policy"):
            undo.callback(getattr(keras.config, f"set_{name}"), getattr(keras.config, name)())
        undo.callback(table.__setitem__, "float64", table["float64"])
        keras.config.set_floatx(dtype)
        keras.config.set_dtype_policy(dtype)
        # Unless its backend is tensorflow, Keras has results of float64 computed in float32.
        table["float64"] = "float64"
        policy = keras.dtype_policies.get(dtype)
        for layer in model.model._flatten_layers():
            if not isinstance(layer._dtype_policy, keras.dtype_policies.DTypePolicyMap):
                _replace(undo, layer, "_dtype_policy", policy)
            # A model inside another converts what it is given to the type that it was built for.
            for tensor in getattr(layer, "_inputs", None) or ():
                if "float" in str(tensor.dtype):
                    _replace(undo, tensor, "_dtype", dtype)
        for variable in model.variables.values():
            if "float" in str(variable._dtype):
                _replace(undo, variable, "_dtype", dtype)
        yield


def _replace(undo: ExitStack, thing: Any, name: str, value: Any) -> None:
    """Past setters of its own, which keep track of what belongs to a model."""
    undo.callback(object.__setattr__, thing, name, getattr(thing, name))
    object.__setattr__(thing, name, value)


def _refuse_randomness(model: KerasModel, options: Mapping[str, Any]) -> None:
    """Masks of Dropout are shared with the other side; a model that draws others is not compared."""
    for path, layer in model.layers.items():
        draws = getattr(layer, "rate", 0) and hasattr(layer, "seed_generator") and options.get("training")
        if draws and not dropout_rate(layer, options):
            raise UsageError(
                f"{path or 'the model'} draws a mask of its own in training mode, which the other side does not have: "
                "set its rate to 0 on both sides, or compare without training"
            )


def dropout_rate(layer: Any, options: Mapping[str, Any]) -> float:
    """The rate of a dropout that is on and drops single elements; 0 for anything else."""
    plain = type(layer) is keras.layers.Dropout and options.get("training")
    return float(layer.rate) if plain and layer.noise_shape is None else 0.0


@contextmanager
def ended_by(one: Activation, function: Callable[[Any], Any]) -> Iterator[None]:
    """While it lasts, a layer applies another function at its end."""
    with ExitStack() as undo:
        _replace(undo, one.layer, "activation", function)
        yield
