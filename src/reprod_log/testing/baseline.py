"""Baseline: what a test recorded, held against what it recorded when it was last accepted, kept beside the test."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.alignment import Alignment, AlignOptions, align_with
from reprod_log.errors import NotAligned, RecordingError, UsageError
from reprod_log.messages import message
from reprod_log.recording import Provenance, Recording
from reprod_log.recording.stores import load, save
from reprod_log.report import write_report
from reprod_log.testing.aligned import named_arrays
from reprod_log.verdict import CalibratedPolicy, Limit, Policy
from reprod_log.verdict.policy import DEFAULT_LIMITS
from reprod_log.version import __version__

_USUAL = Policy(limits=(*DEFAULT_LIMITS, Limit("rel_l2", 1e-4, reason=message("reason.limit.baseline"))))
"""The same program again: values far below the absolute limit are not noise but what it was recorded for."""


class Baseline:
    """Collects values during a test; `check` compares them with the baseline file, or writes it when asked to.

        def test_forward(reprod):
            reprod.add("logits", model(x))
            reprod.judge_by(limits=["max_abs:1e-5"])

    The check happens at the end of the test, if the test has not called it.
    """

    def __init__(self, path: Path, *, update: bool = False, report: Path | None = None) -> None:
        self.path = path
        self.outcome = ""
        """What became of the file in an update: 'written', 'unchanged', or '' when it was only read."""
        self._update = update
        self._report = report
        self._arrays: dict[str, Any] = {}
        self._recording: Recording | None = None
        self._frameworks: dict[str, str] = {}
        self._options = AlignOptions()
        self._checked = False

    def add(self, key: str, value: Any) -> None:
        """Record a tensor, a number, or a nested structure of them; it is copied now."""
        if self._recording is not None:
            raise UsageError("this test already uses a whole recording; add to that recording instead")
        found = named_arrays(key, value)
        twice = [name for name in found if name in self._arrays]
        if twice or not found:
            what = f"{twice[0]!r} was recorded twice" if twice else f"{key!r} has no tensor"
            raise UsageError(f"{what}; each value of a test needs its own name")
        self._arrays |= found
        self._note_framework(value)

    def use(self, recording: Recording) -> None:
        """Take a whole recording, e.g. that of `watch`, as what this test recorded."""
        if self._arrays or self._recording is not None:
            raise UsageError("this test already has values; use one recording or add values, not both")
        self._recording = recording

    def judge_by(
        self,
        *,
        policy: Policy | CalibratedPolicy | None = None,
        limits: str | Iterable[Limit | str] = (),
        rename: Mapping[str, str] | None = None,
        allow_unmatched: str | Iterable[str] = (),
        accept: str | Iterable[str] = (),
        equal_nan: bool = False,
    ) -> None:
        """Say how this test's values are judged; without it the default policy holds."""
        self._options = AlignOptions.of(
            policy=policy,
            limits=limits,
            rename=rename,
            allow_unmatched=allow_unmatched,
            accept=accept,
            equal_nan=equal_nan,
        )

    def finish(self) -> None:
        """Check, unless the test has done so itself."""
        if not self._checked:
            self.check()

    def check(self) -> Alignment | None:
        """Compare with the baseline now and give back the alignment; None when the baseline was written instead."""
        __tracebackhide__ = True
        self._checked = True
        recorded = self._recorded()
        if self._update:
            self._write(recorded)
            return None
        if not self.path.exists():
            raise NotAligned(f"there is no baseline {self.path} yet. {self._how_to_update()}")
        try:
            baseline = load(self.path)
        except RecordingError as error:
            raise NotAligned(f"the baseline cannot be read: {error}\n{self._how_to_update()}") from None
        found = align_with(baseline, recorded, self._judged_as(baseline))
        if not found.passed:
            raise NotAligned(f"{found}\n{self._reported(found)}baseline: {self.path}\n{self._how_to_update()}")
        return found

    def _judged_as(self, baseline: Recording) -> AlignOptions:
        """The options of the test; where it gave no limit, small values are held to a relative one, too."""
        chosen = self._options.policy is not None or self._options.limits
        return self._options if chosen or len(baseline.runs) > 1 else replace(self._options, policy=_USUAL)

    def _recorded(self) -> Recording:
        if self._recording is not None:
            return self._recording
        if not self._arrays:
            raise NotAligned("this test uses `reprod` but recorded nothing: call reprod.add(name, value)")
        return Recording.from_arrays(self._arrays, provenance=self._provenance())

    def _write(self, recorded: Recording) -> None:
        """Write the file, unless the old one holds the very same values: then the repository sees no change."""
        try:
            same = self.path.exists() and _same(load(self.path), recorded)
        except RecordingError:
            # A damaged file (a merge conflict, a pointer of git-lfs) is what an update is asked to replace.
            same = False
        if same:
            self.outcome = "unchanged"
            return
        save(recorded, self.path)
        self.outcome = "written"

    def _reported(self, found: Alignment) -> str:
        if self._report is None:
            return ""
        return f"report: {write_report(found, self._report)}\n"

    def _how_to_update(self) -> str:
        return "If the values are right, run pytest --reprod-update for this test and commit the file."

    def _note_framework(self, value: Any) -> None:
        top = type(value).__module__.partition(".")[0]
        if top not in ("builtins", "numpy"):
            self._frameworks[top] = str(getattr(sys.modules.get(top), "__version__", ""))

    def _provenance(self) -> Provenance:
        """Versions only: the same run on the same versions gives the same file, whenever and wherever."""
        return Provenance(
            framework=" ".join(self._frameworks),
            framework_version=" ".join(self._frameworks.values()),
            python=platform.python_version(),
            numpy=np.__version__,
            platform=f"{platform.system()} {platform.machine()}",
            reprod_log=__version__,
        )


def _same(old: Recording, new: Recording) -> bool:
    """Whether both hold the same names, dtypes, shapes and bytes."""
    if old.keys != new.keys:
        return False
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.detail == b.detail == "full" and _bytes(a) == _bytes(b)
        for a, b in zip(old.entries, new.entries, strict=True)
    )


def _bytes(entry: Any) -> bytes:
    array = entry.array()
    return repr(array.tolist()).encode() if array.dtype.kind in "OU" else bytes(array.tobytes())
