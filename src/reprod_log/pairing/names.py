"""What names say: equal paths, stated ones, the words and numbers in a path and how close two of them are."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache

from reprod_log.errors import TransferError, UsageError, listed, near_names
from reprod_log.pairing.rename import renamed_path
from reprod_log.pairing.units import Unit, UnitPair, single

# Spellings of one role. Only what means the same throughout the field: a wrong entry would pair wrong layers.
_SPELLINGS = {
    "query": "q",
    "queries": "q",
    "wq": "q",
    "key": "k",
    "keys": "k",
    "wk": "k",
    "value": "v",
    "values": "v",
    "wv": "v",
    "output": "out",
    "wo": "out",
    "o": "out",
    "projection": "proj",
    "embedding": "embed",
    "embeddings": "embed",
    "emb": "embed",
    "position": "pos",
    "positional": "pos",
    "class": "cls",
    "layernorm": "ln",
}
_ATTENTION = frozenset("qkv")
_AFFINE = {
    "gain": frozenset({"weight", "scale", "gamma", "gain", "g"}),
    "shift": frozenset({"bias", "shift", "beta", "offset", "b"}),
}


def numbers(path: str) -> tuple[int, ...]:
    """All numbers in a path, in order: "layers.3.fc2" gives (3, 2)."""
    return tuple(int(number) for number in re.findall(r"\d{1,18}", path))


@cache
def words(name: str) -> frozenset[str]:
    """The words of a name in lower case without numbers, with common spellings brought together."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    found = re.split(r"[^a-z]+", spaced.lower())
    return frozenset(_SPELLINGS.get(word, word) for word in found if word)


def attention_role(path: str) -> str | None:
    """Whether a name says that the layer makes queries, keys or values."""
    last = next((part for part in reversed(path.split(".")) if not part.isdigit()), "")
    roles = words(last) & _ATTENTION
    return next(iter(roles)) if len(roles) == 1 else None


@cache
def affine_role(path: str) -> str | None:
    """Whether a name says that the tensor multiplies ("gain") or is added ("shift")."""
    found = [role for role, spellings in _AFFINE.items() if words(path.rpartition(".")[2]) & spellings]
    return found[0] if len(found) == 1 else None


@cache
def closeness(one: str, other: str) -> float:
    """How much of the wording two paths share, from 0 to 1; the last component counts most."""
    roles = attention_role(one), attention_role(other)
    if roles[0] is not None and roles[1] is not None and roles[0] != roles[1]:
        return 0.0
    last = [words(_last(path)) for path in (one, other)]
    whole = [words(path) for path in (one, other)]
    return 0.7 * _overlap(*last) + 0.3 * _overlap(*whole)


def plain(path: str) -> str:
    """A path without separators: "decoder.bias" and "decoder_bias" are the same words in the same order."""
    return re.sub(r"[._]+", "_", path.lower())


def _last(path: str) -> str:
    named = [part for part in path.split(".") if not part.isdigit()]
    return named[-1] if named else path


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0


def match_renames(sources: tuple[Unit, ...], targets: tuple[Unit, ...], rename: Mapping[str, str]) -> list[UnitPair]:
    """Pairs that the user's map asks for: whole layers, everything below a prefix, or single tensors."""
    by_path = _by_path(targets)
    pairs, used, found = [], set(), set()
    for unit in sources:
        wanted, key = renamed_path(unit.path, rename)
        if key is None:
            continue
        used.add(key)
        target = by_path.get(wanted)
        if target is None:
            continue
        if not unit.fits_partly(target):
            raise TransferError(
                f"rename sends '{unit.path}' ({unit.describe()}) to '{wanted}' ({target.describe()}): they do not fit."
            )
        found.add(key)
        pairs.append(UnitPair(unit, target, "rename"))
    taken = {pair.source.path for pair in pairs} | {pair.target.path for pair in pairs}
    tensors, tensor_keys = _renamed_tensors(sources, targets, rename, taken)
    _complain(rename, used, found | tensor_keys, sources, targets)
    return pairs + tensors


def match_names(sources: tuple[Unit, ...], targets: tuple[Unit, ...]) -> list[UnitPair]:
    """Pairs of equal path, apart from what stands in front of all paths of a side (a wrapping `net.`).

    Where a path has numbers, both sides must count alike, or the numbers mean nothing.
    """
    pairs: list[UnitPair] = []
    fronts = {(0, 0), (_shared_front(sources), _shared_front(targets))}
    for front, other_front in sorted(fronts):
        here, there = _numbering(sources, front), _numbering(targets, other_front)
        done = {pair.target.path for pair in pairs} | {pair.source.path for pair in pairs}
        by_path = _by_path(targets, other_front)
        for unit in sources:
            for path in _paths(unit, front):
                target = by_path.get(path)
                if target is None or unit.path in done or target.path in done:
                    continue
                if unit.fits_partly(target) and _counts_alike(path, here, there):
                    pairs.append(UnitPair(unit, target, "name"))
                    break
    return pairs


def _shared_front(units: tuple[Unit, ...]) -> int:
    """How many leading components all paths share; the last component of a path never counts."""
    split = [unit.path.split(".")[:-1] for unit in units]
    if len(split) < 2:
        return 0
    return next(
        (n for n in range(min(map(len, split))) if len({parts[n] for parts in split}) > 1), min(map(len, split))
    )


def _paths(unit: Unit, front: int) -> list[str]:
    return [".".join(path.split(".")[front:]) for path in (unit.path, *unit.aliases)]


def _by_path(units: Iterable[Unit], front: int = 0) -> dict[str, Unit]:
    found: dict[str, Unit] = {}
    for unit in units:
        for path in _paths(unit, front):
            found.setdefault(path, unit)
    return found


def _renamed_tensors(
    sources: tuple[Unit, ...], targets: tuple[Unit, ...], rename: Mapping[str, str], taken: set[str]
) -> tuple[list[UnitPair], set[str]]:
    here = {part.tensor: (unit, part) for unit in sources for part in unit.parts}
    there = {part.tensor: (unit, part) for unit in targets for part in unit.parts}
    pairs, keys = [], set()
    for name, wanted in rename.items():
        if name not in here or wanted not in there or name in taken:
            continue
        one, other = single(*here[name]), single(*there[wanted])
        if not one.fits(other):
            raise TransferError(
                f"rename sends '{name}' {one.parts[0].shape} to '{wanted}' {other.parts[0].shape}: they do not fit."
            )
        pairs.append(UnitPair(one, other, "rename"))
        keys.add(name)
    return pairs, keys


def _complain(
    rename: Mapping[str, str], used: set[str], found: set[str], sources: tuple[Unit, ...], targets: tuple[Unit, ...]
) -> None:
    wrong = [key for key in rename if key not in found]
    if not wrong:
        return
    key = wrong[0]
    side, name, units = ("source", key, sources) if key not in used else ("target", rename[key], targets)
    close = near_names(name, {prefix for unit in units for prefix in _prefixes(unit.path)}, most=2)
    hint = f" Near names: {listed(close)}." if close else ""
    raise UsageError(f"rename has {key!r}: {rename[key]!r}, but the {side} has nothing named {name!r}.{hint}")


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _numbering(units: Iterable[Unit], front: int) -> dict[str, list[int]]:
    """The numbers in use below every prefix, sorted."""
    seen: defaultdict[str, set[int]] = defaultdict(set)
    for unit in units:
        for path in _paths(unit, front):
            parts = path.split(".")
            for position, part in enumerate(parts):
                if part.isdigit():
                    seen[".".join(parts[:position])].add(int(part))
    return {prefix: sorted(found) for prefix, found in seen.items()}


def _counts_alike(path: str, here: Mapping[str, list[int]], there: Mapping[str, list[int]]) -> bool:
    # "2" is the second linear layer of Sequential(Linear, ReLU, Linear) and the third of three linear layers. Numbers
    # are trusted where one side's are the beginning of the other's: the same counting, a different depth.
    parts = path.split(".")
    for position, part in enumerate(parts):
        if part.isdigit():
            prefix = ".".join(parts[:position])
            one, other = here.get(prefix, []), there.get(prefix, [])
            shorter = min(len(one), len(other))
            if one[:shorter] != other[:shorter]:
                return False
    return True
