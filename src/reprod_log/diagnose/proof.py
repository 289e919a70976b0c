"""Proof: a finding that names a layer's setting or weights is tried out: the layer alone again, mended.

When the error is gone, the cause is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding, Mend, ranked
from reprod_log.diagnose.carried import carried_tables
from reprod_log.diagnose.operators import operators_at_fault, operators_of_the_loss
from reprod_log.errors import ReprodLogError
from reprod_log.experiments.differences import slopes
from reprod_log.experiments.passes import FLOAT64, Experiments
from reprod_log.experiments.regions import run_alone
from reprod_log.frameworks.side import Scope
from reprod_log.measure.comparison import Comparison
from reprod_log.pairing import match
from reprod_log.recording import Entry, Recording
from reprod_log.transfer import transfer_weights
from reprod_log.verdict import CalibratedPolicy, Status, calibrate, judge_calibrated


def prove(alignment: Alignment, runs: Experiments, reference: Recording, candidate: Recording) -> Alignment:
    """The alignment with every finding that a re-run confirms marked as proven, and the operators at fault named."""
    doubts = carried_tables(runs.tables)
    if doubts:
        alignment = replace(alignment, findings=ranked([*alignment.findings, *doubts]))
    if alignment.status is Status.PASS or not isinstance(alignment.policy, CalibratedPolicy):
        return alignment
    wrong = {
        one.key.layer_alone
        for one in alignment.verdict.judgements
        if one.status is not Status.PASS and one.key.run.startswith("isolated")
    }
    prover = _Prover(runs, reference, candidate, alignment.policy, wrong)
    tried = [prover.tried(finding) for finding in alignment.findings]
    operators = [prover.tried(finding) for finding in operators_at_fault(alignment, runs, tried)]
    in_loss = [] if operators else list(operators_of_the_loss(alignment, runs, tried))
    tried = [one for one in tried if not (in_loss and one.keys == in_loss[0].keys)]
    operators += in_loss
    settled = {mend.layer for finding in tried if finding.confidence == "proven" for mend in finding.mends}
    left = [one for one in tried if not _said_better(one, operators) and not _follows(one, settled)]
    return replace(alignment, findings=ranked([*left, *operators]))


def _said_better(finding: Finding, operators: Sequence[Finding]) -> bool:
    """Whether a finding that only suspects a place is answered by the operator that was found there."""
    if finding.confidence != "possible":
        return False
    if finding.rule == "between_layers":
        return any(one.rule == "operator" and one.kind == "cause" for one in operators)
    return finding.rule == "cut_graph" and any(one.rule in ("wrong_backward", "cut_graph") for one in operators)


def _follows(finding: Finding, settled: set[str]) -> bool:
    """Whether a finding describes what a proven cause does to its layer."""
    paths = {key.path for key in finding.keys}
    return finding.rule in ("constant_factor", "statistics") and bool(paths) and paths <= settled


_RIGHT = 1e-4
"""A gradient that finite differences confirm to this share is right; kinks near the input cost some digits."""


class _Prover:
    def __init__(
        self,
        runs: Experiments,
        reference: Recording,
        candidate: Recording,
        policy: CalibratedPolicy,
        wrong: Collection[str],
    ) -> None:
        self._runs, self._policy = runs, policy
        # A layer that agrees alone as it is agrees mended as well, which proves nothing.
        self._wrong = wrong
        self._reference, self._candidate = _needed(reference), _needed(candidate)

    def tried(self, finding: Finding) -> Finding:
        if finding.rule == "wrong_backward":
            return self._with_slopes(finding)
        if not finding.mends or finding.confidence == "proven":
            return finding
        found = [self._worst_after(mend) for mend in finding.mends]
        errors = [worst for worst in found if worst is not None]
        if not errors:
            return finding
        if len(errors) < len(found):
            said = f"{finding.evidence}; mended and run again, {len(errors)} of the {len(found)} layers agree alone"
            return replace(finding, evidence=said)
        said = (
            f"{finding.evidence}; mended and run again, the layer alone agrees "
            f"(worst error {max(errors):.1g} of what is allowed)"
        )
        return replace(finding, confidence="proven", evidence=said)

    def _with_slopes(self, finding: Finding) -> Finding:
        """The finding with the word of finite differences about which side is wrong."""
        found = slopes(self._runs, finding.keys[0].path)
        if found is None:
            return finding
        errors = [slope.error for slope in found]
        right = [error < _RIGHT for error in errors]
        if right[0] == right[1]:
            return finding
        wrong = "candidate" if right[0] else "reference"
        said = (
            f"{finding.evidence}; by finite differences in float64 the {wrong}'s gradient is wrong by {max(errors):.1%}"
            f", the other's right to {min(errors):.0e}"
        )
        cause = f"{finding.cause}: the {wrong}'s is wrong"
        return replace(finding, cause=cause, evidence=said, confidence="proven")

    def _worst_after(self, mend: Mend) -> float | None:
        """The largest error of the mended layer in shares of the limit; None unless all of it passes."""
        layer = mend.layer
        calls = [call for path, call in self._runs.their_calls.items() if path == layer]
        path = self._runs.partners.get(layer)
        if not calls or path is None or layer not in self._wrong:
            return None
        entries: list[Entry] = []
        for dtype in (None, FLOAT64):
            scope = Scope(run=f"isolated.{dtype}" if dtype else "isolated", dtype=dtype)
            change = self._change(mend, dtype)
            found, _ = run_alone(self._runs.theirs, calls, scope, paths={layer: path}, change=change)
            entries += found
        if not entries:
            return None
        mended = replace(
            self._candidate, entries=(*(e for e in self._candidate.entries if not e.key.run), *entries), source=""
        )
        try:
            pairing = match(self._reference, mended, rename=self._runs.rename)
        except ReprodLogError:
            # A rename map may speak of entries that are not looked at here.
            return None
        floor = calibrate(pairing, reference=self._reference, candidate=mended)
        judged = judge_calibrated(Comparison(()), floor, self._policy)
        mine = [one for one in judged.judgements if one.key.run.startswith("isolated") and one.key.layer_alone == layer]
        if not mine or not all(one.status.passed for one in mine):
            return None
        # What the policy accepts passes with whatever error it has.
        held = [check for one in mine for check in one.checks if check.passed and check.limit]
        return max((check.value / check.limit for check in held), default=0.0)

    def _change(self, mend: Mend, dtype: str | None) -> Callable[[Any], None]:
        def change(module: Any) -> None:
            for name, value in mend.settings.items():
                self._runs.theirs.framework.eager.modules.set_setting(module, name, value)
            if mend.weights:
                reference = self._runs.ours
                ours = reference.copied(reference.modules[mend.layer], dtype)
                transfer_weights(ours, module, on_difference="report")

        return change


def _needed(recording: Recording) -> Recording:
    """What lining layers up and comparing them alone needs: the first step and the isolated passes."""
    first = min(recording.steps, default=0)
    kept = tuple(
        entry
        for entry in recording.entries
        if entry.key.run.startswith("isolated")
        or (not entry.key.run and entry.key.step == first and entry.key.phase in ("forward", "parameter", "buffer"))
    )
    return replace(recording, entries=kept)
