"""Recordings of many steps: what is remembered between steps does not grow with them."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from reprod_log.recording import Key
from reprod_log.recording.key import SeenKeys
from reprod_log.recording.recorder import Recorder

PATHS = [f"layer{i}.weight" for i in range(10)]


def record_steps(recorder: Recorder, steps: range) -> None:
    rng = np.random.default_rng(steps[0])
    for step in steps:
        for path in PATHS:
            recorder.add(Key(path, "gradient", step, role="raw"), rng.normal(size=4))
        recorder.end_step()


@pytest.mark.parametrize("every", [1, 10])
def test_memory_does_not_grow_with_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    # The tensors that a later one is compared with are bounded; here the bound is reached at once.
    monkeypatch.setattr("reprod_log.recording.folder._MOST_PLACES", 100)
    recorder = Recorder(tmp_path / "long")
    record_steps(recorder, range(0, 200 * every, every))
    tracemalloc.start()
    try:
        record_steps(recorder, range(200 * every, 1000 * every, every))
        # What other tests left behind may be collected late.
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(recorder.close()) == 1000 * len(PATHS)
    # 8,000 entries; the names of 800 shards are kept for the manifest.
    assert grown < 40 * 800 * len(PATHS)


def test_the_same_key_is_refused_whenever_it_comes_again(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "twice")
    record_steps(recorder, range(0, 30, 3))
    with pytest.raises(ValueError, match="step27/gradient/layer0.weight:raw' was recorded twice"):
        recorder.add(Key(PATHS[0], "gradient", 27, role="raw"), np.zeros(1))
    with pytest.raises(ValueError, match="step0/"):
        recorder.add(Key(PATHS[0], "gradient", 0, role="raw"), np.zeros(1))
    recorder.add(Key(PATHS[0], "gradient", 1, role="raw"), np.zeros(1))
    recorder.close()


@pytest.mark.parametrize("steps", [[0, 1, 2, 3], [0, 10, 20, 25, 30, 35], [5, 3, 4, 6, 1], [None], [7, 8, 2, 9, 10, 0]])
def test_every_key_is_new_once(steps: list[int | None]) -> None:
    seen = SeenKeys()
    keys = [Key("fc", "forward", step, 0, role) for step in steps for role in ("output", "input.0")]
    assert all(seen.add(key) for key in keys)
    assert not any(seen.add(key) for key in keys)
    assert seen.add(Key("fc", "forward", 99, 0, "output"))
    assert seen.add(Key("fc", "forward", steps[0], 1, "output"))


def test_equal_tensors_are_stored_once_while_they_come_back(tmp_path: Path) -> None:
    frozen = np.arange(50_000, dtype=np.float64)
    recorder = Recorder(tmp_path / "frozen")
    for step in range(20):
        recorder.add(Key("frozen.weight", "parameter", step), frozen)
        recorder.end_step()
    recording = recorder.close()
    assert all(np.array_equal(entry.array(), frozen) for entry in recording.entries)
    assert sum(file.stat().st_size for file in (tmp_path / "frozen").rglob("*.safetensors")) < 2 * frozen.nbytes
