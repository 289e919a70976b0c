"""Which view makes one framework's tensor comparable with another's: names and layouts only, no framework needed.

A layer's type is a plain string such as "torch.nn.Linear" or "paddle.nn.layer.common.Linear" (a class's module and
name); a tensor's name is the name inside its layer ("weight", "q_proj.weight"). Parameters, gradients and optimizer
moments of a layer share their layout, so one view serves all three.

Any weight may be kept in another form, weight norm's (g and v) or spectral norm's (original, u and v); the names follow
the weight's own. The canonical forms are `weight.g` (flat), `weight.v` and `weight.original` (in the canonical layout
of the weight), `weight.left` and `weight.right` (the vectors of the power iteration).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from reprod_log.layers.lookup import find_layer
from reprod_log.layers.rows import Column, TensorMap
from reprod_log.layers.transform import FLAT, KEEP, Shape, Transform
from reprod_log.messages import Message, message
from reprod_log.recording import Array


@dataclass(frozen=True)
class Piece:
    """One canonical part, and where it lies in the candidate: which of the tensors read, which of its parts."""

    tensor: int
    part: int
    transform: Transform


@dataclass(frozen=True)
class TensorView:
    """How tensors of the candidate's layer become one tensor in the layout of the reference's layer."""

    kind: str
    reference: str
    candidate: tuple[str, ...]
    pieces: tuple[Piece, ...]
    joined: Transform

    @property
    def unchanged(self) -> bool:
        """Whether the candidate's tensor is comparable as it stands, but for a shape that the type leaves open."""
        return (
            len(self.candidate) == 1
            and len(self.pieces) == self.pieces[0].transform.parts
            and self.pieces[0].transform == self.joined
            and [piece.part for piece in self.pieces] == list(range(len(self.pieces)))
        )

    def apply(self, arrays: Sequence[Array], *, shape: Shape) -> Array:
        """The candidate's arrays (in the order of `candidate`) as one array of the reference's shape."""
        parts = [piece.transform.split(arrays[piece.tensor])[piece.part] for piece in self.pieces]
        return self.joined.join(parts, shape)

    @property
    def steps(self) -> tuple[Message, ...]:
        """What is done to the candidate's tensors; the shape, where nothing else is."""
        if self.unchanged:
            return (message("view.reshaped"),)
        first = self.pieces[0]
        out, back = first.transform.steps, self.joined.steps
        # Transposed on the way out of one layout and again into the other: only the cutting is left.
        found = [] if out == back else [*out, *back]
        if len(self.pieces) < first.transform.parts:
            found.append(message("view.part", place=first.part + 1, count=first.transform.parts))
        elif len(self.candidate) > 1:
            found.append(message("view.joined", count=len(self.candidate)))
        return tuple(found) or (message("view.reordered"),)


def stored_transform(type_name: str, name: str, names: Collection[str] = ()) -> Transform:
    """How a layer of this type stores its tensor `name`, as the way to the canonical form; KEEP where no row says."""
    found = find_layer(type_name)
    map_ = None if found is None else _find(found[1], name, {name, *names})
    return KEEP if map_ is None else map_.transform


def _find(column: Column, name: str, names: Collection[str]) -> TensorMap | None:
    direct = column.find(name)
    if direct is not None:
        return direct
    return next((map_ for map_ in kept_in_other_form(column, names) if map_.native == name), None)


@dataclass(frozen=True)
class _WeightForm:
    """One way to keep a weight: the names its tensors take, and what each is. `{w}` stands for the weight's name."""

    tensors: tuple[tuple[str, str], ...]

    def names(self, weight: str) -> tuple[str, ...]:
        """The names of the stored tensors for the named weight."""
        return tuple(name.replace("{w}", weight) for name, _ in self.tensors)


# The order matters: spectral norm's `weight_v` differs from weight norm's by the presence of `weight_orig`.
_FORMS = (
    _WeightForm((("{w}_orig", "original"), ("{w}_u", "left"), ("{w}_v", "right"))),
    _WeightForm((("{w}_g", "g"), ("{w}_v", "v"))),
    _WeightForm(
        (
            ("parametrizations.{w}.original", "original"),
            ("parametrizations.{w}.0._u", "left"),
            ("parametrizations.{w}.0._v", "right"),
        )
    ),
    _WeightForm((("parametrizations.{w}.original0", "g"), ("parametrizations.{w}.original1", "v"))),
)


_ROLES = frozenset(role for form in _FORMS for _, role in form.tensors)


def is_of_other_form(canonical: str) -> bool:
    """Whether a canonical tensor is a part of a weight that is kept in another form."""
    _, dot, role = canonical.rpartition(".")
    return bool(dot) and role in _ROLES


def kept_in_other_form(column: Column, names: Collection[str]) -> tuple[TensorMap, ...]:
    """Maps for the tensors among `names` that stand in for a weight of this column."""
    maps: list[TensorMap] = []
    taken: set[str] = set()
    for form in _FORMS:
        first, _ = form.tensors[0]
        before, after = first.split("{w}")
        for name in sorted(names):
            if not (name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)):
                continue
            weight = name[len(before) : len(name) - len(after)]
            found = column.find(weight)
            stored = form.names(weight)
            if found is None or found.transform.parts > 1 or taken.intersection(stored):
                continue
            if all(one in names for one in stored):
                taken.update(stored)
                maps += _form_maps(form, weight, found)
    return tuple(maps)


def _form_maps(form: _WeightForm, weight: str, found: TensorMap) -> list[TensorMap]:
    of_role: dict[str, Transform] = {"g": FLAT, "left": KEEP, "right": KEEP}
    return [
        TensorMap(name, (f"{found.canonical[0]}.{role}",), of_role.get(role, found.transform))
        for name, (_, role) in zip(form.names(weight), form.tensors, strict=True)
    ]
