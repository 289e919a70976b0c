"""Which argument of one module is which of the other's, when two authors wrote the modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from reprod_log.frameworks.nests import filled, flatten, plain_role
from reprod_log.frameworks.tensors import is_floating
from reprod_log.pairing.anchors import nearest_axes
from reprod_log.pairing.distance import SAME, relative
from reprod_log.recording import Array

if TYPE_CHECKING:
    from reprod_log.frameworks.contract import Call


def arranged(ours: Call, theirs: Call) -> Call | None:
    """The reference's call in the form of the candidate's; None when the two are not given the same tensors.

    Which argument is which follows from their values in the run of both models, and by their places where values do not
    decide.
    """
    here, there = dict(_leaves(ours)), dict(_leaves(theirs))
    roles = _roles(here, there)
    if roles is None:
        return None
    if all(role == other for role, other in roles.items()) and _alike(ours, theirs):
        return ours
    given = {role: here[other] for role, other in roles.items()}
    args = filled(theirs.args, given, "input")
    kwargs = filled(theirs.kwargs, given, "input")
    return replace(ours, args=args, kwargs=kwargs, roles=roles)


def begins_elsewhere(ours: Call, theirs: Call) -> bool:
    """Whether two layers are given tensors of different sizes, and what they give does not grow alike.

    One of them then does more than the other (it pads its input, and the other is given it padded), and neither alone
    says anything about the other.
    """
    given, given_there = ([array.size for _, array in _leaves(call)][:1] for call in (ours, theirs))
    made, made_there = ([prod(shape) for shape in call.outputs.values()] for call in (ours, theirs))
    return given != given_there and (given < given_there) != (made < made_there)


def has_other_axes(ours: Call, theirs: Call) -> bool:
    """Whether two modules are given the same tensor with other axes: neither can be called with the other's."""
    given, given_there = ([array for _, array in _leaves(call)][:1] for call in (ours, theirs))
    return any(len(set(nearest_axes(one, two))) > 1 for one, two in zip(given, given_there, strict=False))


def with_shared_outputs(ours: Call, theirs: Call) -> Call:
    """The call, with gradients for those outputs alone that both sides give."""
    here, there = ({plain_role(role) for role in call.outputs} for call in (ours, theirs))
    return ours if here == there else replace(ours, shared=frozenset(here & there))


def _alike(ours: Call, theirs: Call) -> bool:
    return len(ours.args) == len(theirs.args) and ours.kwargs.keys() == theirs.kwargs.keys()


def _roles(here: Mapping[str, Array], there: Mapping[str, Array]) -> dict[str, str] | None:
    """The reference's role for each of the candidate's; None when one side's tensor has no partner."""
    if len(here) != len(there):
        return None
    roles: dict[str, str] = {}
    left = dict(here)
    for proven in (True, False):
        for role, array in there.items():
            if role in roles:
                continue
            names = sorted(left, key=lambda name: name != role)
            found = next((name for name in names if _fits(left[name], array, proven=proven)), None)
            if found is not None:
                roles[role] = found
                del left[found]
    return roles if len(roles) == len(there) else None


def _fits(one: Array, other: Array, *, proven: bool) -> bool:
    if one.shape != other.shape or _kind(one) != _kind(other):
        return False
    if not proven:
        return True
    return bool(np.array_equal(one, other)) or relative(one, other) <= SAME


def _kind(array: Array) -> str:
    return "f" if is_floating(array) else array.dtype.kind


def _leaves(call: Call) -> Iterator[tuple[str, Array]]:
    for given in (call.args, call.kwargs):
        yield from ((role, leaf) for role, leaf in flatten(given, "input") if isinstance(leaf, np.ndarray))
