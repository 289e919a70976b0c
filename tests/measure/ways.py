"""The ways a pair can be measured, each of which a test can ask for by name."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from reprod_log.measure import kernel
from reprod_log.measure.build_kernel import CLONES, build_kernel, compiler_command

WAYS = ("numpy", "kernel", "plain kernel")


@cache
def compiled(way: str) -> Path | None:
    """A kernel built now from the source as it is: with all its copies for instruction sets, or in plain C."""
    path = Path(tempfile.mkdtemp()) / "kernel.so"
    built = build_kernel(path, variants=((CLONES,),) if way == "kernel" else ((),))
    # Without a compiler there is nothing to test; with one that can, a kernel that does not compile is our mistake.
    assert built.done or "no C compiler" in built.report or (way == "kernel" and not _makes_copies()), built.report
    return path if built.done else None


def _makes_copies() -> bool:
    """Whether the compiler can make a function in copies for instruction sets and pick one when it is loaded."""
    probe = '__attribute__((target_clones("avx2", "default"))) int probe(void) { return 0; }'
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "probe.c", Path(folder) / "probe.so"
        source.write_text(probe)
        command = [*(compiler_command() or ["cc"]), "-shared", "-fPIC", str(source), "-o", str(made)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def measured_by(way: str) -> Iterator[None]:
    """Inside, pairs are measured this way; the test is skipped where the way does not exist."""
    if way == "numpy":
        found = kernel.Kernel(None, "not wanted")
    else:
        path = compiled(way)
        if path is None:
            pytest.skip(f"no {way} can be built here: no C compiler, or one without copies for instruction sets")
        found = kernel.load(path)
        assert found.measure is not None, found.status
    with mock.patch.object(kernel, "load", return_value=found):
        yield
