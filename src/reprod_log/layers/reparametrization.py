"""Weights that a layer keeps in another form: weight norm (g and v) and spectral norm (original, u and v).

Any tensor of any rule may be kept so; the names follow the tensor's own name. The canonical forms are `weight.g`
(flat), `weight.v` and `weight.original` (in the canonical layout of the weight), `weight.left` and `weight.right`
(the vectors of the power iteration).
"""

from collections.abc import Collection
from dataclasses import dataclass

from reprod_log.layers.rule import Layout, TensorMap
from reprod_log.layers.transform import FLAT, KEEP, Transform


@dataclass(frozen=True)
class Form:
    """One way to keep a weight: the names its tensors take, and what each is. `{w}` stands for the weight's name."""

    tensors: tuple[tuple[str, str], ...]

    def names(self, weight: str) -> tuple[str, ...]:
        """The names of the stored tensors for the named weight."""
        return tuple(name.replace("{w}", weight) for name, _ in self.tensors)


# The order matters: spectral norm's `weight_v` is told from weight norm's by the presence of `weight_orig`.
FORMS = (
    Form((("{w}_orig", "original"), ("{w}_u", "left"), ("{w}_v", "right"))),
    Form((("{w}_g", "g"), ("{w}_v", "v"))),
    Form(
        (
            ("parametrizations.{w}.original", "original"),
            ("parametrizations.{w}.0._u", "left"),
            ("parametrizations.{w}.0._v", "right"),
        )
    ),
    Form((("parametrizations.{w}.original0", "g"), ("parametrizations.{w}.original1", "v"))),
)


def reparametrized(layout: Layout, names: Collection[str]) -> tuple[TensorMap, ...]:
    """Maps for the tensors among `names` that stand in for a weight of this layout."""
    maps: list[TensorMap] = []
    taken: set[str] = set()
    for form in FORMS:
        first, _ = form.tensors[0]
        before, after = first.split("{w}")
        for name in sorted(names):
            if not (name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)):
                continue
            weight = name[len(before) : len(name) - len(after)]
            found = layout.find(weight)
            stored = form.names(weight)
            if found is None or found.transform.parts > 1 or taken.intersection(stored):
                continue
            if all(one in names for one in stored):
                taken.update(stored)
                maps += _maps(form, weight, found)
    return tuple(maps)


def _maps(form: Form, weight: str, found: TensorMap) -> list[TensorMap]:
    of_role: dict[str, Transform] = {"g": FLAT, "left": KEEP, "right": KEEP}
    return [
        TensorMap(name, (f"{found.canonical[0]}.{role}",), of_role.get(role, found.transform))
        for name, (_, role) in zip(form.names(weight), form.tensors, strict=True)
    ]
