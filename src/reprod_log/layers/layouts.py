"""Which view makes one framework's tensor comparable with another's: names and layouts only, no framework needed.

A layer's type is a plain string such as "torch.nn.Linear" or "paddle.nn.layer.common.Linear" (a class's module and
name); a tensor's name is the name inside its layer ("weight", "q_proj.weight"). Parameters, gradients and optimizer
moments of a layer share their layout, so one view serves all three.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from reprod_log.layers.reparametrization import reparametrized
from reprod_log.layers.rule import Layout, Rule, TensorMap
from reprod_log.layers.rules import rule_table
from reprod_log.layers.transform import KEEP, Array, Shape, Transform


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


def _find(layout: Layout, name: str, names: Collection[str]) -> TensorMap | None:
    direct = layout.find(name)
    if direct is not None:
        return direct
    return next((map_ for map_ in reparametrized(layout, names) if map_.native == name), None)
