"""assert_aligned: two recordings, files, tensors or nested outputs must match; the failure shows where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reprod_log.alignment import Alignment, AlignOptions, align_with
from reprod_log.capture import flatten, to_numpy
from reprod_log.recording import Recording
from reprod_log.recording.stores import load
from reprod_log.verdict import CalibratedPolicy, Limit, Policy


def assert_aligned(
    reference: Any,
    candidate: Any,
    *,
    policy: Policy | CalibratedPolicy | None = None,
    limits: str | Iterable[Limit | str] = (),
    rename: Mapping[str, str] | None = None,
    allow_unmatched: str | Iterable[str] = (),
    accept: str | Iterable[str] = (),
    allow_unproven: bool = False,
    equal_nan: bool = False,
) -> Alignment:
    """The alignment of the two, if it passes; else NotAligned (an AssertionError) with the first screen as its text.

    Each side is a Recording, a path to one, a tensor of any loaded framework, a number, or tuples, lists, mappings and
    dataclasses of these:

        assert_aligned(torch_model(x), paddle_model(y), limits=["max_abs:1e-5"])
    """
    __tracebackhide__ = True
    options = AlignOptions.of(
        policy=policy,
        limits=limits,
        rename=rename,
        allow_unmatched=allow_unmatched,
        accept=accept,
        allow_unproven=allow_unproven,
        equal_nan=equal_nan,
    )
    found = align_with(recording_of(reference), recording_of(candidate), options)
    found.raise_if_failed()
    return found


def recording_of(value: Any) -> Recording:
    """What is compared: the recording itself, the one at a path, or one made of the tensors in `value`."""
    if isinstance(value, Recording):
        return value
    if isinstance(value, (str, Path)):
        return load(value)
    return Recording.from_arrays(named_arrays("", value))


def named_arrays(name: str, value: Any) -> dict[str, Any]:
    """The tensors in `value` as arrays, named by their place in it; a bare tensor is called `value`."""
    return {part or "value": to_numpy(leaf) for part, leaf in flatten(value, name)}
