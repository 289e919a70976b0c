"""Measuring: cost per byte from 4 KB up, ten thousand tiny tensors, and the kernel beside memcpy.

    python benchmarks/measuring.py [--peer PYTHON] [--rounds 5] [--largest 256]

`--peer` is a Python with reprod_log 1.0.1; without it one is set up. Every way runs in a process of its own, once per
round; the best of all rounds counts. Processor time is taken where only one thread is at work: others who use the
machine disturb it less.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from peer import CLASSIC, START, peer_python
from plots import lines
from results import versions, write_section
from timing import NO_KERNEL, best_of_rounds, machine, size_text, table

from reprod_log import Recording

TINY, TINY_SHAPE = 10_000, (16, 16)

# What a child does; it prints the seconds of its best repetition for every size.
CURVE = """
import json, sys, time
import numpy as np
{imports}
sizes = json.loads(sys.argv[1])
found = {{}}
for size in sizes:
    a = np.random.default_rng(0).standard_normal(size // 4, dtype=np.float32)
    b = a * np.float32(1 + 1e-6)
    best = float("inf")
    for _ in range(max(3, min(30, 20_000_000 // size))):
        start = time.process_time()
        {work}
        best = min(best, time.process_time() - start)
    found[size] = best
print(json.dumps(found))
"""
OURS = CURVE.format(imports="from reprod_log.measure.fused import measure_arrays", work="measure_arrays(a, b)")
OLD = START + CURVE.format(
    imports="from reprod_log.compare import compute_diff", work="compute_diff({'x': a}, {'x': b})"
)
COPY = CURVE.format(imports="", work="np.copyto(b, a)")

# The same with a thread for each core, as pairs are spread; wall time, since threads share it.
THREADED = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.spread import usable_cores
threads, size = usable_cores(), int(sys.argv[1])
pairs = []
for seed in range(threads):
    a = np.random.default_rng(seed).standard_normal(size // 4, dtype=np.float32)
    pairs.append((a, a * np.float32(1 + 1e-6)))
best = float("inf")
with ThreadPoolExecutor(threads) as pool:
    for _ in range(7):
        start = time.perf_counter()
        list(pool.map(lambda pair: {work}, pairs))
        best = min(best, time.perf_counter() - start)
print(best / threads)
"""

STAGE = """
import sys, time
import numpy as np
{imports}
rng = np.random.default_rng(0)
a = {{f"step0/forward/layer{{i}}#0:output": rng.standard_normal({shape}, dtype=np.float32) for i in range({count})}}
b = {{key: value * np.float32(1 + 1e-6 * (i % 2)) for i, (key, value) in enumerate(a.items())}}
{prepare}
best = float("inf")
for _ in range(3):
    start = time.process_time()
    {work}
    best = min(best, time.process_time() - start)
print(best)
"""
STAGE_OURS = STAGE.format(
    imports="from reprod_log import Recording\nfrom reprod_log.pairing import match\n"
    "from reprod_log.measure.comparison import measure",
    prepare="pairing = match(Recording.from_arrays(a), Recording.from_arrays(b))",
    work="measure(pairing)",
    shape=TINY_SHAPE,
    count=TINY,
)
STAGE_OLD = START + STAGE.format(
    imports="from reprod_log.compare import compute_diff",
    prepare="",
    work="compute_diff(a, b)",
    shape=TINY_SHAPE,
    count=TINY,
)
WHOLE = """
import sys
from reprod_log import load
from reprod_log.pairing import match
from reprod_log.measure.comparison import measure
measure(match(load(sys.argv[1]), load(sys.argv[2])))
"""


def curve(peer: str, sizes: list[int], rounds: int) -> dict[str, dict[int, float]]:
    """Seconds by way and size (bytes of one side)."""
    python, argument = [sys.executable, "-c"], json.dumps(sizes)
    ways: dict[str, dict[str, object]] = {
        "memcpy": {"command": [*python, COPY, argument]},
        "kernel": {"command": [*python, OURS, argument]},
        "numpy": {"command": [*python, OURS, argument], "environment": NO_KERNEL},
        "1.0.1": {"command": [peer, "-c", OLD, argument]},
    }
    best: dict[str, dict[int, float]] = {}
    for _ in range(rounds):
        for name, one in best_of_rounds(ways, 1).items():
            for size, seconds in json.loads(one.output).items():
                known = best.setdefault(name, {})
                known[int(size)] = min(known.get(int(size), seconds), seconds)
    return best


def threaded(size: int, rounds: int) -> dict[str, float]:
    """Seconds for one pair of this size where every core works on one of its own."""
    works = {"memcpy": "np.copyto(pair[1], pair[0])", "kernel": "measure_arrays(*pair)"}
    ways: dict[str, dict[str, object]] = {
        name: {"command": [sys.executable, "-c", THREADED.format(work=work), str(size)]} for name, work in works.items()
    }
    found: dict[str, float] = {}
    for _ in range(rounds):
        for name, one in best_of_rounds(ways, 1).items():
            found[name] = min(found.get(name, float("inf")), float(one.output))
    return found


def tiny(peer: str, folder: Path, rounds: int) -> dict[str, float]:
    """Seconds for ten thousand tiny pairs: the measuring alone, and from the start of a process to its end."""
    python = [sys.executable, "-c"]
    stage: dict[str, dict[str, object]] = {
        "measuring, 1.0.1": {"command": [peer, "-c", STAGE_OLD]},
        "measuring, kernel": {"command": [*python, STAGE_OURS]},
        "measuring, numpy": {"command": [*python, STAGE_OURS], "environment": NO_KERNEL},
    }
    found: dict[str, float] = {}
    for _ in range(rounds):
        for name, one in best_of_rounds(stage, 1).items():
            found[name] = min(found.get(name, float("inf")), float(one.output))
    paths = _tiny_files(folder)
    classic = [paths[0] + ".npy", paths[1] + ".npy", str(folder / "diff.txt")]
    whole: dict[str, dict[str, object]] = {
        "whole, 1.0.1, its script": {"command": [peer, "-c", START + CLASSIC, *classic]},
        "whole, kernel, the same script": {"command": [*python, CLASSIC, *classic]},
        "whole, numpy, the same script": {"command": [*python, CLASSIC, *classic], "environment": NO_KERNEL},
        "whole, kernel, load + match + measure": {"command": [*python, WHOLE, *paths]},
        "whole, numpy, load + match + measure": {"command": [*python, WHOLE, *paths], "environment": NO_KERNEL},
    }
    return {**found, **{name: one.processor for name, one in best_of_rounds(whole, rounds).items()}}


def _tiny_files(folder: Path) -> list[str]:
    rng = np.random.default_rng(0)
    ours = {f"step0/forward/layer{i}#0:output": rng.standard_normal(TINY_SHAPE, dtype=np.float32) for i in range(TINY)}
    theirs = {key: value * np.float32(1 + 1e-6 * (i % 2)) for i, (key, value) in enumerate(ours.items())}
    for name, arrays in (("ours", ours), ("theirs", theirs)):
        Recording.from_arrays(arrays).save(folder / f"{name}.npy")
        Recording.from_arrays(arrays).save(folder / name)
    return [str(folder / "ours"), str(folder / "theirs")]


def report(best: dict[str, dict[int, float]], together: dict[str, float], small: dict[str, float], rounds: int) -> str:
    """The section in Markdown."""
    names = list(best)
    rows = [
        [size_text(size), *(f"{_speed(name, size, best[name][size]):.2f}" for name in names),
         f"{best['1.0.1'][size] / best['kernel'][size]:.1f}×", f"{best['1.0.1'][size] / best['numpy'][size]:.1f}×"]
        for size in best["kernel"]
    ]  # fmt: skip
    largest = max(best["kernel"])
    shares = {size: 2 * best["memcpy"][size] / best["kernel"][size] for size in best["kernel"] if size >= 1 << 24}
    small_rows = [
        [
            name,
            f"{seconds:.3f} s",
            f"{1e6 * seconds / TINY:.1f} µs",
            f"{small[_old(name)] / seconds:.2f}×",
        ]
        for name, seconds in small.items()
    ]
    return f"""{versions("numpy", "reprod_log")}; {machine()}; best of {rounds} rounds.

One pair of float32 alone, all statistics (1.0.1: mean, max, min only), one thread, processor time. GB/s are bytes of
both sides read per second (memcpy: bytes copied per second); the last columns say how much faster than 1.0.1.

{table(["one side", *names, "kernel / 1.0.1", "numpy / 1.0.1"], rows)}

Bytes that the kernel takes in, as a share of the bytes that memcpy copies in the same run:
{", ".join(f"{100 * share:.0f} % at {size_text(size)}" for size, share in shares.items())}; with a thread on every core,
as pairs are spread, {100 * 2 * together["memcpy"] / together["kernel"]:.0f} % at {size_text(largest)}
({_speed("kernel", largest, together["kernel"]):.1f} GB/s beside {_speed("memcpy", largest, together["memcpy"]):.1f}).

![Speed by size](plots/measuring.svg)

Ten thousand tensors of 1 KB, half of them equal, processor time; "whole" is from the start of a process to its end.
1.0.1's own import of paddle is left out. Its script loads, compares three statistics and prints them.

{table(["", "time", "per tensor", "faster than 1.0.1"], small_rows)}
"""


def _speed(name: str, size: int, seconds: float) -> float:
    """GB/s: of both sides, or of what memcpy copies."""
    return (size if name == "memcpy" else 2 * size) / seconds / 1e9


def _old(name: str) -> str:
    return "measuring, 1.0.1" if name.startswith("measuring") else "whole, 1.0.1, its script"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="a Python with reprod_log 1.0.1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=256, help="MB of one side")
    options = parser.parse_args()
    peer = peer_python(options.peer)
    sizes = [1 << exponent for exponent in range(12, 40, 2) if 1 << exponent <= options.largest << 20]
    best = curve(peer, sizes, options.rounds)
    together = threaded(max(sizes), options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        small = tiny(peer, Path(folder), options.rounds)
    lines(
        "measuring",
        {name: [(size, _speed(name, size, one)) for size, one in found.items()] for name, found in best.items()},
        x="bytes of one side",
        y="GB/s of both sides",
    )
    text = report(best, together, small, options.rounds)
    print(text)
    write_section("Measuring", text)


if __name__ == "__main__":
    main()
