"""Runs one target under atheris until its runs or seconds are over (started by run.py, once per target)."""

from __future__ import annotations

import os
import resource
import sys
import time

import atheris

# Beyond this an allocation fails, and the failure is the finding.
MOST_MEMORY = 4 << 30
SLOWEST_SECONDS = 10.0
"""Processor time that an input may take; the fuzzer's own limit is by the clock, which a busy machine stretches."""
ROOM = 64 << 20
"""Bytes of memory that an input may cost beyond sixteen times its size."""
_PAGE = resource.getpagesize()
_STATUS = os.open("/proc/self/statm", os.O_RDONLY)

with atheris.instrument_imports(include=["reprod_log"]):
    from fuzz.targets import TARGETS, Target


def most_memory() -> int:
    """The most bytes that the process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def memory() -> int:
    """The bytes that the process holds now."""
    return int(os.pread(_STATUS, 100, 0).split()[1]) * _PAGE


def within_limits(target: Target) -> Target:
    """The target, which also fails when an input takes more time or memory than it is worth."""

    def held(data: bytes) -> None:
        before, most, start = memory(), most_memory(), time.process_time()
        target(data)
        if time.process_time() - start > SLOWEST_SECONDS:
            raise TimeoutError(f"{len(data)} bytes took {time.process_time() - start:.0f} s")
        # Below an earlier maximum nothing is known, but that one was within its own limit.
        taken = most_memory() - before if most_memory() > most else 0
        if taken > ROOM + 16 * len(data):
            raise MemoryError(f"{len(data)} bytes took {taken} bytes of memory")

    return held


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    atheris.Setup([sys.argv[0], *sys.argv[2:]], within_limits(TARGETS[sys.argv[1]]))
    atheris.Fuzz()
