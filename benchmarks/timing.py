"""Commands timed in processes of their own, with the private memory they took; and the machine in a few words."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NO_KERNEL = {"REPROD_LOG_NO_KERNEL": "1"}
_COMPILES_EACH_TIME = "PYTHONDONTWRITEBYTECODE"
"""Where it is set, a process compiles our sources anew, which no installed package does."""


@dataclass(frozen=True)
class Timed:
    """One run of a command, from the start of its process to its end."""

    seconds: float
    processor: float
    """Seconds that all its threads together were at work: what a busy machine disturbs least."""
    private: int
    """Most bytes of memory that were the process's own at any time (0 where the system does not say)."""
    output: str


def timed(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, expect: Sequence[int] = (0,)
) -> Timed:
    """Run the command once; any other exit code than those expected is an error."""
    inherited = {name: value for name, value in os.environ.items() if name != _COMPILES_EACH_TIME}
    before = _children()
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, "OMP_NUM_THREADS": "1", **(environment or {})},
    )
    private = 0
    while True:
        try:
            output, errors = process.communicate(timeout=0.02)
            break
        except subprocess.TimeoutExpired:
            private = max(private, _private_bytes(process.pid))
    seconds = time.perf_counter() - start
    if process.returncode not in expect:
        raise RuntimeError(f"{command[:3]} ended with {process.returncode}: {errors[-2000:]}")
    return Timed(seconds, _children() - before, private, output)


def best_of_rounds(commands: Mapping[str, Mapping[str, object]], rounds: int) -> dict[str, Timed]:
    """Every command run once in each round, so that a busy machine disturbs all alike; the fastest run of each counts.

    A value holds the arguments of `timed`. The private memory is the largest seen in any round.
    """
    found: dict[str, list[Timed]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, arguments in commands.items():
            found[name].append(timed(**arguments))  # type: ignore[arg-type]
    return {
        name: Timed(
            min(one.seconds for one in runs),
            min(one.processor for one in runs),
            max(one.private for one in runs),
            runs[-1].output,
        )
        for name, runs in found.items()
    }


def machine() -> str:
    """Processor and cores, without names of hosts or people."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f} when it began" if hasattr(os, "getloadavg") else ""
    return f"{model}, {cores} cores{load}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def size_text(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "KB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} GB"


def _children() -> float:
    """Processor time of all processes that were started here and have ended."""
    found = os.times()
    return found.children_user + found.children_system


def _private_bytes(pid: int) -> int:
    """Anonymous memory: what is mapped from files belongs to the system's cache."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it has just ended
        return 0
    return 0
