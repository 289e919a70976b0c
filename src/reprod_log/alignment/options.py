"""AlignOptions: how two sides are compared, behind `align`, `align_models`, `assert_aligned` and the commands alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

from reprod_log.errors import UsageError
from reprod_log.progress import Progress
from reprod_log.recording import Array
from reprod_log.recording.counting import masks_of
from reprod_log.verdict import CalibratedPolicy, Limit, Policy
from reprod_log.verdict.policy import patterns


@dataclass(frozen=True)
class AlignOptions:
    """How two sides are paired, opened, judged and measured."""

    rename: Mapping[str, str] = field(default_factory=dict)
    """The candidate's names for what the reference calls differently."""
    policy: Policy | CalibratedPolicy | None = None
    """None: calibrated when the reference also ran in float64 and no limits are given, fixed limits otherwise."""
    limits: tuple[Limit | str, ...] = ()
    allow_unmatched: tuple[str, ...] = ()
    """Patterns of keys that may lack a partner."""
    accept: tuple[str, ...] = ()
    """Patterns of keys whose difference is known and accepted; they pass, and reports show it."""
    allow_incomplete: bool = False
    """Whether a recording that was cut short may pass with what it has."""
    allow_unproven: bool = False
    """Whether a pass that proves nothing may pass; reports show the doubts."""
    equal_nan: bool = False
    """Whether NaN on both sides at the same place counts as equal."""
    counts: tuple[Array, ...] = ()
    """Masks of the positions that count, one for all steps or one per step; elsewhere nothing is compared."""
    dims: Mapping[str, str] | None = None
    """How ranks split tensors, by pattern."""
    mesh: Mapping[str, int] | None = None
    """The axes that ranks lie on, the outermost first."""
    trust: bool = False
    """Whether classic files may run the code they contain."""
    progress: bool | Progress | None = None
    """None: shown on a terminal and in a notebook; True: anywhere; False: never."""
    threads: int | None = None
    """Threads that measure; None: one per core."""
    executor: Executor | None = None
    """Measures elsewhere; its workers must see the recordings under the same paths or URLs."""
    elements: bool = True
    """Whether a few single elements of each pair are kept, of which HTML reports make pictures."""

    def __post_init__(self) -> None:
        if self.policy is not None and self.limits:
            raise UsageError("give a policy or limits, not both; Policy.fixed(limits) makes a policy of limits")

    @classmethod
    def of(
        cls,
        *,
        limits: str | Iterable[Limit | str] = (),
        rename: Mapping[str, str] | None = None,
        allow_unmatched: str | Iterable[str] = (),
        accept: str | Iterable[str] = (),
        counts: Any = None,
        **others: Any,
    ) -> AlignOptions:
        """The options as people give them: a single text is one limit or pattern."""
        return cls(
            limits=(limits,) if isinstance(limits, str) else tuple(limits),
            rename=rename or {},
            allow_unmatched=patterns(allow_unmatched, name="allow_unmatched"),
            accept=patterns(accept, name="accept"),
            counts=() if counts is None else masks_of(counts),
            **others,
        )

    def policy_for(self, *, calibrated: bool) -> Policy | CalibratedPolicy:
        """The policy given, or the usual one; `calibrated` says whether a noise floor was measured."""
        if self.policy is not None:
            return self.loosened(self.policy)
        return self.loosened(CalibratedPolicy() if calibrated and not self.limits else Policy.fixed(self.limits))

    def loosened(self, policy: Policy | CalibratedPolicy) -> Policy | CalibratedPolicy:
        """The policy with what these options allow besides."""
        return replace(
            policy,
            allow_unmatched=(*policy.allow_unmatched, *self.allow_unmatched),
            accept=(*policy.accept, *self.accept),
            allow_incomplete=policy.allow_incomplete or self.allow_incomplete,
            allow_unproven=policy.allow_unproven or self.allow_unproven,
            equal_nan=policy.equal_nan or self.equal_nan,
        )
