"""A hand-in folder is paired by the guides' file names and judged as a whole."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reprod_log import ReprodLogger
from reprod_log.cli import run
from reprod_log.recording import Recording
from reprod_log.recording.stores import save
from reprod_log.steps import SUBJECTS
from reprod_log.steps.hand_in import check_folder
from reprod_log.verdict import Status


def log(path: Path, **values: object) -> None:
    logger = ReprodLogger()
    for key, value in values.items():
        logger.add(key, np.asarray(value))
    logger.save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for side in ("paddle", "ref"):
        log(tmp_path / f"data_{side}.npy", length=100, dataset_0=np.arange(6.0))
        log(tmp_path / f"forward_{side}.npy", logits=np.ones(5, np.float32))
        log(tmp_path / f"metric_{side}.npy", top1=0.75)
        log(tmp_path / f"loss_{side}.npy", loss=2.5)
        log(tmp_path / f"bp_align_{side}.npy", loss_0=2.5, loss_1=2.4)
    log(tmp_path / "train_align_paddle.npy", top1=0.7601)
    log(tmp_path / "train_align_ref.npy", top1=0.761)
    log(tmp_path / "output_training_engine.npy", prob=np.array([0.25, 0.75]))
    log(tmp_path / "output_inference_engine.npy", prob=np.array([0.250004, 0.749996]))
    np.save(tmp_path / "fake_data_paddle.npy", np.ones(3))
    (tmp_path / "forward_diff.log").write_text("[2021/10/13 13:03:05] root INFO: diff check passed\n")
    return tmp_path


def test_steps_are_found_in_the_guides_order_and_pass(folder: Path) -> None:
    found = check_folder(folder)
    assert [step.subject.name for step in found.steps if step.subject] == [
        "data", "forward", "metric", "loss", "backward", "training", "inference",
    ]  # fmt: skip
    assert found.passed
    assert {step.name: step.published for step in found.steps}["forward"] == "passed"
    inference = found.steps[-1]
    assert inference.reference is not None
    assert inference.reference.name == "output_training_engine.npy"


def test_logs_named_by_their_sides_alone_are_a_pair_with_a_name(tmp_path: Path) -> None:
    for side in ("ref", "cand"):
        log(tmp_path / f"{side}.npy", logits=np.ones(5, np.float32))
    (step,) = check_folder(tmp_path).steps
    assert (step.name, step.passed) == ("log", True)


def test_each_step_has_its_own_limit(folder: Path) -> None:
    log(folder / "data_paddle.npy", length=100, dataset_0=np.arange(6.0) + 1e-9)
    log(folder / "train_align_paddle.npy", top1=0.7594)
    log(folder / "metric_paddle.npy", top1=0.7501)
    failed = {step.name for step in check_folder(folder).steps if not step.passed}
    assert failed == {"data", "train_align", "metric"}
    assert check_folder(folder, limits=["mean_abs:0.01"]).passed


def test_missing_partner_fails(folder: Path) -> None:
    (folder / "loss_ref.npy").unlink()
    found = check_folder(folder)
    assert not found.passed
    assert {str(step.problem) for step in found.steps if step.name == "loss"} == {"the reference's log is missing"}


def test_broken_log_fails_and_is_named(folder: Path) -> None:
    (folder / "loss_ref.npy").write_bytes(b"\x93NUMPY broken")
    problems = [str(step.problem) for step in check_folder(folder).steps if step.name == "loss"]
    assert "loss_ref.npy" in problems[0]


def test_sides_may_lie_in_folders_of_their_own(tmp_path: Path) -> None:
    log(tmp_path / "AlexNet_paddle" / "bp_align_paddle.npy", loss_0=1.0)
    log(tmp_path / "AlexNet_torch" / "bp_align_torch.npy", loss_0=1.0)
    log(tmp_path / "torch" / "forward.npy", x=1.0)
    log(tmp_path / "paddle" / "forward.npy", x=1.0)
    found = check_folder(tmp_path)
    assert [step.name for step in found.steps] == ["forward", "AlexNet/bp_align"]
    assert found.passed


def test_two_logs_for_one_side_fail(tmp_path: Path) -> None:
    for name in ("loss_torch.npy", "loss_ref.npy", "loss_paddle.npy"):
        log(tmp_path / name, loss=1.0)
    assert "several logs" in str(check_folder(tmp_path).steps[0].problem)


def test_plain_arrays_of_both_sides_are_compared(folder: Path) -> None:
    np.save(folder / "extra_paddle.npy", np.ones(3))
    np.save(folder / "extra_ref.npy", np.ones(3))
    assert check_folder(folder).passed
    np.save(folder / "extra_ref.npy", np.zeros(3))
    assert not check_folder(folder).passed


def test_command_shows_one_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ALIGNED: 7 of 7 steps pass")
    log(folder / "loss_paddle.npy", loss=2.6)
    assert run(["check", str(folder)]) == 1
    assert "loss: NOT ALIGNED" in capsys.readouterr().out


def test_folder_without_logs_compares_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(tmp_path)]) == 5
    assert "NOTHING COMPARED" in capsys.readouterr().out


def test_every_subject_says_why_its_limits_are_what_they_are() -> None:
    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS) >= 8
    assert all(subject.why and subject.words and subject.limits for subject in SUBJECTS)


def recorded(path: Path, *, complete: bool = True) -> None:
    values = {f"step{n}/loss/loss": np.array(2.0 - n) for n in range(2)}
    save(replace(Recording.from_arrays(values), complete=complete), path)


def test_recording_that_was_cut_short_is_incomplete(tmp_path: Path) -> None:
    recorded(tmp_path / "forward_ref")
    recorded(tmp_path / "forward_paddle", complete=False)
    (step,) = check_folder(tmp_path).steps
    assert step.status is Status.INCOMPLETE
    assert not step.passed
    assert run(["check", str(tmp_path)]) == 1


def test_shards_of_a_recording_are_not_logs(tmp_path: Path) -> None:
    for side in ("ref", "paddle"):
        recorded(tmp_path / f"bp_align_{side}")
    found = check_folder(tmp_path)
    assert [(step.name, step.reference) for step in found.steps] == [("bp_align", tmp_path / "bp_align_ref")]
    assert found.unused == ()


def test_benchmark_is_a_reference(tmp_path: Path) -> None:
    log(tmp_path / "train_align_benchmark.npy", top1=0.761)
    log(tmp_path / "train_align_paddle.npy", top1=0.7605)
    (step,) = check_folder(tmp_path).steps
    assert step.reference == tmp_path / "train_align_benchmark.npy"
    assert step.alignment is not None


def test_absent_steps_and_files_that_were_not_used_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("paddle", "ref"):
        (folder / f"metric_{side}.npy").unlink()
    log(folder / "forward.npy", logits=np.ones(2))
    found = check_folder(folder)
    assert found.absent == ("metric",)
    assert found.unused == ("fake_data_paddle.npy", "forward.npy")
    run(["check", str(folder)])
    shown = capsys.readouterr().out
    assert "no logs of these steps: metric" in shown
    assert "forward.npy" in shown


@pytest.mark.parametrize("kind", ["recording", "other files"])
def test_folder_that_is_not_a_hand_in_is_refused(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "place"
    if kind == "recording":
        recorded(place)
    else:
        place.mkdir()
        (place / "notes.txt").write_text("text")
    assert run(["check", str(place)]) == 2
    assert "reprod show" in (shown := capsys.readouterr().err) or "not a submission" in shown
