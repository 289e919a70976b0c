"""The cases of load, each with its size as a parameter, checking what they do and saying what it took."""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reprod_log import ReprodDiffHelper, ReprodLogger, align
from reprod_log.recording import Provenance, Recording
from reprod_log.recording.recorder import Recorder
from reprod_log.recording.stores import load


@dataclass
class Figures:
    """What a case took: seconds by part, and the most memory of its own (not mapped files) beyond the start, in MB."""

    seconds: dict[str, float] = field(default_factory=dict)
    memory: float = 0.0


def own_memory() -> float:
    """Memory that belongs to this process alone, in MB; pages of mapped files can be taken back at any time."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def watched() -> Iterator[Figures]:
    """Figures whose memory is the peak inside the block, looked at ten times a second."""
    figures, start, done = Figures(), own_memory(), threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            figures.memory = max(figures.memory, own_memory() - start)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield figures
    finally:
        done.set()
        thread.join()
        figures.memory = max(figures.memory, own_memory() - start)


@contextmanager
def timed(figures: Figures, part: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    figures.seconds[part] = time.perf_counter() - start


def value(number: int) -> np.ndarray:
    return np.full(4, float(number), np.float32)


def many_entries(folder: Path, count: int, *, steps: int) -> Figures:
    """`count` entries in so many steps: recorded, opened, compared with themselves; none lost, order kept."""
    with watched() as figures:
        recorder = Recorder(folder / "rec", provenance=Provenance(framework="numpy"))
        keys = []
        with timed(figures, "record"):
            for number in range(count):
                keys.append(f"step{number * steps // count}/forward/layer{number}#0:output")
                recorder.add(keys[-1], value(number))
                if number + 1 < count and number * steps // count != (number + 1) * steps // count:
                    recorder.end_step()
            recorder.close()
        with timed(figures, "open"):
            found = load(folder / "rec")
        assert found.keys == tuple(keys)
        assert len(found.steps) == steps
        with timed(figures, "read"):
            for number, entry in enumerate(found):
                assert entry.array()[0] == number
        with timed(figures, "compare"):
            # One recording twice proves nothing about a port; here only the entries count.
            alignment = align(found, found, limits=("max_abs:0",), allow_unproven=True)
        assert alignment.passed
        assert len(alignment.comparison.rows) == count
        return figures


def one_large_entry(folder: Path, size: int) -> Figures:
    """One entry of `size` bytes on either side (files with holes), compared without being held in memory."""
    paths = [folder / name for name in ("reference.safetensors", "candidate.safetensors")]
    for path in paths:
        sparse_file(path, size)
    # One number at the very end differs: it is found only by reading everything.
    with open(paths[1], "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 0.5))
    with watched() as figures:
        with timed(figures, "open"):
            reference, candidate = (load(path) for path in paths)
        with timed(figures, "compare"):
            alignment = align(reference, candidate, limits=("max_abs:0.4",))
        assert not alignment.passed
        measured = alignment.comparison.rows[0].measurement
        assert measured is not None
        assert measured.differing == 1
        assert measured.worst is not None
        assert measured.worst.index == (size // 4 - 1,)
        return figures


def sparse_file(path: Path, size: int) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)


def read_while_it_grows(folder: Path, steps: int) -> Figures:
    """A reader opens the recording again and again while another thread writes it: always a whole beginning of it."""
    seen: list[int] = []
    done = threading.Event()

    def write() -> None:
        recorder = Recorder(folder / "rec", provenance=Provenance(framework="numpy"))
        for step in range(steps):
            recorder.add(f"step{step}/loss/loss", value(step))
            recorder.add(f"step{step}/parameter/frozen", np.arange(100.0))
            recorder.end_step()
        recorder.close()
        done.set()

    with watched() as figures, timed(figures, "write and read"):
        thread = threading.Thread(target=write)
        thread.start()
        while not done.is_set():
            seen.append(_beginning(folder / "rec", steps))
        thread.join()
        seen.append(_beginning(folder / "rec", steps))
    assert seen == sorted(seen)
    assert seen[-1] == steps
    assert load(folder / "rec").complete
    return figures


def _beginning(path: Path, steps: int) -> int:
    """How many steps a reader sees now, each checked."""
    if not (path / "manifest.json").exists():
        return 0
    found = load(path)
    assert len(found) == 2 * len(found.steps)
    assert found.steps == tuple(range(len(found.steps)))
    assert not found.complete or len(found.steps) == steps
    for step in found.steps:
        assert found[f"step{step}/loss/loss"].array()[0] == step
        assert found[f"step{step}/parameter/frozen"].array()[99] == 99.0
    return len(found.steps)


def threads_on_one_logger(folder: Path, threads: int, each: int) -> Figures:
    """Many threads add to one classic logger, and to one recorder whose steps end meanwhile: all there, in order."""
    logger = ReprodLogger()
    recorder = Recorder(folder / "rec", provenance=Provenance(framework="numpy"))
    start = threading.Barrier(threads)

    def add(thread: int) -> None:
        start.wait()
        for number in range(each):
            logger.add(f"t{thread}_{number}", value(number))
            recorder.add(f"t{thread}_{number}", value(number))
            if thread == 0 and number % 10 == 9:
                recorder.end_step()

    with watched() as figures, timed(figures, "add"):
        workers = [threading.Thread(target=add, args=(one,)) for one in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    recorded = recorder.close()
    logger.save(folder / "log.npy")
    logged = ReprodDiffHelper().load_info(folder / "log.npy")
    for keys in (list(logged), list(recorded.keys)):
        assert len(keys) == threads * each
        for thread in range(threads):
            own = [int(key.split("_")[1]) for key in keys if key.startswith(f"t{thread}_")]
            assert own == list(range(each)), f"thread {thread} lost its order"
    assert recorded.complete
    _check_values(recorded, lambda key: int(key.split("_")[1]))
    return figures


def _check_values(found: Recording, number: Callable[[str], int]) -> None:
    for entry in found:
        np.testing.assert_array_equal(entry.array(), value(number(str(entry.key))))
