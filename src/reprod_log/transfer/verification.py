"""Proof that a transferred layer computes the same: both sides of every pair run on one input, and nothing is written.

The values are the planned ones, slightly perturbed (see `perturbed`), so a mistake cannot hide behind ones
and zeros.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from reprod_log.errors import first_line
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.rows import LayerFacts, Probe
from reprod_log.layers.settings import setting_differences
from reprod_log.messages import Code, Foreign, Message, Name, Number, message
from reprod_log.pairing.correspondence import Correspondence, Runs
from reprod_log.pairing.distance import LAYER_LIMIT, difference
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.survey import Survey
from reprod_log.pairing.units import BARE, Unit, UnitPair
from reprod_log.recording import Array, ModuleInfo

Status = Literal["verified", "unverified", "differs"]


@dataclass(frozen=True)
class Check:
    """What the runs showed about one pair, and why if they showed nothing."""

    status: Status
    why: Message | None = None


def verify(source: Survey, target: Survey, found: Correspondence, values: Mapping[str, Array]) -> dict[str, Check]:
    """A check for every link, by the target's tensor; `values` are the source's by name."""
    arrays = values, WeightMap(found.links).apply(values.__getitem__)
    checks = {
        target.first_name(name): check
        for pair in found.pairs
        for check in [_check(source, target, pair, arrays, found.runs)]
        for name in pair.target.tensors
    }
    whole = Check("unverified", message("transfer.check.piece"))
    if found.runs is not None and found.runs.proven:
        whole = Check("verified", message("transfer.check.whole_models"))
    return {link.target: checks.get(target.first_name(link.target), whole) for link in found.links}


def _check(
    source: Survey,
    target: Survey,
    pair: UnitPair,
    arrays: tuple[Mapping[str, Array], Mapping[str, Array]],
    runs: Runs | None,
) -> Check:
    if not pair.is_whole:
        bare = BARE in (pair.source.kind, pair.target.kind)
        owners = bare and runs is not None and runs.agree and runs.owners_agree(pair.source.owner, pair.target.owner)
        if owners or (runs is not None and runs.proven):
            return Check("verified", message("transfer.check.whole_models"))
        return Check("unverified", message("transfer.check.bare" if bare else "transfer.check.piece"))
    missing = [name for name in pair.target.tensors if name not in arrays[1] and not _optional(pair.target, name)]
    if missing:
        return Check("unverified", message("transfer.check.not_moved", name=Name(missing[0])))
    probe = _probe(pair.target.kind)
    if probe is None:
        return Check("unverified", message("transfer.check.no_rule"))
    return _run_both(source, target, pair, arrays, probe, runs)


def _run_both(
    source: Survey,
    target: Survey,
    pair: UnitPair,
    arrays: tuple[Mapping[str, Array], Mapping[str, Array]],
    probe: Probe,
    runs: Runs | None,
) -> Check:
    here, there = source.facts(pair.source), target.facts(pair.target)

    def outputs(inputs: tuple[Array, ...], dtype: str, made_up: bool) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        given = tuple(x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs)
        results = []
        for survey, unit, facts, own in (
            (source, pair.source, here, arrays[0]),
            (target, pair.target, there, arrays[1]),
        ):
            arguments: Any = probe.arrange(facts, given) if made_up else given
            results.append(probe.restore(facts, _run_alone(survey, unit, arguments, own, dtype)))
        return results[0], results[1]

    tried: list[str] = []
    for make, dtype in _attempts(probe, here, pair, runs):
        try:
            inputs, made_up = make()
            one, other = outputs(inputs, dtype, made_up)
        except Exception as error:  # a layer may raise anything; what it raised is the reason given
            tried.append(first_line(error))
            continue
        return _judged(one, other, dtype, (source.info(pair.source), target.info(pair.target)))
    return Check("unverified", message("transfer.check.cannot_run", why=Foreign(tried[0])))


Attempt = tuple[Callable[[], tuple[tuple[Array, ...], bool]], str]


def _attempts(probe: Probe, facts: LayerFacts, pair: UnitPair, runs: Runs | None) -> list[Attempt]:
    def made_up() -> tuple[tuple[Array, ...], bool]:
        return probe.inputs(facts, np.random.default_rng(0)), True

    attempts: list[Attempt] = [(made_up, "float64"), (made_up, "float32")]
    call = runs.source.get(pair.source.path) if runs is not None else None
    if call is not None:
        # A layer of the user's own making may want other inputs than its kind does; here are real ones.
        attempts += [(lambda: (call.inputs, False), "float64"), (lambda: (call.inputs, False), "float32")]
    return attempts


def _judged(
    one: tuple[Array, ...], other: tuple[Array, ...], dtype: str, layers: tuple[ModuleInfo, ModuleInfo]
) -> Check:
    off = difference(one, other)
    if off <= LAYER_LIMIT[dtype]:
        return Check("verified", None if dtype == "float64" else message("transfer.check.in_dtype", dtype=dtype))
    if np.isnan(off):
        return Check("unverified", message("transfer.check.not_finite"))
    shapes = [tuple(a.shape for a in side) for side in (one, other)]
    seen = message("transfer.check.relative", difference=Number(off, ".1e"))
    if shapes[0] != shapes[1]:
        seen = message("transfer.check.shapes", ours=Code(shapes[0]), theirs=Code(shapes[1]))
    differing = tuple(
        message("transfer.check.setting", name=one.name, ours=Code(one.ours), theirs=Code(one.theirs))
        for one in setting_differences(*layers)
    )
    return Check(
        "differs", message("transfer.check.and_settings", seen=seen, settings=differing) if differing else seen
    )


def _optional(unit: Unit, name: str) -> bool:
    return all(part.optional for part in unit.parts if part.tensor == name)


def _run_alone(
    survey: Survey, unit: Unit, arguments: Any, arrays: Mapping[str, Array], dtype: str
) -> tuple[Array, ...]:
    """The outputs of a single layer on its own in the given dtype, its tensors holding the given values."""
    # Not only the unit's own tensors: a layer of the user's making may hold more, which move as units of their own.
    return survey.live.call(unit.path, arguments, arrays=arrays, dtype=dtype)


def _probe(kind: str) -> Probe | None:
    row = layer_kind(kind)
    return None if row is None else row.probe
