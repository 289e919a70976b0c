"""Leftovers: tensors of either side that a transfer does not move, and why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from reprod_log.errors import listed, near_names
from reprod_log.pairing.correspondence import Correspondence
from reprod_log.pairing.order import Ambiguity
from reprod_log.pairing.survey import Survey
from reprod_log.pairing.units import Unit


@dataclass(frozen=True)
class Leftovers:
    """Names left on either side, those allowed to be, and a reason for each."""

    in_source: tuple[str, ...]
    in_target: tuple[str, ...]
    allowed: tuple[str, ...]
    reasons: dict[str, str]


def find_leftovers(
    source: Survey,
    target: Survey,
    found: Correspondence,
    allow_left: Iterable[str],
) -> Leftovers:
    """Everything that does not move. A tied tensor that moves under another name is not left."""
    patterns = (allow_left,) if isinstance(allow_left, str) else tuple(allow_left)
    here = _unused(source, {name for link in found.links for name in link.sources})
    there = _unused(target, {link.target for link in found.links})
    allowed = [name for name in (*there, *here) if any(fnmatchcase(name, pattern) for pattern in patterns)]
    allowed += [*_bookkeeping(target, there), *_bookkeeping(source, here)]
    reasons: dict[str, str] = {}
    partners = {pair.source.path: pair.target for pair in found.pairs}
    back = {pair.target.path: pair.source for pair in found.pairs}
    for names, own, other, partner in ((here, source, target, partners), (there, target, source, back)):
        free = there if own is source else here
        for unit in own.units:
            for name in unit.tensors:
                if name in names:
                    reasons[name] = _reason(name, unit, other, partner.get(unit.path), found.undecided, free)
    return Leftovers(_without(here, allowed), _without(there, allowed), tuple(dict.fromkeys(allowed)), reasons)


def _bookkeeping(survey: Survey, names: Iterable[str]) -> list[str]:
    """Integer tensors that are never trained (indices, position ids, counters): many models do not keep them at all."""
    return [
        name for name in names if name not in survey.trained and survey.dtype(name).startswith(("int", "uint", "bool"))
    ]


def _unused(survey: Survey, used: set[str]) -> tuple[str, ...]:
    held = {survey.first_name(name) for name in used}
    required = {part.tensor: None for unit in survey.units for part in unit.parts if not part.optional}
    return tuple(name for name in required if survey.first_name(name) not in held)


def _without(names: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    kept = set(allowed)
    return tuple(name for name in names if name not in kept)


def _reason(
    name: str, unit: Unit, other: Survey, partner: Unit | None, undecided: Sequence[Ambiguity], free: Sequence[str]
) -> str:
    for group in undecided:
        if any(unit.path in (one.path, one.owner) for one in (*group.sources, *group.targets)):
            one, two = (listed([u.path for u in side], most=3) for side in (group.sources, group.targets))
            return f"{one} and {two} ({group.sources[0].describe()}) fit each other in more than one way"
    if partner is not None:
        return f"'{partner.path}', the partner of '{unit.path}', has nothing to match '{name}'"
    same_path = next((one for one in other.units if one.path == unit.path), None)
    if same_path is not None:
        return f"'{unit.path}' is {unit.describe()} here and {same_path.describe()} there"
    close = near_names(name, free, most=2)
    return f"near '{name}': {listed(close)}" if close else f"nothing fits '{unit.path}' ({unit.describe()})"
