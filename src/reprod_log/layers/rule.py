"""What a transfer rule is made of: plain data on how each framework stores one kind of layer.

A rule names a canonical form for its kind of layer (torch's layout, one tensor per role). Each layout says how one
family of layers stores that form. Going from one family to another is then: take apart by the one layout, put
together by the other; n families need n layouts and not n * n.

Beside the layouts a rule may say how to run such a layer in isolation: an input made up by rule, brought into the
arrangement that each side's layer expects (batch first or time first, channels first or last), and the outputs
brought back.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reprod_log.layers.transform import KEEP, Array, Shape, Transform

# Nested tuples of arrays: what a layer is called with.
Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class TensorMap:
    """One stored tensor of a layer and the canonical tensors that it holds.

    `native` is the name inside the layer; `{n}` in it stands for a number and is filled into the canonical names.
    An `optional` tensor (a counter, say) need not exist on the other side.
    """

    native: str
    canonical: tuple[str, ...]
    transform: Transform = KEEP
    optional: bool = False

    def match(self, name: str) -> "TensorMap | None":
        """This map with its number filled in, if the name is one of its own."""
        if "{n}" not in self.native:
            return self if name == self.native else None
        before, after = self.native.split("{n}")
        found = re.fullmatch(re.escape(before) + r"(\d+)" + re.escape(after), name)
        if found is None:
            return None
        return self._filled(found.group(1))

    def providing(self, canonical: str) -> "TensorMap | None":
        """This map with its number filled in, if it holds the named canonical tensor."""
        for part in self.canonical:
            before, _, after = part.partition("{n}")
            pattern = re.escape(part) if part == before else re.escape(before) + r"(\d+)" + re.escape(after)
            found = re.fullmatch(pattern, canonical)
            if found is not None:
                return self._filled(found.group(1)) if found.groups() else self
        return None

    def _filled(self, number: str) -> "TensorMap":
        canonical = tuple(part.replace("{n}", number) for part in self.canonical)
        return TensorMap(self.native.replace("{n}", number), canonical, self.transform, self.optional)


@dataclass(frozen=True)
class Layout:
    """How the named classes of one family ("torch", "paddle", "paddle.compat") store their tensors.

    Several maps may give the same canonical tensor: alternatives, of which a layer has one. `second_names` are maps of
    names under which a layer lists a tensor once more; they count only where the first name is missing.
    """

    family: str
    classes: tuple[str, ...]
    maps: tuple[TensorMap, ...]
    second_names: tuple[TensorMap, ...] = ()

    @property
    def all_maps(self) -> tuple[TensorMap, ...]:
        """All maps, those of second names last."""
        return self.maps + self.second_names

    def find(self, name: str) -> TensorMap | None:
        """The map of the tensor with this name inside the layer."""
        return next((found for map_ in self.all_maps if (found := map_.match(name)) is not None), None)


@dataclass(frozen=True)
class LayerFacts:
    """What a rule may know of a live layer: plain values only, no framework objects."""

    family: str
    class_name: str
    attributes: Mapping[str, Any]
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of these attributes that the layer has."""
        return next((self.attributes[name] for name in names if name in self.attributes), default)


def as_given(layer: LayerFacts, inputs: tuple[Array, ...]) -> Arguments:
    """The inputs unchanged: the layer takes them as the rule makes them up."""
    return inputs


def as_returned(layer: LayerFacts, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """The outputs unchanged: the layer returns them in the canonical arrangement."""
    return outputs


@dataclass(frozen=True)
class Probe:
    """How a kind of layer is run in isolation."""

    inputs: Callable[[LayerFacts, np.random.Generator], tuple[Array, ...]]
    arrange: Callable[[LayerFacts, tuple[Array, ...]], Arguments] = as_given
    restore: Callable[[LayerFacts, tuple[Array, ...]], tuple[Array, ...]] = as_returned


@dataclass(frozen=True)
class Rule:
    """One kind of layer: how each family stores it and how it is run in isolation.

    `scale_only` rules are perturbed by factors and never by additions when a transfer is verified, because a zero in
    them has a meaning (the padding row of an embedding).
    """

    kind: str
    layouts: tuple[Layout, ...]
    probe: Probe
    scale_only: bool = False


def same(*names: str, optional: bool = False) -> tuple[TensorMap, ...]:
    """Maps of tensors that are stored under their canonical names and in the canonical layout."""
    return tuple(TensorMap(name, (name,), KEEP, optional) for name in names)
