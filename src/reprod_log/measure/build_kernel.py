"""Compiles kernel.c (and recording/sketch.c) with whatever C compiler is at hand. Needs nothing but the standard
library, because it runs at install, before the package and its dependencies are there.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("kernel.c")
LIBRARY = Path(__file__).with_name("_kernel.so")
SKETCH_SOURCE = Path(__file__).parents[1] / "recording" / "sketch.c"
SKETCH_LIBRARY = SKETCH_SOURCE.with_name("_sketch.so")
SWITCH = "REPROD_LOG_NO_KERNEL"

# No flag changes what a single operation gives, except -fopenmp-simd, which lets sums be added in several lanes.
_FLAGS = (
    "-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden",
    "-fopenmp-simd", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
# A copy of each loop for AVX2 and one for any processor of the kind; not every platform can pick one at run time.
CLONES = "-DREPROD_CLONES"
_SECONDS = 300


@dataclass(frozen=True)
class Built:
    """Whether the library was made, and one line about it."""

    done: bool
    report: str


def switched_off() -> bool:
    """Whether the user asked for no kernel."""
    return os.environ.get(SWITCH, "") not in ("", "0")


def source_digest(source: Path = SOURCE) -> str:
    """What a library says it was built from."""
    return hashlib.sha256(source.read_bytes()).hexdigest()[:16]


def build_sketch(library: Path = SKETCH_LIBRARY) -> Built:
    """Make the library that sketches tensors while they are recorded."""
    return build_kernel(library, source=SKETCH_SOURCE)


def build_kernel(
    library: Path = LIBRARY, *, source: Path = SOURCE, variants: tuple[tuple[str, ...], ...] = ((CLONES,), ())
) -> Built:
    """Make the library with the first variant of flags that compiles and runs; failure is a result, not an error."""
    import shutil  # this and what else compiling needs is not loaded by those who only look for the library
    import tempfile

    compiler = compiler_command()
    if compiler is None:
        return Built(False, "no C compiler (cc, gcc, clang or $CC) was found")
    report = ""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernel.so"
        for flags in variants:
            report = _compile(compiler, made, flags, source) or _try_out(made, _TRIALS[source.name])
            if not report:
                # Put in place at once: a process may have the old file mapped.
                beside = library.with_suffix(f".{os.getpid()}")
                shutil.copyfile(made, beside)
                os.replace(beside, library)
                return Built(True, f"built with {compiler[0]} {' '.join(flags)}".rstrip())
    return Built(False, report)


def compiler_command() -> list[str] | None:
    import shlex
    import shutil

    named = os.environ.get("CC")
    if named:
        return shlex.split(named)
    found = next((path for path in map(shutil.which, ("cc", "gcc", "clang")) if path), None)
    return None if found is None else [found]


def _compile(compiler: list[str], made: Path, flags: tuple[str, ...], source: Path) -> str:
    """What went wrong, or nothing."""
    origin = f'-DREPROD_SOURCE="{source_digest(source)}"'
    return _run([*compiler, *_FLAGS, *flags, origin, str(source), "-o", str(made), "-lm"])


_LOAD = "import ctypes, sys\nlibrary = ctypes.CDLL(sys.argv[1])\n"
_TRIALS = {
    "kernel.c": _LOAD + (
        "state = ctypes.create_string_buffer(1 << 16)\n"
        "a, b = (ctypes.c_float * 64)(), (ctypes.c_float * 64)(*range(64))\n"
        "library.reprod_measure.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,\n"
        "                                   ctypes.c_int64, ctypes.c_double, ctypes.c_void_p]\n"
        "library.reprod_measure(0, a, b, 64, 0, 1.0, state)\n"
        "assert int.from_bytes(state.raw[8:16], sys.byteorder) == 64\n"
    ),
    "sketch.c": _LOAD + (
        "values, found = (ctypes.c_float * 64)(*range(64)), (ctypes.c_double * 8)()\n"
        "library.reprod_summary.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]\n"
        "assert library.reprod_summary(0, values, 64, found) == 1\n"
        "assert (found[0], found[1], found[2], found[6], found[7]) == (0.0, 63.0, 31.5, 2016.0, 85344.0)\n"
    ),
}  # fmt: skip


def _try_out(made: Path, code: str) -> str:
    """Load the library in another process, where a wrong instruction does no harm; what went wrong, or nothing."""
    return _run([sys.executable, "-c", code, str(made)])


def _run(command: list[str]) -> str:
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{command[0]} could not be run: {error}"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return f"{command[0]} ended with {done.returncode}: {lines[-1] if lines else 'no message'}"
