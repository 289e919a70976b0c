"""Settings of layers in words that the frameworks share, so that two layers can be held against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import not_
from typing import Any

from reprod_log.layers.lookup import column_of, family_of, layer_kind, layer_kinds, of_the_tables
from reprod_log.layers.rows import Convention, Setting
from reprod_log.recording import ModuleInfo


@dataclass(frozen=True)
class Difference:
    """A setting in which two paired layers differ."""

    name: str
    """The shared word."""
    ours: Any
    theirs: Any
    native: str
    """What the candidate's framework calls it, without leading underscores."""
    right: Any
    """The value that the candidate should have, in its own convention."""
    has: Any
    """The value that it has, in its own convention."""


@dataclass(frozen=True)
class _Shared:
    """One setting of a layer in the shared convention, and how the layer itself writes it."""

    value: Any
    native: str
    raw: Any
    convert: Convention


def setting_differences(ours: ModuleInfo, theirs: ModuleInfo) -> list[Difference]:
    """Every setting that both layers have, or that one lacks with a known meaning, and in which they differ."""
    if ours.kind != theirs.kind:
        return []
    here, there = _shared(ours), _shared(theirs)
    row = layer_kind(ours.kind)
    absent = row.absent if row is not None else {}
    found = []
    for name in sorted(here.keys() | there.keys()):
        if name not in absent and not (name in here and name in there):
            continue
        left = here[name].value if name in here else absent[name]
        other = there[name] if name in there else _without(theirs, name, absent[name])
        if not same_setting(left, other.value):
            right = converted(left, other.convert)
            found.append(Difference(name, left, other.value, other.native, right, other.raw))
    return found


def shared_setting(module: ModuleInfo, name: str) -> Any:
    """A setting by its shared word, in the shared convention; None when the layer does not have it."""
    found = _shared(module).get(name)
    return None if found is None else found.value


def same_setting(left: Any, right: Any) -> bool:
    """Whether two settings mean the same: 1 and (1, 1) do, and numbers that agree to float32."""
    if isinstance(left, (list, tuple)) or isinstance(right, (list, tuple)):
        one = list(left) if isinstance(left, (list, tuple)) else None
        other = list(right) if isinstance(right, (list, tuple)) else None
        if one is None:
            one = [left] * len(other or ())
        if other is None:
            other = [right] * len(one)
        return len(one) == len(other) and all(same_setting(a, b) for a, b in zip(one, other, strict=True))
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (left, right))
    return math.isclose(left, right, rel_tol=1e-6) if numbers else bool(left == right)


def converted(value: Any, convention: Convention) -> Any:
    """A native value in the shared convention, or back: these conventions are their own inverse."""
    return _CONVERSIONS[convention](value) if convention else value


def _shared(module: ModuleInfo) -> dict[str, _Shared]:
    """The settings that matter, by shared word."""
    words = _words(module)
    found = {}
    for native, raw in module.settings.items():
        if native in words:
            name, convert = words[native]
            found[name] = _Shared(converted(raw, convert), native, raw, convert)
    return found


def _words(module: ModuleInfo) -> Mapping[str, tuple[str, Convention]]:
    """The shared word and the convention of each native name that matters for this layer."""
    family, column = family_of(module.origin)[0], column_of(module)
    known = _words_of(module.kind, family)
    if column is not None and module.type in column.classes:
        return known
    # A custom class may have settings beyond those of the kind that it was derived from.
    return {**_words_of_own_classes(family), **known}


@of_the_tables
def _words_of(kind: str, family: str) -> Mapping[str, tuple[str, Convention]]:
    row = layer_kind(kind)
    if row is None:
        return {}
    column = row.columns.get(family) or row.columns.get(family.partition(".")[0])
    settings: Mapping[str, Setting] = {} if column is None else column.settings
    rows = {name: settings.get(name, Setting(name)) for name in row.compared}
    return {one.native: (name, one.convert) for name, one in rows.items()}


@of_the_tables
def _words_of_own_classes(family: str) -> Mapping[str, tuple[str, Convention]]:
    """What all rows say together: a custom class names its settings as the frameworks do.

    What a share means it does not say by its name, so that one is taken as it is.
    """
    names = {name for row in layer_kinds().values() for name in row.compared}
    found: dict[str, tuple[str, Convention]] = {name: (name, "") for name in names}
    for row in layer_kinds().values():
        for framework, column in row.columns.items():
            for name, setting in column.settings.items():
                own = framework.partition(".")[0] == family.partition(".")[0]
                convert = setting.convert if own and setting.convert != "kept" else ""
                if setting.native not in names or (setting.native == name and convert):
                    found[setting.native] = (name, convert)
    return found


def _without(module: ModuleInfo, name: str, meaning: Any) -> _Shared:
    """A setting that the layer lacks, with what that means."""
    column = column_of(module)
    setting = Setting(name) if column is None else column.settings.get(name, Setting(name))
    return _Shared(meaning, setting.native, None, setting.convert)


def _kept(share: Any) -> Any:
    return round(1 - share, 12)


def _tanh(value: Any) -> Any:
    return {"tanh": True, "none": False, True: "tanh", False: "none"}.get(value, value)


_CONVERSIONS: Mapping[Convention, Callable[[Any], Any]] = {"not": not_, "kept": _kept, "tanh": _tanh}
