"""The same alignment, byte for byte, whoever measures: one thread, several, other processes, a Dask cluster."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from reprod_log import align
from reprod_log.cli import run
from reprod_log.errors import UsageError
from reprod_log.measure.spread import spread, usable_cores
from reprod_log.recording import Recording
from reprod_log.recording.stores import load


def pair_of_recordings(folder: Path, *, large: int = 3, suffix: str = "") -> tuple[Path, Path]:
    """Two recordings with small and large, equal and different, odd and incomparable entries, also in float64."""
    rng = np.random.default_rng(5)
    ours: dict[str, Any] = {}
    for i in range(700):
        ours[f"step0/forward/small{i}#0:output"] = rng.standard_normal(1 + i % 40).astype(np.float32)
    for i in range(large):
        ours[f"step1/forward/large{i}#0:output"] = rng.standard_normal((1 << 20) + i).astype(np.float32)
    ours["step1/forward/odd#0:output"] = np.array([np.nan, 1.0, np.inf], np.float32)
    ours["step1/forward/word#0:output"] = np.array(["a", "b"])
    ours["step1/forward/shape#0:output"] = np.ones((2, 3), np.float32)
    theirs = {
        key: value if place % 3 == 0 or value.dtype.kind == "U" else value + np.float32(1e-6)
        for place, (key, value) in enumerate(ours.items())
    }
    theirs["step1/forward/shape#0:output"] = np.ones((3, 2), np.float32)
    wide = {f"float64@{key}": v.astype(np.float64) for key, v in ours.items() if "small" in key and v.size < 4}
    paths = folder / f"ours{suffix}", folder / f"theirs{suffix}"
    for path, arrays in zip(paths, ({**ours, **wide}, theirs), strict=True):
        Recording.from_arrays(arrays).save(path)
    return paths


def as_json(alignment: Any) -> str:
    return json.dumps(alignment.to_dict())


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return pair_of_recordings(tmp_path_factory.mktemp("spread"))


@pytest.fixture(scope="module")
def alone(paths: tuple[Path, Path]) -> str:
    return as_json(align(*paths, threads=1))


@pytest.mark.parametrize("threads", [2, 5, None])
def test_the_alignment_is_the_same_on_any_number_of_threads(
    threads: int | None, paths: tuple[Path, Path], alone: str
) -> None:
    assert as_json(align(*paths, threads=threads)) == alone


def test_the_alignment_is_the_same_when_other_processes_measure(paths: tuple[Path, Path], alone: str) -> None:
    with ProcessPoolExecutor(2) as pool:
        assert as_json(align(*paths, executor=pool)) == alone
        # What exists only in this process goes by value.
        held = [Recording(load(path).entries, source="") for path in paths]
        there = json.loads(as_json(align(*held, executor=pool)))
    assert there["comparison"] == json.loads(alone)["comparison"]


def test_an_executor_of_threads_is_as_good_as_any(paths: tuple[Path, Path], alone: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert as_json(align(*paths, executor=pool)) == alone


def test_progress_tells_of_all_bytes_in_order_when_threads_measure(paths: tuple[Path, Path]) -> None:
    told: list[tuple[int, int]] = []
    align(*paths, threads=3, progress=lambda what, done, total: told.append((done, total)))
    # The noise floor is measured in a stage of its own.
    total = told[0][1]
    first = [done for done, of in told if of == total]
    assert first == sorted(set(first))
    assert first[-1] == total > 20_000_000


def test_wrong_numbers_of_workers_are_refused(paths: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="threads=0"):
        align(*paths, threads=0)
    with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="either an executor or"):
        align(*paths, threads=2, executor=pool)


def doubled(batch: Sequence[int]) -> list[int]:
    return [2 * one for one in batch]


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
def test_results_come_in_the_order_of_the_items(threads: int | None) -> None:
    for items in (0, 1, 9, 5000):
        found = spread(doubled, range(items), size=lambda one: one, threads=threads)
        assert found == [2 * one for one in range(items)]


def who(batch: Sequence[int]) -> list[str]:
    return [threading.current_thread().name for _ in batch]


def test_executor_that_is_given_does_the_work() -> None:
    with ThreadPoolExecutor(2, thread_name_prefix="mine") as pool:
        names = spread(who, range(3), size=lambda one: one, executor=pool)
    assert all(name.startswith("mine") for name in names)


def test_cores_are_those_that_the_process_may_use() -> None:
    with mock.patch.object(os, "sched_getaffinity", return_value={0, 3, 5}, create=True):
        assert usable_cores() == 3


def test_an_error_in_one_batch_stops_all_when_threads_measure() -> None:
    def work(items: Any) -> Any:
        if 700 in items:
            raise KeyError("seven hundred")
        return items

    with pytest.raises(KeyError, match="seven hundred"):
        spread(work, range(5000), size=lambda item: 1, threads=2)
    assert spread(work, range(600), size=lambda item: 1, threads=2) == list(range(600))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    os.environ["REPROD_LOG_NO_KERNEL"] = "1"  # slower, so that there is time to kill one
    try:
        with LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs="CRITICAL"
        ) as made:
            yield made
    finally:
        del os.environ["REPROD_LOG_NO_KERNEL"]


def test_the_alignment_is_the_same_when_a_worker_of_a_cluster_dies(cluster: Any, tmp_path: Path) -> None:
    from distributed import Client

    paths = pair_of_recordings(tmp_path, large=16, suffix=".safetensors")
    killed: list[tuple[int, int]] = []
    with Client(cluster, set_as_default=False) as client:
        pids = client.run(os.getpid)
        wanted = json.loads(as_json(align(*paths, executor=client.get_executor(pure=False))))

        def kill_one(what: str, done: int, total: int) -> None:
            if done and not killed:
                killed.append((done, total))
                os.kill(next(iter(pids.values())), signal.SIGKILL)

        got = json.loads(as_json(align(*paths, executor=client.get_executor(pure=False), progress=kill_one)))
        assert killed[0][0] < killed[0][1]
        client.wait_for_workers(2, timeout=60)
        assert set(client.run(os.getpid).values()) != set(pids.values())
    assert got == wanted
    assert got["comparison"]["rows"][0]["key"] == "step0/forward/small0#0:output"


def test_compare_measures_on_a_cluster_when_it_is_given_one(
    cluster: Any, paths: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *map(str, paths), "--dask", cluster.scheduler_address]) == 1
    # But for the next command, which repeats what was typed.
    out, _, _ = capsys.readouterr().out.partition("next: ")
    assert run(["compare", *map(str, paths), "--threads", "1"]) == 1
    assert capsys.readouterr().out.partition("next: ")[0] == out


def test_compare_says_what_is_missing_when_there_is_no_cluster(
    paths: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprod_log.cli.options._SCHEDULER_TIMEOUT", "1s")
    assert run(["compare", *map(str, paths), "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in capsys.readouterr().err
    assert run(["compare", *map(str, paths), "--dask", "nonsense"]) == 2
    err = capsys.readouterr().err
    assert "no Dask scheduler answers at 'nonsense' (ValueError: missing port number" in err
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    assert run(["compare", *map(str, paths), "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "pip install 'reprod_log[dask]'" in capsys.readouterr().err
