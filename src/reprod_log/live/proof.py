"""Proof: a finding that names a layer's setting or weights is tried out: the layer alone again, mended.

When the error is gone, the cause is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.calibrate import calibrate, layer_alone
from reprod_log.diagnose import Finding, Mend, ranked
from reprod_log.diagnose.layers import layer_states
from reprod_log.errors import ReprodLogError
from reprod_log.judge import CalibratedPolicy, Status, judge_calibrated
from reprod_log.live.finite_differences import slopes
from reprod_log.live.isolation import run_isolated
from reprod_log.live.operators import Culprits, culprits_in
from reprod_log.live.passes import FLOAT64, Runs
from reprod_log.match import match
from reprod_log.measure.comparison import Comparison
from reprod_log.record import Entry, Key, Recording
from reprod_log.transfer import transfer_weights


def prove(alignment: Alignment, runs: Runs, reference: Recording, candidate: Recording) -> Alignment:
    """The alignment with every finding that a re-run confirms marked as proven, and the operators at fault named."""
    if alignment.status is Status.PASS or not isinstance(alignment.policy, CalibratedPolicy):
        return alignment
    prover = _Prover(runs, reference, candidate, alignment.policy)
    tried = [prover.tried(finding) for finding in alignment.findings]
    return replace(alignment, findings=ranked([*tried, *_operators(alignment, runs, tried)]))


def _operators(alignment: Alignment, runs: Runs, tried: Sequence[Finding]) -> Iterator[Finding]:
    """For every layer at fault that no finding explains yet, or whose parts are right: the operator that differs."""
    states = layer_states(alignment.verdict.judgements)
    wrong = {
        layer_alone(key)
        for one in alignment.verdict.judgements
        if not one.status.passed and (key := Key.parse(one.key)).run == "isolated" and key.phase != "buffer"
    }
    explained = {layer for one in tried if one.kind == "cause" for layer in _layers_of(one)}
    for call in runs.calls:
        state = states.get(call.path)
        if call.path not in wrong or not (state == "glue" or (state == "own" and call.path not in explained)):
            continue
        found = culprits_in(runs.ours, runs.theirs, call, runs.partners[call.path], FLOAT64)
        if found:
            yield _operator_finding(call.path, found)


def _layers_of(finding: Finding) -> Iterator[str]:
    """The layers that a finding speaks of."""
    if finding.mend is not None:
        yield finding.mend.layer
    for text in finding.keys:
        # Rules that look at weights give their bare names.
        yield layer_alone(Key.parse(text)) if "/" in text else text.rpartition(".")[0]


def _operator_finding(path: str, found: Culprits) -> Finding:
    names = [
        f"{one.name} in the {side}" + (f" ({one.line})" if one.line else "")
        for side, one in (("reference", found.reference), ("candidate", found.candidate))
        if one is not None
    ]
    what = "whose backward pass differs" if found.backward else "that differs"
    evidence = (
        "the gradient it is given is found on the other side, the one it gives back is not"
        if found.backward
        else "its inputs are found on the other side, its result and all that follows is not"
    )
    phase = "backward" if found.backward else "forward"
    return Finding(
        rule="operator",
        cause=f"inside {path or 'the model'} the first operator {what} is {', '.join(names)}",
        evidence=evidence,
        confidence="consistent",
        advice="compare these two lines",
        keys=(f"isolated@step0/{phase}/{path}#0:{'input.0' if found.backward else 'output'}",),
    )


_RIGHT = 1e-4
"""A gradient that finite differences confirm to this share is right; kinks near the input cost some digits."""


class _Prover:
    def __init__(self, runs: Runs, reference: Recording, candidate: Recording, policy: CalibratedPolicy) -> None:
        self._runs, self._policy = runs, policy
        self._reference, self._candidate = _needed(reference), _needed(candidate)

    def tried(self, finding: Finding) -> Finding:
        if finding.rule == "wrong_backward":
            return self._with_slopes(finding)
        if finding.mend is None or finding.confidence == "proven":
            return finding
        worst = self._worst_after(finding.mend)
        if worst is None:
            return finding
        said = (
            f"{finding.evidence}; mended and run again, the layer alone agrees (worst error {worst:.1g} of the limit)"
        )
        return replace(finding, confidence="proven", evidence=said)

    def _with_slopes(self, finding: Finding) -> Finding:
        """The finding with the word of finite differences about which side is wrong."""
        found = slopes(self._runs, Key.parse(finding.keys[0]).path)
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
        calls = [call for call in self._runs.calls if call.path == layer]
        path = self._runs.partners.get(layer)
        if not calls or path is None:
            return None
        entries: list[Entry] = []
        for dtype in (None, FLOAT64):
            run = f"isolated.{dtype}" if dtype else "isolated"
            found, _ = run_isolated(
                self._runs.theirs, calls, run=run, dtype=dtype, paths={layer: path}, change=self._change(mend, dtype)
            )
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
        judged = judge_calibrated(Comparison(()), calibrate(pairing, reference=self._reference), self._policy)
        mine = [
            one
            for one in judged.judgements
            if (key := Key.parse(one.key)).run.startswith("isolated") and layer_alone(key) == layer
        ]
        if not mine or not all(one.status.passed for one in mine):
            return None
        return max((check.value / check.limit for one in mine for check in one.checks if check.limit), default=0.0)

    def _change(self, mend: Mend, dtype: str | None) -> Callable[[Any], None]:
        def change(module: Any) -> None:
            for name, value in mend.settings.items():
                set_setting(module, name, value)
            if mend.weights:
                ours = dict(self._runs.ours.modules(self._runs.ours.fresh(dtype)))[mend.layer]
                transfer_weights(ours, module, on_difference="report")

        return change


def set_setting(module: Any, name: str, value: Any) -> None:
    """Give a layer another setting, under the name that recordings know it by (without leading underscores)."""
    for attribute in (name, f"_{name}"):
        if attribute in vars(module):
            kept = vars(module)[attribute]
            setattr(module, attribute, type(kept)(value) if isinstance(kept, (tuple, list)) else value)
    # A convolution of paddle keeps its padding a second time, in the form that its kernel wants.
    if name == "padding" and "_updated_padding" in vars(module):
        module._updated_padding = value


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
