"""The four reproductions as plans: torch in one process, paddle in another, and a third that imports neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from reprod_log import Alignment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# The comparing process fails if it imports a framework.
GUARDED = """
import sys

class Tripwire:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "paddle"):
            raise ImportError(f"{name} must not be imported here")

sys.meta_path.insert(0, Tripwire())
from reprod_log.cli import run
sys.exit(run(sys.argv[1:]))
"""


def align_example(name: str, folder: Path, *flags: str, code: int) -> dict[str, Alignment]:
    """The alignments of an example's plan by step, run as a user would run it."""
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, "align", str(EXAMPLES / name / "plan.py"), "-o", str(folder), *flags],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    told = json.loads((folder / "plan.json").read_text())["steps"]
    return {step["name"]: Alignment.load(folder / step["alignment"]) for step in told}


def cause(alignment: Alignment) -> str:
    return alignment.findings[0].cause if alignment.findings else ""


def test_alexnet_is_aligned_in_every_step(tmp_path: Path) -> None:
    found = align_example("alexnet", tmp_path / "out", "--report", str(tmp_path / "report.html"), code=0)
    assert list(found) == [
        "forward", "metric", "loss", "backward", "training", "data", "optimizer", "lr", "regularization", "inference",
    ]  # fmt: skip
    sides = {(one.reference.provenance.framework, one.candidate.provenance.framework) for one in found.values()}
    assert sides == {("torch", "paddle"), ("paddle", "paddle")}
    assert len({one.reference.provenance.extra["fake_data"] for one in found.values()}) == 1
    assert found["backward"].policy.name == "calibrated"
    assert not [finding for one in found.values() for finding in one.findings if finding.kind == "suspicious pass"]
    assert (tmp_path / "report_steps" / "backward.html").is_file()


def test_alexnet_as_published_passes_a_schedule_that_never_steps(tmp_path: Path) -> None:
    found = align_example("alexnet", tmp_path, "--as-published", "--only", "lr", "--only", "backward", code=0)
    assert cause(found["lr"]) == "the learning rate lr/schedule:group0 never changes"
    assert [one.key for one in found["backward"].verdict.judgements] == [f"loss_{index}" for index in range(5)]


def test_fnet_is_aligned_over_all_steps_of_three_schedules(tmp_path: Path) -> None:
    found = align_example("fnet", tmp_path, "--only", "lr", "--only", "backward", code=0)
    assert len(found["lr"].verdict.judgements) == 3 * 1024


def test_fnet_as_published_names_its_three_mistakes(tmp_path: Path) -> None:
    only = ("--only", "published", "--only", "old-adamw", "--only", "lr")
    found = align_example("fnet", tmp_path, "--as-published", *only, code=1)
    assert found["published"].passed
    assert cause(found["published"]) == "torch was compared with itself"
    assert not found["lr"].passed
    assert "num_cycles" in cause(found["lr"])
    assert not found["old-adamw"].passed
    assert found["old-adamw"].first_divergence is not None
    assert found["old-adamw"].first_divergence.key.startswith("step0/update/")


def test_mvf_is_aligned(tmp_path: Path) -> None:
    found = align_example("mvf", tmp_path, "--only", "forward", "--only", "metric", code=0)
    assert "step0/forward/stages.3.2.fusion.time#0:output" in {one.key for one in found["forward"].verdict.judgements}
    assert found["metric"].comparison.rows[0].measurement is not None
    assert found["metric"].comparison.rows[0].measurement.reference.mean > 0


def test_mvf_as_published_cannot_see_a_missing_weight_decay(tmp_path: Path) -> None:
    found = align_example("mvf", tmp_path, "--as-published", "--only", "backward", "--only", "no-decay", code=0)
    for alignment in found.values():
        assert alignment.passed
        assert cause(alignment).startswith("loss_* hardly moves")


def test_discogan_is_aligned(tmp_path: Path) -> None:
    found = align_example("discogan", tmp_path, "--only", "backward", "--only", "losses", code=0)
    assert "step4/loss/loss" in {one.key for one in found["backward"].verdict.judgements}


def test_discogan_as_published_names_the_weights_that_were_loaded_twice(tmp_path: Path) -> None:
    found = align_example("discogan", tmp_path, "--as-published", "--only", "forward", "--only", "losses", code=1)
    said = "the weight generator_A.down1.weight of the candidate holds the values of generator_B.down1.weight"
    assert cause(found["forward"]) == said
    assert not found["losses"].passed
