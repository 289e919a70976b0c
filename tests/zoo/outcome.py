"""One trial run once and judged by every rule that the table compares."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reprod_log.alignment import Alignment, align
from reprod_log.alignment.models import batches_for, prove, sides_of
from reprod_log.experiments.passes import Experiments
from reprod_log.pairing import Pairing, match
from reprod_log.verdict import CalibratedPolicy, Status, Verdict, judge_calibrated
from zoo.trial import Mistake, Trial

RULES = ("V", "V32", "fixed 1e-6", "assert_close")


@dataclass(frozen=True)
class Outcome:
    """What each rule said about one trial, and what the diagnosis said."""

    name: str
    seed: int
    first: dict[str, str]
    """By rule: the first key that it flags; '' when it passes."""
    causes: tuple[tuple[str, str, str], ...]
    """Rule, confidence and text of every cause, in the order shown."""
    remarks: tuple[str, ...]
    suspect: bool
    """Whether a layer passed as SUSPECT."""
    seconds: float


def run(trial: Trial, name: str, seed: int, keep: Path | None = None) -> Outcome:
    """The outcome of one trial; its alignment is saved into the folder `keep`, to be judged again."""
    start = time.perf_counter()
    sides = sides_of(trial.reference, trial.candidate, loss=trial.loss, optimizer=trial.optimizer, step=trial.step)
    runs = Experiments(*sides, batches_for(sides[0], trial.inputs, trial.targets), {})
    reference, candidate = runs.recordings()
    alignment = prove(align(reference, candidate), runs, reference, candidate)
    seconds = time.perf_counter() - start
    if keep is not None:
        alignment.save(keep / f"{name}-{seed}.json")
    assert alignment.floor is not None
    narrow = judge_calibrated(alignment.comparison, alignment.floor.without_float64(), CalibratedPolicy())
    first = {
        "V": _first(alignment.verdict),
        "V32": _first(narrow),
        "fixed 1e-6": _fixed(alignment),
        "assert_close": _assert_close(match(reference, candidate)),
    }
    causes = tuple((one.rule, one.confidence, str(one.cause)) for one in alignment.findings if one.kind == "cause")
    remarks = tuple(f"{one.rule}: {one.cause!s}" for one in alignment.findings if one.kind != "cause")
    suspect = Status.SUSPECT in alignment.verdict.counts
    return Outcome(name, seed, first, causes, remarks, suspect, seconds)


def placed(mistake: Mistake, key: str) -> bool:
    return bool(key) and any(part in key for part in mistake.place)


def named(mistake: Mistake, outcome: Outcome, *, most: int | None = None) -> bool:
    """Whether one of the causes (the first `most` shown) is the right one."""
    return any(
        (not mistake.rules or rule in mistake.rules) and any(word in text.lower() for word in mistake.words)
        for rule, _, text in outcome.causes[:most]
    )


def _first(verdict: Verdict) -> str:
    if verdict.passed:
        return ""
    first = verdict.first_divergence
    return str(first.key if first is not None else next(one.key for one in verdict.judgements if not one.status.passed))


def _fixed(alignment: Alignment) -> str:
    """As 1.0.1 checks: mean absolute difference of 1e-6 on logits of the first step, losses and learning rates."""
    for row in alignment.comparison.rows:
        key = row.key
        logits = key.phase == "forward" and key.path == "" and key.step == 0 and key.role.startswith("output")
        if key.run or not (logits or key.phase in ("loss", "lr")):
            continue
        if row.measurement is None or not row.measurement.mean_abs <= 1e-6:
            return str(row.key)
    return ""


def _assert_close(pairing: Pairing) -> str:
    """torch.testing.assert_close with its defaults on every tensor of the plain run."""
    for pair in pairing.pairs:
        if pair.reference.key.run:
            continue
        ours, theirs = pair.reference.array(), pair.candidate.array()
        if pair.view is not None:
            theirs = pair.view.of(theirs)
        try:
            torch.testing.assert_close(_tensor(theirs), _tensor(ours), check_dtype=False)
        except AssertionError:
            return str(pair.reference.key)
    return str(pairing.only_in_reference[0].key) if pairing.only_in_reference else ""


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
