"""The C kernel against numpy on larger arrays, and how it is found, built, refused and switched off."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from agreement import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_for_arrays import dtype, from_patterns
from ways import compiled, measured_by

from reprod_log.measure import build_kernel, kernel
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement

NAMES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32",
         "int64", "uint64", "bool"]  # fmt: skip
KERNELS = ["kernel", "plain kernel"]
# Around the vectors' and the blocks' ends.
SIZES = [1, 31, 32, 33, 96, 1000, 1023, 1024, 1025, 1056, 3 * 1024, 5000]


def both(way: str, reference: np.ndarray, candidate: np.ndarray, **options: Any) -> tuple[Measurement, Measurement]:
    with measured_by("numpy"):
        wanted = measure_arrays(reference, candidate, limit=0.5)
    with measured_by(way):
        return measure_arrays(reference, candidate, limit=0.5, **options), wanted


def related(reference: np.ndarray, rng: np.random.Generator, share: float) -> np.ndarray:
    """The same values, a share of them moved by a little."""
    moved = rng.random(reference.size) < share
    candidate = reference.copy()
    with np.errstate(all="ignore"):
        if reference.dtype.kind in "iub":
            candidate[moved] ^= reference.dtype.type(1)
        else:
            wide = reference[moved].astype(np.float64)
            noise = 1 + rng.standard_normal(wide.size) * 10.0 ** rng.integers(-12, 1)
            candidate[moved] = (wide * noise).astype(reference.dtype)
    return candidate


@pytest.mark.parametrize("way", KERNELS)
@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    size=st.sampled_from(SIZES),
    seed=st.integers(0, 2**32),
    values=st.sampled_from(["any bits", "tame", "wide", "constant"]),
    share=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    special=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    block=st.sampled_from([None, 700]),
)
def test_kernel_and_numpy_agree_for_every_dtype_and_size(
    way: str, name: str, size: int, seed: int, values: str, share: float, special: float, block: int | None
) -> None:
    rng = np.random.default_rng(seed)
    wanted = dtype(name)
    with np.errstate(all="ignore"):
        if values == "any bits":
            reference = from_patterns(rng.integers(0, 2**64, size, np.uint64), wanted)
        elif values == "constant":
            reference = np.full(size, 100.25).astype(wanted)
        else:
            sizes = 2.0 ** rng.integers(-60, 60, size) if values == "wide" else 10.0
            drawn = rng.standard_normal(size) * sizes
            reference = (np.abs(drawn) % 100 if wanted.kind in "iub" else drawn).astype(wanted)
    candidate = related(reference, rng, share)
    if wanted.kind not in "iub":
        for array in (reference, candidate):
            at = rng.random(size) < special * 0.3
            array[at] = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0]), int(at.sum())).astype(wanted)
        same = rng.random(size) < special
        candidate[same] = reference[same]
    assert_same(*both(way, reference, candidate, block=block))


@pytest.mark.parametrize("way", KERNELS)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_kernel_and_numpy_agree_when_exponents_lie_far_apart(way: str, name: str) -> None:
    reach = np.finfo(name)
    exponents = np.arange(np.log2(reach.smallest_subnormal), np.log2(reach.max) - 1)
    for order in (exponents, exponents[::-1], np.concatenate([exponents, np.full(2000, -np.inf)])):
        candidate = (2.0**order).astype(name)
        assert_same(*both(way, np.zeros_like(candidate), candidate))
        tiny = candidate[candidate < 1e-30]
        assert_same(*both(way, np.zeros_like(tiny), tiny))


@pytest.mark.parametrize("way", KERNELS)
def test_kernel_and_numpy_agree_when_layouts_and_dtypes_are_mixed(way: str) -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((70, 90)).astype(np.float32)
    b = a + np.float32(1e-3)
    for left, right in [
        (a.T, np.ascontiguousarray(b.T)),
        (a[::2, ::-1], b[::2, ::-1]),
        (np.asfortranarray(a), b),
        (a.astype(">f4"), b),
        (a, b.astype(np.float64)),
        (a.astype(np.float16), b.astype(ml_dtypes.bfloat16)),
        (a > 0, b),
        ((a * 100).astype(np.int8), (b * 100).astype(np.uint16)),
        (a[:, :3], b[:, :3]),
    ]:
        assert_same(*both(way, left, right))


@pytest.mark.parametrize("way", KERNELS)
def test_kernel_reads_values_at_any_address(way: str) -> None:
    room = np.zeros(4 * 2000 + 1, np.uint8)
    odd = room[1:].view(np.float32)
    odd[:] = np.random.default_rng(2).standard_normal(2000)
    assert not odd.flags.aligned
    assert_same(*both(way, odd, odd.copy() + 1))


@pytest.mark.parametrize("way", KERNELS)
def test_kernel_counts_subnormal_numbers_when_the_thread_flushes_them(way: str) -> None:
    a = np.zeros(1024, np.float32)
    b = np.full(1024, 1e-45, np.float32)
    flushes = torch.set_flush_denormal(True)
    try:
        with measured_by(way):
            got = measure_arrays(a, b)
    finally:
        torch.set_flush_denormal(False)
    if not flushes:
        pytest.skip("this processor cannot flush")
    assert got.differing == 1024
    assert got.max_abs == float(np.float32(1e-45))


def test_numpy_says_so_when_the_thread_flushes_subnormal_numbers() -> None:
    ones = np.ones(4)
    with measured_by("numpy"):
        assert measure_arrays(ones, ones).notes == ()
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot flush")
        try:
            notes = measure_arrays(ones, ones).notes
        finally:
            torch.set_flush_denormal(False)
    assert "subnormal" in str(notes[0])


def test_status_says_that_the_kernel_is_in_use_or_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not built" in str(kernel.load(tmp_path / "none.so").status)
    (tmp_path / "text.so").write_text("not a library")
    assert "cannot be loaded" in str(kernel.load(tmp_path / "text.so").status)
    built = compiled("kernel")
    if built is None:
        pytest.skip("no compiler")
    assert "in use" in str(kernel.load(built).status)
    other = tmp_path / "copy.so"
    shutil.copy(built, other)
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "source_digest", lambda: "another")
        assert "another version" in str(kernel.load(other).status)
    assert kernel.status()


def test_the_switch_turns_the_kernel_off_at_run_time() -> None:
    code = "from reprod_log.measure import kernel; print(kernel.status(), kernel.load().measure)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"REPROD_LOG_NO_KERNEL": "1", "PATH": "", "PYTHONPATH": str(Path(kernel.__file__).parents[2])},
    )
    assert "REPROD_LOG_NO_KERNEL is set" in done.stdout
    assert done.stdout.endswith("None\n")


def test_building_without_a_compiler_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    built = build_kernel.build_kernel(tmp_path / "kernel.so")
    assert not built.done
    assert "no C compiler" in built.report
    monkeypatch.setenv("CC", str(tmp_path / "missing"))
    assert "could not be run" in build_kernel.build_kernel(tmp_path / "kernel.so").report
    assert not (tmp_path / "kernel.so").exists()


def test_a_variant_that_does_not_compile_gives_way_to_the_next(tmp_path: Path) -> None:
    if compiled("plain kernel") is None:
        pytest.skip("no compiler")
    built = build_kernel.build_kernel(tmp_path / "kernel.so", variants=(("-DRAW=]",), ()))
    assert built.done
    assert (tmp_path / "kernel.so").exists()


def test_the_state_of_python_and_of_c_are_of_one_size() -> None:
    path = compiled("kernel")
    if path is None:
        pytest.skip("no compiler")
    size = ctypes.CDLL(str(path)).reprod_state_size
    size.restype = ctypes.c_int64
    assert size() == ctypes.sizeof(kernel._State)
