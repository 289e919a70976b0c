"""Initialization; subject init: fresh weights of both sides come from the same distributions.

Values differ by nature, so statistics are compared: of every kind and shape of layer the mean, the standard deviation,
and the mean absolute deviation in standard deviations, which tells a uniform distribution (0.866) from a normal one
(0.798). Each is held to five standard errors of the difference of the two samples, which is wide for few values and
narrow for many; constants (zeros, ones) must be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from glob import escape
from typing import Any

import numpy as np

from reprod_log.capture import framework_of
from reprod_log.capture.probing import deterministic
from reprod_log.errors import UsageError
from reprod_log.frameworks.side import as_mapping
from reprod_log.layers.lookup import kind_title
from reprod_log.messages import Names, Number, message
from reprod_log.pairing.survey import survey
from reprod_log.recording import Array, Key, Recording
from reprod_log.recording.recorder import Recorder
from reprod_log.steps.subject import OwnLimits, Subject
from reprod_log.steps.values import origin
from reprod_log.verdict import Limit

GUIDES_FIGURE = 1e-3
_STANDARD_ERRORS = 5.0
"""A correct side is flagged once in two million comparisons."""
_TOO_COARSE = 0.5
"""Of the standard deviation: a sample that cannot separate 0.1 from 0.15 is not evidence."""


class _Moments:
    """Running sums of the values drawn for one kind and shape of layer; the values themselves are not kept."""

    def __init__(self, first: Array) -> None:
        self.center = float(first.astype(np.float64).mean())
        """Near the mean, so that sums of differences from it lose no digits."""
        self.layers = self.count = 0
        self.sums = np.zeros(4)
        self.least, self.most = np.inf, -np.inf

    def add(self, array: Array) -> None:
        away = array.astype(np.float64).reshape(-1) - self.center
        square = away * away
        self.sums += (away.sum(), square.sum(), np.abs(away).sum(), (square * square).sum())
        self.count += array.size
        self.least, self.most = min(self.least, float(array.min())), max(self.most, float(array.max()))

    def facts(self) -> dict[str, float]:
        """Mean, standard deviation, mean absolute deviation in standard deviations, kurtosis."""
        if self.least == self.most:
            return {"mean": self.least, "std": 0.0, "shape": 0.0, "kurtosis": 0.0}
        shift, square, absolute, fourth = self.sums / self.count
        std = float(max(square - shift**2, 0.0) ** 0.5)
        return {
            "mean": float(self.center + shift),
            "std": std,
            "shape": float(absolute / std),
            "kurtosis": float(fourth / std**4),
        }


def _record(side: Callable[[], Any], *, draws: int = 16, seed: int = 0) -> Recording:
    """Statistics of the weights of `draws` freshly made models, by kind and shape of layer.

    side   makes a new model (or several by name); the framework's seed is set again before each
    """
    if not callable(side) or (hasattr(side, "parameters") and not isinstance(side, type)):
        raise UsageError("the init step takes functions that make a new model: lambda: Net()")
    if draws < 1:
        raise UsageError(f"draws must be at least 1, not {draws}")
    groups: dict[str, _Moments] = {}
    framework = None
    for draw in range(draws):
        framework = _draw(side, seed + draw, groups, first=draw == 0)
    recorder = Recorder(provenance=origin(framework, seeds={"init": seed}))
    for name, moments in groups.items():
        facts = {"count": moments.count, "draws": draws, **moments.facts()}
        recorder.add(Key(name, "parameter", 0, role="layers"), np.array(moments.layers))
        for role in ("mean", "std", "shape"):
            if role != "shape" or facts["std"] > 0:
                recorder.add(Key(name, "parameter", 0, role=role), np.array(facts[role]), meta=facts)
    return recorder.close()


def _draw(side: Callable[[], Any], seed: int, groups: dict[str, _Moments], *, first: bool) -> Any:
    models = _made(side, seed)
    framework = framework_of(next(iter(models.values())))
    for model in models.values():
        found = survey(model)
        for unit in found.units:
            for part in unit.parts:
                # Running statistics are not weights, though one framework keeps them as parameters.
                if part.tensor not in found.trained:
                    continue
                sizes = "x".join(map(str, part.shape))
                values = part.transform.split(found.read(part.tensor))[part.index]
                name = f"{kind_title(unit.kind)}.{part.canonical}.{sizes}"
                if name not in groups:
                    groups[name] = _Moments(values)
                groups[name].add(values)
                groups[name].layers += first
    return framework


def _made(side: Callable[[], Any], seed: int) -> dict[str, Any]:
    """New models, made after setting every loaded framework's seed; random states are put back."""
    with deterministic(seed):
        return dict(as_mapping(side()))


def _limits(reference: Recording, candidate: Recording) -> OwnLimits:
    """What the sizes of the samples allow for each number."""
    limits, coarse, wider = [], [], 0
    draws = 0
    for entry in reference.entries:
        key = str(entry.key)
        if "count" not in entry.meta or key not in candidate or "count" not in candidate[key].meta:
            continue
        errors = [_standard_error(entry.key.role, one.meta) for one in (entry, candidate[key])]
        value = _STANDARD_ERRORS * sum(error**2 for error in errors) ** 0.5
        size = max(float(entry.meta["std"]), float(candidate[key].meta["std"]))
        if entry.key.role in ("mean", "std") and size and value > _TOO_COARSE * size:
            coarse.append(entry.key.path)
            # A limit that lets anything pass would not check anything.
            value = _TOO_COARSE * size
        wider += value > GUIDES_FIGURE
        draws = int(entry.meta["draws"])
        reason = message(
            "reason.limit.standard_errors",
            factor=Number(_STANDARD_ERRORS, "g"),
            ours=entry.meta["count"],
            theirs=candidate[key].meta["count"],
        )
        limits.append(Limit("max_abs", value, keys=escape(key), reason=reason))
    notes = []
    if wider:
        notes.append(
            message(
                "note.steps.draws",
                draws=draws,
                some=len(limits) - wider,
                all=len(limits),
                figure=Number(GUIDES_FIGURE, "g"),
            )
        )
    if coarse:
        notes.append(message("note.steps.too_few", names=Names(dict.fromkeys(coarse))))
    return tuple(limits), tuple(notes)


def _standard_error(role: str, facts: Any) -> float:
    count, std = int(facts["count"]), float(facts["std"])
    if role == "mean":
        return std / float(np.sqrt(count))
    if role == "std":
        # The variance of a sample's standard deviation is σ²(κ − 1) / 4n.
        return std * float(np.sqrt(max(float(facts["kurtosis"]) - 1.0, 0.0) / (4 * count)))
    return float(np.sqrt(max(1.0 - float(facts["shape"]) ** 2, 0.0) / count))


init = Subject(
    name="init",
    title="initialisation",
    words=("init", "initial", "initialization", "initialisation"),
    limits=("max_abs:1e-3",),
    why=message("reason.limit.guides.statistics"),
    record=_record,
    limits_of=_limits,
)
