"""Which view makes one framework's tensor comparable with another's: names and layouts only, no framework needed.

A layer's type is a plain string such as "torch.nn.Linear" or "paddle.nn.layer.common.Linear" (a class's module and
name); a tensor's name is the name inside its layer ("weight", "q_proj.weight"). Parameters, gradients and optimizer
moments of a layer share their layout, so one view serves all three.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from reprod_log.transfer.reparametrization import reparametrized
from reprod_log.transfer.rule import Layout, Rule, TensorMap
from reprod_log.transfer.rules import rule_table
from reprod_log.transfer.transform import KEEP, Array, Shape, Transform


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

    def __str__(self) -> str:
        if self.unchanged:
            return "as is"
        first = self.pieces[0]
        words = [
            str(replace(step, parts=1)) for step in (first.transform, self.joined) if replace(step, parts=1) != KEEP
        ]
        # Transposed on the way out of one layout and again into the other: only the cutting is left.
        words = [] if len(words) == 2 and words[0] == words[1] else words
        if len(self.pieces) < first.transform.parts:
            words.append(f"part {first.part + 1} of {first.transform.parts}")
        elif len(self.candidate) > 1:
            words.append(f"{len(self.candidate)} joined")
        return ", ".join(words) or "as is"


def family_of(type_name: str) -> tuple[str, str]:
    """The family ("torch", "paddle", "paddle.compat", or a foreign package) and the class name of a layer type."""
    module, _, class_name = type_name.rpartition(".")
    for family, prefix in (("paddle.compat", "paddle.compat"), ("paddle", "paddle.nn"), ("torch", "torch.nn")):
        if module == prefix or module.startswith(prefix + "."):
            return family, class_name
    return module.partition(".")[0], class_name


def find_rule(type_name: str) -> tuple[Rule, Layout] | None:
    """The rule and layout of a layer type; None if no rule knows it."""
    return rule_table().get(family_of(type_name))


def stored_transform(type_name: str, name: str, names: Collection[str] = ()) -> Transform:
    """How a layer of this type stores its tensor `name`, as the way to the canonical form; KEEP when no rule says."""
    found = find_rule(type_name)
    map_ = None if found is None else _find(found[1], name, {name, *names})
    return KEEP if map_ is None else map_.transform


def find_view(
    reference_type: str,
    candidate_type: str,
    name: str,
    *,
    reference_names: Collection[str] = (),
    candidate_names: Collection[str] = (),
) -> TensorView | None:
    """The view for the reference's tensor `name`, or None if the two layer types do not correspond or lack that tensor.

    `reference_names` and `candidate_names` are the names of the tensors inside each layer. They settle what a type
    alone leaves open: whether an attention layer is packed, whether a weight is kept in weight norm's form.
    """
    reference, candidate = find_rule(reference_type), find_rule(candidate_type)
    if reference is None or candidate is None or reference[0].kind != candidate[0].kind:
        return None
    wanted = _find(reference[1], name, {name, *reference_names})
    if wanted is None:
        return None
    maps = [_provider(candidate[1], part, candidate_names) for part in wanted.canonical]
    found = [map_ for map_ in maps if map_ is not None]
    if len(found) < len(maps):
        return None
    stored = list(dict.fromkeys(map_.native for map_ in found))
    pieces = tuple(
        Piece(stored.index(map_.native), map_.canonical.index(part), map_.transform)
        for map_, part in zip(found, wanted.canonical, strict=True)
    )
    return TensorView(reference[0].kind, name, tuple(stored), pieces, wanted.transform)


def _find(layout: Layout, name: str, names: Collection[str]) -> TensorMap | None:
    direct = layout.find(name)
    if direct is not None:
        return direct
    return next((map_ for map_ in reparametrized(layout, names) if map_.native == name), None)


def _provider(layout: Layout, canonical: str, names: Collection[str]) -> TensorMap | None:
    maps = [found for map_ in layout.all_maps if (found := map_.providing(canonical)) is not None]
    maps += [map_ for map_ in reparametrized(layout, names) if canonical in map_.canonical]
    if names:
        maps = [map_ for map_ in maps if map_.native in names]
    return maps[0] if maps else None
