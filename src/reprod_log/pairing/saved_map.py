"""A weight map as plain values for a file, and what its links do as messages for a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from reprod_log.layers.layouts import Piece, TensorView
from reprod_log.layers.transform import Transform
from reprod_log.messages import Message, message
from reprod_log.pairing.links import Computed, Crossing, Link, Recipe, WeightMap
from reprod_log.recording.plain import from_plain

_FORMS: dict[str, Any] = {one.__name__: one for one in (Recipe, Computed, TensorView, Piece, Transform, Link, Crossing)}
_FORM = "form"


def map_to_dict(weights: WeightMap) -> dict[str, Any]:
    """The map as plain values; of every part only what differs from its defaults."""
    return {name: value for name, value in _plain(weights).items() if name != _FORM}


def map_from_dict(data: Mapping[str, Any]) -> WeightMap:
    """The map that `map_to_dict` described."""
    found = WeightMap(**{str(name): _made(value) for name, value in data.items()})
    from_plain(WeightMap, found)
    for link in found.links:
        if len(link.sources) != len(link.source_shapes) or not link.sources:
            raise ValueError(f"the link of {link.target!r} has {len(link.sources)} sources")
    return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        # How a weight is computed is a function of both live models, and no value.
        kept = [one for one in fields(value) if one.compare]
        made = {one.name: getattr(value, one.name) for one in kept}
        changed = {one.name: _plain(made[one.name]) for one in kept if made[one.name] != one.default}
        return {_FORM: type(value).__name__} | {name: one for name, one in changed.items() if one != {}}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _made(value: Any) -> Any:
    if isinstance(value, Mapping):
        parts = {str(name): _made(one) for name, one in value.items() if name != _FORM}
        return _FORMS[value[_FORM]](**parts) if _FORM in value else parts
    return tuple(_made(one) for one in value) if isinstance(value, list) else value


def link_steps(link: Link) -> tuple[Message, ...]:
    """What is done to the reference's weights to make the candidate's, as messages."""
    recipe = link.recipe
    if isinstance(recipe, TensorView):
        same = recipe.unchanged and link.source_shapes == (link.shape,)
        return (message("view.as_is"),) if same else recipe.steps
    if isinstance(recipe, Computed):
        return (message("view.computed", count=len(link.sources)),)
    found: list[Message] = []
    if recipe.order is not None:
        found.append(message("view.in_other_order"))
    if recipe.fold is not None:
        found.append(message("view.folded", shape=str(recipe.fold)))
    if recipe.axes is not None:
        transposed = recipe.axes == (1, 0)
        found.append(message("view.transposed") if transposed else message("view.axes", axes=str(recipe.axes)))
    if recipe.part is not None:
        axis, index, count = recipe.part
        found.append(message("view.part_along", place=index + 1, count=count, axis=axis))
    if recipe.span is not None:
        axis, start, end = recipe.span
        found.append(message("view.span_along", start=start, end=end, axis=axis))
    if recipe.added:
        found.append(message("view.added", count=len(link.sources)))
    elif recipe.join is not None:
        found.append(message("view.joined_along", count=len(link.sources), axis=recipe.join))
    if recipe.heads:
        found.append(message("view.interleaved", heads=recipe.heads))
    if recipe.flip:
        found.append(message("view.flipped", axes=str(recipe.flip)))
    if len(link.sources) == 1 and recipe.part is recipe.span is None:
        own = link.source_shapes[0]
        if recipe.fold is None and tuple(own[axis] for axis in recipe.axes or range(len(own))) != link.shape:
            found.append(message("view.reshaped"))
    return tuple(found) or (message("view.as_is"),)
