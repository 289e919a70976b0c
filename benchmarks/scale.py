"""Scale: two large recordings compared from the start of a process to its end, with the private memory that takes.

    python benchmarks/scale.py [--peer PYTHON] [--gigabytes 2] [--rounds 3] [--folder FOLDER]
    python benchmarks/scale.py --large 16 [--folder FOLDER]

The first writes two recordings of 64 tensors, half of them equal, and compares them in every way, 1.0.1 beside it. The
second takes only our own ways, from a small part of a gigabyte up to that many gigabytes for both sides together.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from measuring import WHOLE
from peer import CLASSIC, START, peer_python
from plots import lines
from results import versions, write_section
from timing import NO_KERNEL, Timed, best_of_rounds, machine, table, timed

from reprod_log.recording import Entry, Key, Recording
from reprod_log.recording.entry import content_hash

TENSORS = 64
ONE_THREAD = WHOLE.replace("load(sys.argv[2])))", "load(sys.argv[2])), threads=1)")
# The same recordings as if nobody had hashed their tensors.
FORGETFUL = """
from dataclasses import replace
from reprod_log import load as whole
def load(path):
    found = whole(path)
    return replace(found, entries=tuple(replace(entry, hash="") for entry in found.entries))
"""


def tensor(place: int, nbytes: int, *, candidate: bool) -> np.ndarray:
    """One of the tensors: no two of a side are the same, and every second one differs between the sides."""
    rng = np.random.default_rng(place)
    # A short piece of noise, repeated: drawing gigabytes of it would take longer than all the rest.
    piece = rng.standard_normal(1 << 18, dtype=np.float32)
    values = np.resize(piece, nbytes // 4)
    values[0] = place
    return values * np.float32(1 + 1e-6) if candidate and place % 2 else values


def write(path: Path, nbytes: int, *, candidate: bool, hashed: bool) -> None:
    """A recording of `nbytes`, made one tensor at a time; with content hashes, as `watch` writes it, or without."""
    each = nbytes // TENSORS
    entries = []
    for place in range(TENSORS):
        entry = Entry(
            key=Key.parse(f"step0/forward/layer{place}#0:output"),
            shape=(each // 4,),
            dtype="float32",
            read=lambda place=place: tensor(place, each, candidate=candidate),
        )
        entries.append(replace(entry, hash=content_hash(entry.array())) if hashed else entry)
    Recording(tuple(entries)).save(path)


def compared(folder: Path, peer: str, nbytes: int, rounds: int) -> dict[str, Timed]:
    """Every way to compare two recordings of `nbytes` each."""
    for name in ("ours", "theirs"):
        write(folder / name, nbytes, candidate=name == "theirs", hashed=True)
        arrays = {f"layer{i}": tensor(i, nbytes // TENSORS, candidate=name == "theirs") for i in range(TENSORS)}
        np.save(folder / f"{name}.npy", np.array(arrays, dtype=object), allow_pickle=True)
        del arrays
    python = [sys.executable, "-c"]
    paths = [str(folder / "ours"), str(folder / "theirs")]
    one, several = (FORGETFUL + script.replace("from reprod_log import load\n", "") for script in (ONE_THREAD, WHOLE))
    classic = [str(folder / "ours.npy"), str(folder / "theirs.npy"), str(folder / "diff.txt")]
    compare = [sys.executable, "-m", "reprod_log", "compare"]
    return best_of_rounds(
        {
            "1.0.1, its script": {"command": [peer, "-c", START + CLASSIC, *classic]},
            "kernel, the same script and files": {"command": [*python, CLASSIC, *classic]},
            "numpy, 1 thread": {"command": [*python, one, *paths], "environment": NO_KERNEL},
            "numpy, threads": {"command": [*python, several, *paths], "environment": NO_KERNEL},
            "numpy, threads, hashes": {"command": [*python, WHOLE, *paths], "environment": NO_KERNEL},
            "kernel, 1 thread": {"command": [*python, one, *paths]},
            "kernel, threads": {"command": [*python, several, *paths]},
            "kernel, threads, hashes": {"command": [*python, WHOLE, *paths]},
            "reprod compare, kernel, hashes": {"command": [*compare, *paths], "expect": (0, 1)},
        },
        rounds,
    )


def report(found: dict[str, Timed], nbytes: int, rounds: int) -> str:
    """The table of one size."""
    old = found["1.0.1, its script"]
    rows = [
        [
            name,
            f"{one.seconds:.2f} s",
            f"{old.seconds / one.seconds:.1f}×",
            f"{one.processor:.2f} s",
            f"{old.processor / one.processor:.1f}×",
            f"{one.private / 1e6:.0f} MB",
        ]
        for name, one in found.items()
    ]
    return f"""{versions("numpy", "reprod_log")}; {machine()}; best of {rounds} rounds.

Two recordings of {nbytes / 1e9:.2f} GB of float32 each, {TENSORS} tensors, half of them equal, in the system's file
cache; from the start of a process to its end. 1.0.1 computes three statistics, ours all; its import of paddle is left
out. Private memory is anonymous memory, the largest seen.

{table(["", "time", "faster", "processor time", "faster", "private memory"], rows)}
"""


def large(folder: Path, gigabytes: float) -> str:
    """The curve up to `gigabytes` for both sides, as far as the disk has room."""
    room = 0.8 * shutil.disk_usage(folder).free / 1e9
    most = min(gigabytes, room)
    sizes = [size for size in (0.0625, 0.25, 1.0, 4.0, 16.0, 64.0) if size < most]
    points: dict[str, list[tuple[float, float]]] = {"kernel": [], "numpy": []}
    rows = []
    for size in [*sizes, most]:
        paths = [folder / "ours", folder / "theirs"]
        for path in paths:
            write(path, int(size * 1e9 / 2), candidate=path.name == "theirs", hashed=False)
        cells = [f"{size:g} GB"]
        for name, environment in (("kernel", {}), ("numpy", NO_KERNEL)):
            runs = [
                timed([sys.executable, "-c", WHOLE, *map(str, paths)], environment=environment)
                for _ in range(2 if size > 4 else 3)
            ]
            best = min(run.seconds for run in runs)
            points[name].append((size * 1e9, best))
            cells += [f"{best:.2f} s", f"{size / best:.2f} GB/s", f"{max(run.private for run in runs) / 1e6:.0f} MB"]
        rows.append(cells)
        print(" | ".join(cells), flush=True)
        for path in paths:
            shutil.rmtree(path)
    lines("scale", points, x="bytes of both sides", y="seconds, process start included")
    short = "" if most == gigabytes else f" {gigabytes:g} GB did not fit on the disk."
    return f"""{versions("numpy", "reprod_log")}; {machine()}.

Both sides together, from the start of a process to its end, one thread per core, half of the tensors equal.{short}
Files larger than the memory that is free come from the disk.

{table(["both sides", "kernel", "", "private", "numpy", "", "private"], rows)}

![Time by size](plots/scale.svg)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="a Python with reprod_log 1.0.1")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of one side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the recordings are written; a temporary folder if not given")
    parser.add_argument("--large", type=float, help="gigabytes of both sides, for the curve")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        if options.large:
            title, text = "Scale, curve", large(folder, options.large)
        else:
            nbytes = int(options.gigabytes * 2**30)
            needed, free = 4 * nbytes, shutil.disk_usage(folder).free
            if needed > free:
                raise SystemExit(f"{folder} has {free / 1e9:.0f} GB free; this needs {needed / 1e9:.0f} GB")
            found = compared(folder, peer_python(options.peer), nbytes, options.rounds)
            title, text = "Scale", report(found, nbytes, options.rounds)
    print(text)
    write_section(title, text)


if __name__ == "__main__":
    main()
