"""The ways a pair can be measured, each of which a test can ask for by name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from reprod_log.measure import kernel
from reprod_log.measure.build_kernel import CLONES, build_kernel

WAYS = ("numpy", "kernel", "plain kernel")


@cache
def library(way: str) -> Path | None:
    """A kernel built now from the source as it is: with all its copies for instruction sets, or in plain C."""
    path = Path(tempfile.mkdtemp()) / "kernel.so"
    built = build_kernel(path, variants=((CLONES,),) if way == "kernel" else ((),))
    # Without a compiler there is nothing to test; with one, plain C that does not compile is our mistake.
    assert built.done or way == "kernel" or "no C compiler" in built.report, built.report
    return path if built.done else None


@contextmanager
def measured_by(way: str) -> Iterator[None]:
    """Inside, pairs are measured this way; the test is skipped where the way does not exist."""
    if way == "numpy":
        found = kernel.Kernel(None, "not wanted")
    else:
        path = library(way)
        if path is None:
            pytest.skip(f"no {way} can be built here: no C compiler, or one without copies for instruction sets")
        found = kernel.load(path)
        assert found.measure is not None, found.status
    with mock.patch.object(kernel, "load", return_value=found):
        yield
