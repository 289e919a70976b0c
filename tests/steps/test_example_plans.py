"""AlexNet and FNet as plans, right and as published."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import align_example, cause

from reprod_log.verdict import Status


def test_alexnet_is_aligned_in_every_step(tmp_path: Path) -> None:
    found = align_example("alexnet", tmp_path / "out", "--report", str(tmp_path / "report.html"), code=0)
    assert list(found) == [
        "forward", "metric", "loss", "backward", "training", "data", "optimizer", "lr", "regularization", "inference",
    ]  # fmt: skip
    sides = {(one.reference.provenance.framework, one.candidate.provenance.framework) for one in found.values()}
    assert sides == {("torch", "paddle"), ("paddle", "paddle")}
    assert len({one.reference.provenance.extra["fake_data"] for one in found.values()}) == 1
    assert found["backward"].policy.name == "calibrated"
    assert not [finding for one in found.values() for finding in one.doubts]
    assert (tmp_path / "report_steps" / "backward.html").is_file()


@pytest.mark.whole
def test_alexnet_as_published_has_a_schedule_that_never_steps(tmp_path: Path) -> None:
    found = align_example("alexnet", tmp_path, "--as-published", "--only", "lr", "--only", "backward", code=4)
    assert found["lr"].status is Status.UNPROVEN
    assert cause(found["lr"]) == "the learning rate lr/schedule:group0 never changes"
    assert [one.key for one in found["backward"].verdict.judgements] == [f"loss_{index}" for index in range(5)]


@pytest.mark.whole
def test_fnet_is_aligned_over_all_steps_of_three_schedules(tmp_path: Path) -> None:
    found = align_example("fnet", tmp_path, "--only", "lr", "--only", "backward", code=0)
    assert len(found["lr"].verdict.judgements) == 3 * 1024


def test_fnet_as_published_names_its_mistakes(tmp_path: Path) -> None:
    """The third, in its schedule, is in examples/test_reproductions_judged.py."""
    found = align_example("fnet", tmp_path, "--as-published", "--only", "published", "--only", "old-adamw", code=1)
    assert found["published"].status is Status.UNPROVEN
    assert cause(found["published"]) == "torch was compared with itself; other steps compare torch with paddle"
    assert not found["old-adamw"].passed
    assert found["old-adamw"].first_divergence is not None
    assert found["old-adamw"].first_divergence.key.phase == "update"
