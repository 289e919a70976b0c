"""What the names of layers say: their numbers, their roles, how close two of them are."""

import difflib
import re
from collections.abc import Iterable
from functools import cache

# Spellings of one role. Only what is said the same way throughout the field: a wrong entry would pair wrong layers.
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


def near(name: str, pool: Iterable[str], most: int = 2) -> list[str]:
    """The names of the pool that look most like this one."""
    return difflib.get_close_matches(name, list(pool), n=most, cutoff=0.5)


def plain(path: str) -> str:
    """A path without separators: "decoder.bias" and "decoder_bias" are the same words in the same order."""
    return re.sub(r"[._]+", "_", path.lower())


def _last(path: str) -> str:
    named = [part for part in path.split(".") if not part.isdigit()]
    return named[-1] if named else path


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0
