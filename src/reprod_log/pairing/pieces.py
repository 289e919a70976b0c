"""Attention written out: one side has an attention layer or one wide linear layer where the other has three or four.

`nn.MultiheadAttention` against linear layers of one's own, or a fused `qkv` layer against separate ones, are the same
weights at different granularity. The coarser unit is taken apart into linear units that are matched like any other.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from reprod_log.layers.transform import Transform
from reprod_log.pairing.unit import PIECE, Part, Signature, Unit

_ROLES = ("q", "k", "v")


def take_apart(sources: Iterable[Unit], targets: Iterable[Unit]) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
    """Both lists with every unit taken apart that has no partner as a whole but has one in pieces."""
    sources, targets = tuple(sources), tuple(targets)
    return _split_list(sources, targets), _split_list(targets, sources)


def _split_list(units: tuple[Unit, ...], others: tuple[Unit, ...]) -> tuple[Unit, ...]:
    mine: Counter[Signature] = Counter(unit.signature for unit in units)
    whole: Counter[Signature] = Counter(unit.signature for unit in others)
    available = whole + Counter(
        piece.signature for other in others if not mine[other.signature] for piece in _pieces(other)
    )
    result: list[Unit] = []
    for unit in units:
        pieces = [] if whole[unit.signature] else _pieces(unit)
        wanted = bool(pieces) and all(available[piece.signature] for piece in pieces)
        result += pieces if wanted else [unit]
    return tuple(result)


def _pieces(unit: Unit) -> list[Unit]:
    if unit.kind == "multihead_attention" and unit.part("bias_k") is None:
        return [_piece(unit, role) for role in (*_ROLES, "out")]
    weight = unit.part("weight")
    if unit.kind == "linear" and weight is not None and weight.shape[0] % 3 == 0:
        return [_third(unit, index) for index in range(3)]
    return []


def _piece(unit: Unit, role: str) -> Unit:
    parts = [replace(p, canonical=p.canonical.split(".")[1]) for p in unit.parts if p.canonical.startswith(f"{role}.")]
    return Unit(f"{unit.path}.{role}", "linear", unit.family, PIECE, tuple(parts), owner=unit.path)


def _third(unit: Unit, index: int) -> Unit:
    # The stored weight may be (in, out); its thirds lie along the first canonical axis all the same.
    parts = tuple(
        Part(
            part.canonical,
            part.tensor,
            index,
            Transform(axes=part.transform.axes, parts=3),
            (part.shape[0] // 3, *part.shape[1:]),
        )
        for part in unit.parts
    )
    return Unit(f"{unit.path}.{_ROLES[index]}", "linear", unit.family, PIECE, parts, owner=unit.path)
