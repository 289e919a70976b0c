"""align_models with its arrays in files: the same verdicts, measurements and causes to the last digit as in memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from tests.recording.test_spool import Full

from reprod_log import align_models
from reprod_log.alignment import Alignment
from reprod_log.errors import UsageError, WriteFailed
from reprod_log.experiments import need
from reprod_log.recording import spool as spools

WIDTH = 48
ROWS = np.random.default_rng(0).standard_normal((32, WIDTH)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 5, 32)


def reference() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 5)
    )


def candidate(epsilon: float = 1e-5) -> Any:
    paddle.seed(0)
    norm = paddle.nn.LayerNorm(WIDTH, epsilon=epsilon)
    return paddle.nn.Sequential(paddle.nn.Linear(WIDTH, WIDTH), norm, paddle.nn.ReLU(), paddle.nn.Linear(WIDTH, 5))


def aligned(spool: Path | None = None, *, epsilon: float = 1e-5, decay: float = 0.01, **options: Any) -> Alignment:
    return align_models(
        reference(),
        candidate(epsilon),
        (ROWS,),
        targets=LABELS,
        loss=(torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy),
        optimizer=(
            lambda model: torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01),
            lambda model: paddle.optimizer.AdamW(1e-3, parameters=model.parameters(), weight_decay=decay),
        ),
        steps=2,
        threads=1,
        spool=spool,
        **options,
    )


def told(alignment: Alignment) -> dict[str, Any]:
    """All that a report knows, but for the time at which it was made and the note about the need."""
    found = alignment.to_dict()
    for side in ("reference", "candidate"):
        del found[side]["provenance"]["time"]
        for name in ("notes", "note_ids"):
            found[side].pop(name, None)
    return found


@pytest.mark.parametrize(
    "planted",
    [
        {},
        {"decay": 0.5},
        pytest.param({"epsilon": 1e-3}, marks=pytest.mark.whole),
    ],
    ids=["right", "decay", "epsilon"],
)
def test_verdict_measurements_and_causes_are_those_of_memory(
    tmp_path: Path, planted: dict[str, float], request: pytest.FixtureRequest
) -> None:
    if "decay" in planted:
        request.getfixturevalue("weights_by_name")
    in_memory, spooled = aligned(**planted), aligned(tmp_path, **planted)
    assert in_memory.passed is not bool(planted)
    assert told(spooled) == told(in_memory)


@pytest.mark.usefixtures("weights_by_name")
def test_many_arrays_go_to_a_usual_folder_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(need, "_KEPT_IN_MEMORY", 1000)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    said: list[str] = []
    found = aligned(progress=lambda what, done, total: said.append(what))
    assert found.passed
    assert any("the runs need about" in str(note) for note in found.reference.notes)
    told_first = next(one for one in said if "the runs need about" in one)
    assert "quick=True" in told_first
    assert "detailed=1" in told_first


@pytest.mark.usefixtures("weights_by_name")
def test_nothing_to_tell_where_little_is_needed() -> None:
    assert not any("need" in str(note) for note in aligned().reference.notes)


def test_a_disk_that_is_full_ends_in_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", Full(40_000))
    with pytest.raises(WriteFailed, match="No space left on device"):
        aligned(tmp_path)


@pytest.mark.usefixtures("weights_by_name")
def test_budget_keeps_as_much_as_it_has_room_for_and_the_notes_list_what_is_missing(tmp_path: Path) -> None:
    whole = aligned(tmp_path, budget=1 << 30)
    assert not any("budget=" in str(note) for note in whole.reference.notes)
    fewer = aligned(tmp_path, budget=1_700_000)
    assert fewer.passed
    note = next(str(one) for one in fewer.reference.notes if "budget=" in str(one))
    assert "everything is kept of the first 1 step, and of the others only losses and rates" in note
    steps = {row.key.step for row in fewer.comparison.rows if row.key.phase == "gradient" and not row.key.run}
    assert steps == {0}
    assert {row.key.step for row in fewer.comparison.rows if row.key.phase == "loss"} >= {0, 1}


def test_gradients_are_put_in_unless_one_step_alone_is_too_much() -> None:
    whole = need.Need(weights=100, activations=10, steps=5, trains=True, updates=True, injected=True)
    kept = [whole.within(budget) for budget in (None, 40_000, 15_000, 7_000)]
    assert [(one.steps, one.injected) for one in kept] == [(5, True), (5, True), (2, True), (1, False)]
    notes = [" ".join(map(str, one.reduced_from(whole, 1))) for one in kept]
    assert ["gradients" in text for text in notes] == [False, False, False, True]


def test_budget_without_room_for_one_step_is_refused_before_anything_runs(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(UsageError, match=r"budget=1000 has no room .* with one step in full and quick=True"):
        aligned(tmp_path, budget=1000, progress=lambda what, done, total: said.append(what))
    assert said == []


def test_budget_is_kept_to_where_the_estimate_was_too_low(tmp_path: Path) -> None:
    spool = spools.Spool(tmp_path, most=3 * ROWS.nbytes)
    kept = [spool.keep(ROWS + place) for place in range(3)]
    with pytest.raises(WriteFailed, match=f"budget={3 * ROWS.nbytes} is used up"):
        spool.keep(ROWS + 3)
    assert np.array_equal(kept[2], ROWS + 2)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
from pathlib import Path
from tests.alignment.test_spooled_runs import aligned
from reprod_log import align
from reprod_log.recording import Recording
from reprod_log.errors import WriteFailed
import numpy as np
try:
    aligned(Path(sys.argv[1]))
except WriteFailed as error:
    print("spool:", error)
try:
    Recording.from_arrays({"x": np.zeros(1_000_000)}).save(Path(sys.argv[1]) / "recording.safetensors")
except WriteFailed as error:
    print("recording:", error)
"""


def test_files_that_really_cannot_grow_end_in_an_error_and_leave_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), "100000"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("spool: the disk refused the arrays of the runs")
    assert "File too large" in first
    assert second.startswith("recording: ")
    assert list(tmp_path.iterdir()) == []


def test_neither_memory_nor_disk_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(need, "_KEPT_IN_MEMORY", 1000)
    monkeypatch.setattr(spools, "free_bytes", lambda place: 10)
    monkeypatch.setattr(need, "free_memory", lambda: 400_000)
    with pytest.raises(UsageError, match=r"about .* for their arrays .*quick=True.* spool=a folder"):
        aligned()


@pytest.mark.usefixtures("weights_by_name")
def test_the_need_is_near_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs: list[Any] = []
    spooled: list[Any] = []
    of, make = need.Need.of, spools.Spool
    monkeypatch.setattr(need.Need, "of", lambda *args: needs.append(of(*args)) or needs[0])
    monkeypatch.setattr(spools, "Spool", lambda *args: spooled.append(make(*args)) or spooled[0])
    monkeypatch.setattr(spools, "_SPOOLED_FROM", 0)
    aligned(tmp_path)
    assert 0.7 < needs[0].arrays / spooled[0].written < 1.5
