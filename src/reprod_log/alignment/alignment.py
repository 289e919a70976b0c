"""Alignment: the verdict with everything behind it, and `align`, which makes one from two recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reprod_log.alignment.options import AlignOptions
from reprod_log.diagnose import Case, Finding, diagnose
from reprod_log.diagnose.material import Material
from reprod_log.errors import NotAligned, UnreadableFile, UsageError
from reprod_log.measure.comparison import Compared, Comparison, measure
from reprod_log.measure.sketch import has_values
from reprod_log.pairing import Pair, match
from reprod_log.ranks import open_sides
from reprod_log.recording import Key, Recording
from reprod_log.recording.encoding import check_types
from reprod_log.recording.portable import portable
from reprod_log.recording.recording import Source
from reprod_log.verdict import (
    CalibratedPolicy,
    Judgement,
    Limit,
    NoiseFloor,
    Policy,
    Status,
    Verdict,
    calibrate,
    judge,
    judge_calibrated,
    require_complete,
)
from reprod_log.verdict.noise_floor import FLOAT64
from reprod_log.verdict.policy import ABSOLUTE

SCHEMA = "reprod_log alignment"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Alignment:
    """Verdict, measurements, findings, provenance and policy: the only input of reports."""

    reference: Source
    candidate: Source
    comparison: Comparison
    policy: Policy | CalibratedPolicy
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    floor: NoiseFloor | None = None
    """What rounding alone does, when the recordings tell."""

    @property
    def passed(self) -> bool:
        """True only if something was compared, everything passed, and nothing was left over on either side."""
        return self.verdict.passed

    @property
    def status(self) -> Status:
        return self.verdict.status

    @property
    def first_divergence(self) -> Judgement | None:
        """The earliest entry in execution order that failed."""
        return self.verdict.first_divergence

    def row(self, key: Key | str) -> Compared | None:
        """What was measured for `key`; None for unmatched keys."""
        return next((row for row in self.comparison.rows if row.key == key), None)

    def raise_if_failed(self) -> None:
        """Raise NotAligned with the first screen of the report as its text, unless this passed."""
        if not self.passed:
            from reprod_log.report.formats.text import render

            raise NotAligned(render(self))

    @property
    def _complete(self) -> bool:
        return self.reference.complete and self.candidate.complete

    def judged_by(self, policy: Policy | CalibratedPolicy) -> Alignment:
        """The same measurements under another policy."""
        return replace(self, policy=policy, verdict=verdict_of(self.comparison, policy, self.floor, self._complete))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values. The verdict is written for readers; reading back judges again."""
        return {
            "schema": SCHEMA,
            "version": SCHEMA_VERSION,
            "status": str(self.status),
            "passed": self.passed,
            "first_divergence": str(self.first_divergence.key) if self.first_divergence else None,
            "reference": self.reference.to_dict(),
            "candidate": self.candidate.to_dict(),
            "policy": self.policy.to_dict(),
            "judgements": [one.to_dict() for one in self.verdict.judgements],
            "allowed_unmatched": [str(key) for key in self.verdict.allowed],
            "findings": [finding.to_dict() for finding in self.findings],
            "comparison": self.comparison.to_dict(),
            "floor": None if self.floor is None else self.floor.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, source: str = "saved alignment") -> Alignment:
        """The alignment that `to_dict` described, judged again by its own policy."""
        if data.get("schema") != SCHEMA:
            raise UnreadableFile(
                f"{source} is not a saved alignment: its schema is {data.get('schema')!r} and not {SCHEMA!r}. "
                "`reprod compare REF CAND --json FILE` makes one."
            )
        if not isinstance(data.get("version"), int) or data["version"] > SCHEMA_VERSION:
            raise UnreadableFile(
                f"{source} has schema version {data.get('version')!r}, this reprod_log reads up to {SCHEMA_VERSION}"
            )
        try:
            comparison = Comparison.from_dict(data["comparison"])
            calibrated = data["policy"]["name"] == CalibratedPolicy.name
            policy = CalibratedPolicy.from_dict(data["policy"]) if calibrated else Policy.from_dict(data["policy"])
            floor = NoiseFloor.from_dict(data["floor"]) if data.get("floor") is not None else None
            reference, candidate = Source.from_dict(data["reference"]), Source.from_dict(data["candidate"])
            findings = tuple(Finding.from_dict(one) for one in data["findings"])
            for part in (comparison, policy, floor, reference, candidate, *findings):
                if part is not None:
                    check_types(part)
            verdict = verdict_of(comparison, policy, floor, reference.complete and candidate.complete)
            return cls(reference, candidate, comparison, policy, verdict, findings, floor)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UnreadableFile(
                f"{source} is damaged ({what}): it is not as an alignment was saved. Save it again, with --json of "
                "reprod compare or with Alignment.save"
            ) from error

    def save(self, path: str | Path) -> Path:
        """Write it as JSON, to be read back with `Alignment.load`."""
        from reprod_log.report import write_report

        return write_report(self, path, format="json")

    @classmethod
    def load(cls, path: str | Path) -> Alignment:
        """The alignment saved at `path`."""
        from reprod_log.report.formats.json import read

        return cls.from_dict(read(path), source=str(path))

    def __str__(self) -> str:
        from reprod_log.report.formats.text import render

        return render(self)

    def _repr_html_(self) -> str:
        from reprod_log.report.notebook import fragment

        return fragment(self)


def align(
    reference: Recording | str | Path,
    candidate: Recording | str | Path,
    *,
    policy: Policy | CalibratedPolicy | None = None,
    limits: str | Iterable[Limit | str] = (),
    rename: Mapping[str, str] | None = None,
    allow_unmatched: str | Iterable[str] = (),
    accept: str | Iterable[str] = (),
    allow_incomplete: bool = False,
    equal_nan: bool = False,
    dims: Mapping[str, str] | None = None,
    mesh: Mapping[str, int] | None = None,
    trust: bool = False,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
    executor: Executor | None = None,
    elements: bool = True,
) -> Alignment:
    """Compare two recordings (or their paths): match, measure, calibrate, judge, diagnose.

    A path with the parts of several ranks is joined first: as data-parallel, or as `dims` and `mesh` declare
    (see `load_ranks` and `join_ranks` of reprod_log.ranks).
    Give a `policy` or `limits`, not both. Without either the calibrated rule judges when the reference also ran in
    float64, fixed limits otherwise. `allow_unmatched`, `accept`, `allow_incomplete` (a recording that was cut short may
    pass with what it has) and `equal_nan` loosen whichever policy holds.
    Pairs are measured on `threads` of this process (None: one per core), or by any `executor` of concurrent.futures;
    one that runs elsewhere must see the recordings under the same paths or URLs. Neither changes the result.
    `elements` keeps a few single elements of each pair, of which HTML reports make pictures; nothing else needs them.
    """
    options = AlignOptions.of(
        rename=rename,
        policy=policy,
        limits=limits,
        allow_unmatched=allow_unmatched,
        accept=accept,
        allow_incomplete=allow_incomplete,
        equal_nan=equal_nan,
        dims=dims,
        mesh=mesh,
        trust=trust,
        progress=progress,
        threads=threads,
        executor=executor,
        elements=elements,
    )
    return align_with(reference, candidate, options)


def align_with(
    reference: Recording | str | Path, candidate: Recording | str | Path, options: AlignOptions
) -> Alignment:
    """`align` with its options as one value."""
    reference, candidate = open_sides(reference, candidate, dims=options.dims, mesh=options.mesh, trust=options.trust)
    if options.executor is not None:
        reference, candidate = (portable(side, trust=options.trust) for side in (reference, candidate))
    pairing = match(reference, candidate, rename=options.rename)
    # The calibrated rule looks at single elements, which sketches and statistics do not have.
    has_truth = any(run.endswith(FLOAT64) for run in reference.runs) and all(map(has_values, pairing.pairs))
    floor = None
    if has_truth or isinstance(options.policy, CalibratedPolicy):
        floor = calibrate(
            pairing, reference=reference, candidate=candidate, executor=options.executor, threads=options.threads
        )
    policy = options.policy_for(calibrated=floor is not None)
    comparison = measure(
        pairing,
        limit_for=_absolute_limit(policy),
        progress=options.progress,
        elements=options.elements,
        executor=options.executor,
        threads=options.threads,
    )
    verdict = verdict_of(comparison, policy, floor, reference.complete and candidate.complete)
    case = Case(
        Source.of(reference),
        Source.of(candidate),
        comparison,
        policy,
        verdict,
        floor,
        Material(reference, candidate, pairing),
    )
    return Alignment(case.reference, case.candidate, comparison, policy, verdict, diagnose(case), floor)


def verdict_of(
    comparison: Comparison, policy: Policy | CalibratedPolicy, floor: NoiseFloor | None, complete: bool
) -> Verdict:
    """The verdict of either kind of policy; `complete` says whether both recordings are whole."""
    if not isinstance(policy, CalibratedPolicy):
        return require_complete(judge(comparison, policy), complete=complete, allow_incomplete=policy.allow_incomplete)
    if floor is None:
        raise UsageError(
            "the calibrated policy needs a noise floor, which this saved alignment does not have; "
            "compare the recordings again"
        )
    verdict = judge_calibrated(comparison, floor, policy)
    return require_complete(verdict, complete=complete, allow_incomplete=policy.allow_incomplete)


def _absolute_limit(policy: Policy | CalibratedPolicy) -> Callable[[Pair], float | None]:
    """The limit whose excess is worth counting for a pair: that of an absolute metric, if the policy has one."""

    def of(pair: Pair) -> float | None:
        if isinstance(policy, CalibratedPolicy):
            return None
        found = policy.limits_for(str(pair.reference.key), pair.reference.dtype)
        values = [found[name].value for name in ABSOLUTE if name in found]
        return values[0] if values else None

    return of
