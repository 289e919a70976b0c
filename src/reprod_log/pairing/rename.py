"""Rename rules: what the user calls the same on both sides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from reprod_log.errors import UsageError, listed, near_names
from reprod_log.recording import Key, Recording


def renamed(key: Key, rename: Mapping[str, str]) -> tuple[Key, str | None]:
    """The key as the candidate would call it, and the rule that changed it (None: no rule applied).

    A rule names a whole key (`loss_0`), or a path as in `renamed_path`.
    """
    if not rename:
        return key, None
    text = str(key)
    if text in rename:
        return Key.parse(rename[text]), text
    path, rule = renamed_path(key.path, rename)
    return (key if rule is None else replace(key, path=path)), rule


def renamed_path(path: str, rename: Mapping[str, str]) -> tuple[str, str | None]:
    """The path as the other side would call it, and the rule that changed it (None: no rule applied).

    A rule names a whole path (`fc`) or the front of one (`fc` also renames `fc.weight`); an empty one stands before
    every path, and an empty new name takes the front away. The longest rule that fits wins.
    """
    old = next((front for front in fronts(path) if front in rename), None) if rename else None
    if old is None:
        return path, None
    new, rest = rename[old], path[len(old) :]
    if not old or not new:
        return ".".join(part for part in (new.rstrip("."), rest.lstrip("./")) if part), old
    return new + rest, old


def is_front(front: str, path: str) -> bool:
    """Whether it is the path itself or something that the path lies in."""
    return not front or path == front or path.startswith((f"{front}.", f"{front}/"))


def fronts(path: str) -> Iterator[str]:
    """The path itself and everything that it lies in, the longest first; last the empty one, which is before all."""
    yield path
    for place in range(len(path) - 1, 0, -1):
        if path[place] in "./":
            yield path[:place]
    if path:
        yield ""


def recorded_names(recording: Recording) -> dict[str, None]:
    """What a rule may name in a recording: the paths of its entries, and whole keys."""
    keys = [entry.key for entry in recording.entries]
    return dict.fromkeys([*(key.path for key in keys), *map(str, keys)])


def oriented(
    rename: Mapping[str, str], reference: Iterable[str], candidate: Iterable[str], models: Collection[str] = ()
) -> dict[str, str]:
    """The rules as reference → candidate, whichever side's name a rule begins with.

    A rule whose first name neither side has is refused: a mistyped rule must not go unnoticed. `models` are the names
    of the models where there are several; each path then begins with one.
    """
    if not rename:
        return {}
    ours, theirs = (_all_fronts(names) for names in (reference, candidate))
    found: dict[str, str] = {}
    for old, new in rename.items():
        if old in ours:
            found[old] = new
        elif old in theirs and new in ours:
            found[new] = old
        else:
            raise UsageError(_unknown_rule(old, new, ours, theirs, models))
    return found


def rules_of_model(rename: Mapping[str, str] | None, model: str) -> Mapping[str, str] | None:
    """The rules of one of several models, without its name; all of them where there is one model without a name."""
    if not rename or not model:
        return rename
    front = f"{model}."
    return {old.removeprefix(front): new.removeprefix(front) for old, new in rename.items() if old.startswith(front)}


def _all_fronts(names: Iterable[str]) -> dict[str, None]:
    return dict.fromkeys(front for name in names for front in fronts(name))


def _unknown_rule(
    old: str, new: str, ours: Mapping[str, None], theirs: Mapping[str, None], models: Collection[str]
) -> str:
    head = f"rename has {old!r}: {new!r}, but the reference has nothing named {old!r}"
    inside = [f"{model}.{old}" for model in models if f"{model}.{old}" in ours]
    if inside:
        one, _, rest = inside[0].partition(".")
        return f"{head}: {rest!r} of model {one!r} is {inside[0]!r}. Write the model's name in front, on both sides."
    model, _, rest = old.partition(".")
    if rest and rest in ours:
        return f"{head}: {old!r} is {rest!r} of the one model there is. Leave {model!r} out."
    if old in theirs:
        head = f"{head} (the candidate has), nor anything named {new!r}"
    close = near_names(old, ours, most=2)
    hint = f" Near names: {listed(close)}." if close else ""
    return f"{head}.{hint} The reference has {listed(name for name in ours if name)}."
