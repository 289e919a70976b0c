"""Axes along which layers are split: where ranks that share the work of a layer first go on with different things.

Along such an axis (tp, sp, mp …) all ranks are fed the same, and what is not split is the same on all of them. The
first entry that is not shows which sum over the ranks is missing: that of a row-parallel layer's output, or that of
the gradient of a column-parallel layer's input.
"""

from __future__ import annotations

from collections.abc import Iterator

from reprod_log.diagnose import Finding
from reprod_log.errors import listed
from reprod_log.ranks.bits import digest
from reprod_log.ranks.mesh import Mesh
from reprod_log.ranks.parts import Ranks, said_ranks
from reprod_log.ranks.placing import Parts, Placing
from reprod_log.recording import Key, ModuleInfo

_RULE = "model_reduction"
_INPUT_DIMS = {"linear": {"torch": 1, "paddle": 0}, "embedding": {"torch": 0, "paddle": 0}}
"""The dim of a weight whose pieces each give a part of the whole output, by the kind of the layer."""


def look(ranks: Ranks, placing: Placing) -> Iterator[Finding]:
    """What is missing along each axis that layers are split over."""
    for axis, one in enumerate(placing.mesh.axes):
        if not one.batch:
            parts = _first_apart(ranks, placing, axis)
            if parts is not None:
                yield from _named(parts, ranks, placing, axis)


def _first_apart(ranks: Ranks, placing: Placing, axis: int) -> Parts | None:
    """The first entry that should be the same along the axis and is not."""
    for text in ranks.keys:
        parts = ranks.entries(text)
        key = parts[0].key
        if key.run or (key.phase == "gradient" and key.role == "local"):
            continue
        if _apart(parts, placing.mesh, axis) and axis in placing.of(parts).same:
            return parts
    return None


def _apart(parts: Parts, mesh: Mesh, axis: int) -> tuple[int, ...]:
    """The ranks of the first line along the axis that do not all have the same."""
    for line in mesh.groups(axis):
        if len({digest(parts[rank]) for rank in line}) > 1:
            return line
    return ()


def _named(parts: Parts, ranks: Ranks, placing: Placing, axis: int) -> Iterator[Finding]:
    key, name, size = parts[0].key, placing.mesh.axes[axis].name, placing.mesh.axes[axis].size
    apart = said_ranks(_apart(parts, placing.mesh, axis))
    if key.phase == "data":
        yield Finding(
            rule=_RULE,
            cause=f"ranks along {name} were fed different data",
            evidence=f"{key} differs between {apart}, which work on the same samples",
            confidence="consistent",
            advice="give all ranks that share a layer the same batch: a sampler counts only the ranks along the batch; "
            "if the ranks lie on axes that were not recorded, declare them with --mesh",
            keys=(str(key),),
        )
    elif key.phase == "forward" and key.role.startswith("output"):
        yield from _of_output(parts, ranks, placing, axis)
    elif key.phase == "backward":
        yield Finding(
            rule=_RULE,
            cause=f"the gradient of {key.path}'s output is not summed over the {size} ranks along {name}: each goes "
            "back with its own part",
            evidence=f"everything before it is the same along {name}, {key} differs between {apart}",
            confidence="consistent",
            advice="sum the gradient of a column-parallel layer's input over the ranks (the identity forward, an "
            "all-reduce backward)",
            keys=(str(key),),
        )
    elif key.phase == "gradient":
        yield Finding(
            rule=_RULE,
            cause=f"the gradient of {key.path} is not the same on the {size} ranks along {name}, which all have this "
            "parameter",
            evidence=f"everything before it is the same along {name}, {key} differs between {apart}",
            confidence="consistent",
            advice="a parameter that is not split but works on a split activation needs its gradient summed over these "
            "ranks; if it is split, declare its dims",
            keys=(str(key),),
        )


def _of_output(parts: Parts, ranks: Ranks, placing: Placing, axis: int) -> Iterator[Finding]:
    key, name, size = parts[0].key, placing.mesh.axes[axis].name, placing.mesh.axes[axis].size
    module = next((one for one in ranks.parts[0].modules if one.path == key.path), None)
    cut = {} if module is None else _cut_parameters(module, ranks, placing, axis)
    if not cut:
        return
    assert module is not None
    framework = ranks.parts[0].provenance.framework
    whole_sums = _INPUT_DIMS.get(module.kind, {}).get(framework)
    if whole_sums is not None and cut.get("weight", whole_sums) != whole_sums:
        yield _undeclared(key, name)
        return
    apart = said_ranks(_apart(parts, placing.mesh, axis))
    yield Finding(
        rule=_RULE,
        cause=f"the output of {key.path} is not summed over the {size} ranks along {name}: each goes on with its own "
        "part",
        evidence=f"everything before it is the same along {name} or lies in pieces; {key.path} works with pieces of "
        f"{listed(cut)}, and its output differs between {apart}",
        confidence="possible" if whole_sums is None else "consistent",
        advice="sum the output of a row-parallel layer over the ranks (all-reduce) before its bias is added; if it is "
        "meant to lie in pieces, declare its dims",
        keys=(str(key),),
    )


def _undeclared(key: Key, axis: str) -> Finding:
    """A column-parallel layer gives pieces of the output."""
    return Finding(
        rule="undeclared_pieces",
        cause=f"the output of {key.path} lies in pieces along {axis}, and nothing declares them",
        evidence=f"the outputs of its weight are split, and {key} differs between the ranks",
        confidence="consistent",
        advice="declare the dims of what lies in pieces, or have layers give DTensors (use_local_output=False), which "
        "know it themselves",
        keys=(str(key),),
    )


def _cut_parameters(module: ModuleInfo, ranks: Ranks, placing: Placing, axis: int) -> dict[str, int]:
    """The layer's own parameters that lie in pieces along the axis, with the dim that is cut."""
    found: dict[str, int] = {}
    wanted = {f"{module.path}.{name}" if module.path else name: name for name in module.parameters}
    for text in ranks.keys:
        key: Key = ranks.parts[0][text].key
        if key.path in wanted and key.phase in ("parameter", "gradient", "update") and wanted[key.path] not in found:
            cuts = dict(placing.of(ranks.entries(text)).cuts)
            if axis in cuts:
                found[wanted[key.path]] = cuts[axis]
    return found
