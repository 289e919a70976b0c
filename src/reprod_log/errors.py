"""Every exception that reprod_log raises on purpose.

    ReprodLogError
    ├── UsageError (ValueError)            a parameter, name or combination that makes no sense
    │   └── ClassicUsageError (AssertionError)  the same where 1.0.1 had an assert
    ├── MissingPackage (ImportError)       an optional package is missing; the message names it
    ├── RecordingError                     a recording cannot be read or written
    │   ├── UnreadableFile                 missing, truncated, or not of the format of its name
    │   │   └── MissingFile (FileNotFoundError, AssertionError)  nothing is there (1.0.1 raised AssertionError)
    │   ├── UntrustedFile                  reading it would run code
    │   ├── NewerFormat                    written by a later version
    │   ├── ValuesNotRecorded              only a sketch or statistics of a tensor are there
    │   └── WriteFailed (OSError)          the disk refused; the old file is still there
    ├── CaptureError                       a model could not be watched
    ├── TransferError                      weights could not be transferred
    ├── UnmatchedKeys (AssertionError)     keys without a partner (1.0.1 raised AssertionError here)
    └── NotAligned (AssertionError)        `raise_if_failed` on an alignment that did not pass

Ctrl-C stays Python's own KeyboardInterrupt; long calls give it what there was by then as `result` (`interrupted`).
Numbers, verdicts and findings are data; an exception means that something could not be done.
A message has what happened, where, what was found and what to do.
"""

import re
from collections.abc import Iterable
from typing import TypeVar

Result = TypeVar("Result")


class ReprodLogError(Exception):
    """Root of all deliberate errors."""


class UsageError(ReprodLogError, ValueError):
    """A parameter, name or combination that makes no sense."""


class ClassicUsageError(UsageError, AssertionError):
    """Wrong use of the classic face, where scripts for 1.0.1 may catch an AssertionError."""


class MissingPackage(ReprodLogError, ImportError):
    """Something optional is not installed."""


class RecordingError(ReprodLogError):
    """A recording cannot be read or written."""


class UnreadableFile(RecordingError):
    """The file is missing, truncated, or not of the format of its name."""


class MissingFile(UnreadableFile, FileNotFoundError, AssertionError):
    """Nothing is at the path. Scripts catch FileNotFoundError (numpy's) or AssertionError (1.0.1's) here."""


class UntrustedFile(RecordingError):
    """Reading the file would run code of its author's choice."""


class NewerFormat(RecordingError):
    """The file was written by a later version of reprod_log."""


class ValuesNotRecorded(RecordingError):
    """Of this tensor only a sketch or statistics were recorded."""


class WriteFailed(RecordingError, OSError):
    """The disk refused; whatever stood at the path before is still there."""

    def __str__(self) -> str:
        """The message alone, without the number that OSError puts before it."""
        return str(self.strerror or super().__str__())


class CaptureError(ReprodLogError):
    """A model could not be watched."""


class TransferError(ReprodLogError):
    """Weights could not be transferred."""


class UnmatchedKeys(ReprodLogError, AssertionError):
    """Keys of one side have no partner on the other."""


class NotAligned(ReprodLogError, AssertionError):
    """An alignment that was required to pass did not."""


def interrupted(text: str = "", result: object = None) -> KeyboardInterrupt:
    """Ctrl-C with what there was by then: no class of its own, because Python leaves with 130 for this one only."""
    found = KeyboardInterrupt(*([text] if text else []))
    found.result = result  # type: ignore[attr-defined]
    return found


def result_of(stop: KeyboardInterrupt, kind: type[Result]) -> Result | None:
    """What there was of this kind when Ctrl-C came."""
    found = getattr(stop, "result", None)
    return found if isinstance(found, kind) else None


def listed(names: Iterable[str], most: int = 5) -> str:
    """At most `most` quoted names, then how many more there are."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:most])
    rest = len(names) - most
    return f"{shown} and {rest} more" if rest > 0 else shown


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 entry`, `2 entries`; `#` stands for the number where it does not come first.

    Without `many` the noun takes an s: counted(3, "step") is `3 steps`.
    """
    text = one if count == 1 else many or f"{one}s"
    return text.replace("#", str(count)) if "#" in text else f"{count} {text}"


def readable_size(count: float) -> str:
    """A number of bytes as people write it: `850 MB`, `12.3 GB`."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def near_names(name: str, others: Iterable[str], most: int = 3) -> list[str]:
    """Names among the others that look like this one."""
    from difflib import get_close_matches

    return get_close_matches(name, list(others), n=most, cutoff=0.5)


def near_pattern(pattern: str, names: Iterable[str], most: int = 3) -> list[str]:
    """For a pattern that fits none of the names: those that hold its fixed part, else words in them like it."""
    fixed = max(re.split(r"[*?\[\]]+", pattern), key=len).lower()
    names = list(names)
    holding = [name for name in names if fixed and fixed in name.lower()]
    if holding:
        return holding[:most]
    parts = dict.fromkeys(part for name in names for part in re.split(r"[/#:@]", name) if part)
    words = dict.fromkeys(word for part in parts for word in (part, *part.split(".")) if word and not word.isdigit())
    return near_names(fixed, words, most)


def first_line(error: Exception) -> str:
    """The class of the error and the first line of its message with content."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -\t")]
    first = next((line for line in lines if not line.startswith("C++ Traceback")), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
