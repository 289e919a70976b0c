"""The schema of the table of layer kinds: what is known of a kind, and how each framework writes it.

Every kind has a canonical form (torch's layout, one tensor per role, settings under shared words). A column says how
one framework writes that form. Going from one framework to another is then: take apart by the one column, put together
by the other; n frameworks need n columns and not n * n.

Rows and columns are compared by identity: there is one of each, and classes without comparisons are made faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from reprod_log.layers.transform import KEEP, Shape, Transform
from reprod_log.recording import Array

Arguments = tuple[Any, ...]
"""Nested tuples of arrays: what a layer is called with."""


Convention = Literal["", "not", "kept", "tanh", "first", "second"]
"""How a native value becomes the shared one. The first four are their own inverse.

not      the opposite truth value
kept     the share of the old value, where the shared word means the share of the new
tanh     "tanh" and "none" for True and False
first    the first of a pair of numbers; `second`, the second
"""


@dataclass(frozen=True)
class TensorMap:
    """One stored tensor of a layer and the canonical tensors that it holds.

    `native` is the name inside the layer; `{n}` in it stands for a number and is filled into the canonical names.
    An `optional` tensor (a counter, say) need not exist on the other side. What is not `trained` is a statistic, even
    where a framework keeps it among the parameters.
    """

    native: str
    canonical: tuple[str, ...]
    transform: Transform = KEEP
    optional: bool = False
    trained: bool = True

    def match(self, name: str) -> TensorMap | None:
        """This map with its number filled in, if the name is one of its own."""
        if "{n}" not in self.native:
            return self if name == self.native else None
        before, after = self.native.split("{n}")
        found = re.fullmatch(re.escape(before) + r"(\d+)" + re.escape(after), name)
        return None if found is None else self._filled(found.group(1))

    def providing(self, canonical: str) -> TensorMap | None:
        """This map with its number filled in, if it holds the named canonical tensor."""
        for part in self.canonical:
            before, _, after = part.partition("{n}")
            pattern = re.escape(part) if part == before else re.escape(before) + r"(\d+)" + re.escape(after)
            found = re.fullmatch(pattern, canonical)
            if found is not None:
                return self._filled(found.group(1)) if found.groups() else self
        return None

    def _filled(self, number: str) -> TensorMap:
        canonical = tuple(part.replace("{n}", number) for part in self.canonical)
        return TensorMap(self.native.replace("{n}", number), canonical, self.transform, self.optional, self.trained)


@dataclass(frozen=True, eq=False)
class Setting:
    """How one framework writes one setting."""

    native: str
    """Without leading underscores."""
    convert: Convention = ""
    also: tuple[str, ...] = ()
    """What other versions call it."""
    float32: bool = False
    """Whether it is kept in float32 even in a float64 run: its rounding is then part of the floor."""


@dataclass(frozen=True, eq=False)
class Column:
    """One framework's form of a kind. Dialects of one framework ("paddle", "paddle.compat") have columns of their own.

    Several maps may give the same canonical tensor: alternatives, of which a layer has one. `second_names` are maps of
    names under which a layer lists a tensor once more; they count only where the first name is missing.
    """

    classes: tuple[str, ...]
    """Class names; a class is known by the nearest of its ancestors that is named here."""
    tensors: tuple[TensorMap, ...] = ()
    second_names: tuple[TensorMap, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """By shared word, where the framework has a word or a convention of its own."""
    channels: Literal["data_format", "first", "last"] = "data_format"
    """`data_format`: the layer's own setting says so, and a layer without one has them first."""
    batch_first: Literal["batch_first", "not time_major", "always", "never"] = "batch_first"
    """Of sequences: the setting that says so, or what holds without one."""
    broadcast: bool = False
    """The framework's data-parallel wrapper gives the first rank's statistics to all before the next forward pass."""
    scratch: tuple[str, ...] = ()
    """Buffers that hold no result."""
    value_limit: float | None = None
    """Differences of logits that a kernel cuts off at this value."""
    split_input: int | None = None
    """The dim of the weight whose pieces each give a part of the whole output."""
    sizes: tuple[str, ...] = ()
    """Arguments of its constructor that only the shape of its weight tells, by axis."""

    @property
    def all_maps(self) -> tuple[TensorMap, ...]:
        """All maps, those of second names last."""
        return self.tensors + self.second_names

    def find(self, name: str) -> TensorMap | None:
        """The map of the tensor with this name inside the layer."""
        return next((found for map_ in self.all_maps if (found := map_.match(name)) is not None), None)

    def channels_last(self, settings: Mapping[str, Any]) -> bool:
        """Whether a layer with these settings keeps its channels in the last dimension."""
        return data_format_says_last(settings) if self.channels == "data_format" else self.channels == "last"

    def time_first(self, settings: Mapping[str, Any]) -> bool:
        """Whether a layer with these settings has the time axis before the batch."""
        if self.batch_first == "batch_first":
            return not settings.get("batch_first", False)
        if self.batch_first == "not time_major":
            return bool(settings.get("time_major", False))
        return self.batch_first == "never"

    @property
    def untrained(self) -> frozenset[str]:
        """Names of stored tensors that no optimizer updates."""
        return frozenset(map_.native for map_ in self.tensors if not map_.trained)


def data_format_says_last(settings: Mapping[str, Any]) -> bool:
    """Whether a setting such as data_format="NHWC" puts the channels last; "NC" has no other place for them."""
    layout = settings.get("data_format", "")
    return isinstance(layout, str) and len(layout) > 2 and layout.endswith("C")


@dataclass(frozen=True, eq=False)
class LayerFacts:
    """What a probe may know of a live layer: plain values only, no framework objects."""

    column: Column
    class_name: str
    settings: Mapping[str, Any]
    """Plain attributes by native name, without leading underscores."""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """By canonical name."""


def as_given(layer: LayerFacts, inputs: tuple[Array, ...]) -> Arguments:
    """The inputs unchanged: the layer takes them as the probe makes them up."""
    return inputs


def as_returned(layer: LayerFacts, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """The outputs unchanged: the layer returns them in the canonical arrangement."""
    return outputs


@dataclass(frozen=True, eq=False)
class Probe:
    """How a kind of layer is run alone: inputs made up, arranged as the layer expects them, its outputs put back."""

    inputs: Callable[[LayerFacts, np.random.Generator], tuple[Array, ...]]
    arrange: Callable[[LayerFacts, tuple[Array, ...]], Arguments] = as_given
    restore: Callable[[LayerFacts, tuple[Array, ...]], tuple[Array, ...]] = as_returned


@dataclass(frozen=True, eq=False)
class LayerKind:
    """One kind of layer: what holds in every framework, and a column for each."""

    kind: str
    """The one word, which recordings keep."""
    columns: Mapping[str, Column]
    compared: tuple[str, ...] = ()
    """Shared words of the settings that matter."""
    absent: Mapping[str, Any] = field(default_factory=dict)
    """What it means when a layer does not have the setting."""
    row_wise: bool = False
    """Does the same to every row along the last axis, so that no other axis has a meaning to it."""
    sequence: tuple[str, ...] = ()
    """Roles of its activations that have a time axis."""
    states: bool = False
    """Gives states of layers × batch × features beside its sequence."""
    output: Literal["", "first", "state"] = ""
    """What counts of a tuple of outputs: the first, or the new state where the output comes before it again."""
    kinked: bool = False
    """The gradient jumps at a value that rounding can cross."""
    mode: bool = False
    """Does something else in train mode than in eval mode."""
    scale_only: bool = False
    """Zeros have a meaning (the padding row of an embedding): perturbed by factors only."""
    spans: str = ""
    """The setting with the dims that its weight lies over, which a framework may keep as one."""
    moving: Mapping[str, str] = field(default_factory=dict)
    """Canonical statistic to the setting that says how much of it moves."""
    probe: Probe | None = None
    advice: Mapping[str, str] = field(default_factory=dict)
    """Setting to the id of a message that helps when it differs."""

    @property
    def title(self) -> str:
        """The kind as people write it: "Linear", "Conv2d"; "BatchNorm" for classes of several dimensions."""
        classes = next(iter(self.columns.values())).classes
        return re.sub(r"\d[dD]$", "", classes[0]) if len(classes) > 1 else classes[0]


def same(*names: str, optional: bool = False, trained: bool = True) -> tuple[TensorMap, ...]:
    """Maps of tensors that are stored under their canonical names and in the canonical layout."""
    return tuple(TensorMap(name, (name,), KEEP, optional, trained) for name in names)
