"""A recording that was cut short, or lost a part, does not pass as if it were whole."""

from pathlib import Path

import numpy as np
import pytest
import torch

from reprod_log import Alignment, Recording, align, load, watch
from reprod_log.cli import run
from reprod_log.report.first_screen import headline
from reprod_log.verdict import Status


def recorded(path: Path, *, fail_at: int | None = None) -> Path:
    """Three steps of a small model, ended by an exception in the step `fail_at`."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        with watch(model, optimizer=optimizer, save=path):
            for step in range(3):
                model(torch.ones(3, 4) * step).square().mean().backward()
                if step == fail_at:
                    raise RuntimeError("out of patience")
                optimizer.step()
                optimizer.zero_grad()
    except RuntimeError:
        assert fail_at is not None
    return path


@pytest.mark.parametrize("name", ["rec", "rec.npz", "rec.safetensors"])
def test_recording_ended_by_an_exception_says_so(name: str, tmp_path: Path) -> None:
    recording = load(recorded(tmp_path / name, fail_at=2))
    assert not recording.complete
    assert "step 2 was cut short by RuntimeError: out of patience" in map(str, recording.notes)


def test_two_recordings_cut_at_the_same_place_do_not_pass(tmp_path: Path) -> None:
    sides = [recorded(tmp_path / name, fail_at=1) for name in ("a", "b")]
    found = align(*sides)
    assert found.status is Status.INCOMPLETE
    assert not found.passed
    assert headline(found).startswith("INCOMPLETE")
    assert align(*sides, allow_incomplete=True).status is Status.PASS
    assert Alignment.from_dict(found.to_dict()).status is Status.INCOMPLETE
    assert align(recorded(tmp_path / "c"), recorded(tmp_path / "d")).status is Status.PASS


def test_incomplete_side_with_a_difference_fails(tmp_path: Path) -> None:
    cut = load(recorded(tmp_path / "a", fail_at=1))
    other = {str(entry.key): entry.array() * 2 for entry in cut.entries if entry.dtype == "float32"}
    found = align(cut, Recording.from_arrays(other), allow_incomplete=True)
    assert found.status is Status.FAIL


def test_lost_shard_is_named_as_the_cause_of_unmatched_entries(tmp_path: Path) -> None:
    whole, torn = recorded(tmp_path / "a"), recorded(tmp_path / "b")
    lost = sorted((torn / "shards").iterdir())[1]
    lost.unlink()
    found = align(whole, torn)
    assert found.status is Status.FAIL
    first = next(one for one in found.findings if one.kind == "cause")
    assert first.rule == "cut_short"
    assert lost.name in str(first.cause)
    assert str(align(torn, whole).findings[0].cause).startswith("the recording of the reference is incomplete")


def test_exit_code_is_1_unless_incomplete_recordings_are_allowed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    cut = recorded(tmp_path / "a", fail_at=1)
    recorded(tmp_path / "b", fail_at=1)
    saved = tmp_path / "saved.json"
    command = ["compare", str(cut), str(tmp_path / "b"), "--json", str(saved)]
    assert run(command) == 1
    shown = capsys.readouterr().out
    assert "INCOMPLETE" in shown
    assert "--allow-incomplete" in shown
    assert run([*command, "--allow-incomplete"]) == 0
    assert run(["judge", str(saved)]) == 0
    assert run(command) == 1
    assert run(["judge", str(saved)]) == 1
    assert run(["judge", str(saved), "--allow-incomplete"]) == 0


def test_leaving_a_watched_block_early_without_an_error_is_complete(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    for _ in range(1):
        with watch(model, save=tmp_path / "rec"):
            model(torch.ones(1, 2))
            break
    assert load(tmp_path / "rec").complete
    assert np.isfinite(load(tmp_path / "rec").entries[0].array()).all()
