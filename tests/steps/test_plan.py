"""Plans: order, stop, errors of a side, both ways of running, and the command around them."""

import json
from pathlib import Path

import numpy as np
import pytest

from reprod_log import Alignment, load
from reprod_log.cli import run
from reprod_log.errors import UsageError
from reprod_log.steps.plan import Options, Plan, Step
from reprod_log.steps.processes import run_plan


def step(subject: str, **more: object) -> Step:
    return Step(subject, lambda: 1.0, lambda: 1.0, **more)  # type: ignore[arg-type]


def test_built_in_orders_sort_the_steps() -> None:
    plan = Plan(tuple(step(name) for name in ("training", "backward", "loss", "lr", "data", "metric", "forward")))
    guides = [one.title for one in plan.ordered("guides").steps]
    assert guides == ["data", "forward", "metric", "loss", "lr", "backward", "training"]
    prod = [one.title for one in plan.ordered("alexnet-prod").steps]
    assert prod == ["forward", "metric", "loss", "backward", "training", "data", "lr"]
    own = [one.title for one in plan.ordered(("lr", "loss")).steps]
    assert own[:2] == ["lr", "loss"]


def test_steps_need_names_of_their_own() -> None:
    with pytest.raises(UsageError, match="'loss' is used twice"):
        Plan((step("loss"), step("loss")))
    assert len(Plan((step("loss"), step("loss", name="other loss"))).steps) == 2


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(UsageError, match="compare nothing"):
        Plan(())
    with pytest.raises(UsageError, match="no step is called 'learning'"):
        step("learning")
    with pytest.raises(UsageError, match="lr has no keyword 'epochs'"):
        step("lr", arguments={"epochs": 90})
    with pytest.raises(UsageError, match="no order is called 'mine'"):
        Plan((step("loss"),)).ordered("mine")


PLAN = """
import os
import numpy as np
import side_values
from reprod_log.steps.fake_data import fake_data
from reprod_log.steps.plan import Plan, Step

def plan(options):
    data = fake_data(options.folder / "data.npz", lambda random: {"x": random.random(3)})

    def accuracy():
        print("said by a side")
        return {"top1": 0.5}

    return Plan((
        Step("metric", accuracy, accuracy),
        Step("loss", lambda: side_values.LOSS, lambda: side_values.LOSS + (0.1 if options.as_published else 0.0)),
        Step("training", lambda: 1e8 + os.getpid(), lambda: 1e8 + os.getpid(), {"tolerance": 1e7}),
        Step("lr", lambda: [0.1, 0.01], lambda: [0.1, 0.01], {"steps": 2}),
    ), title="made plan", data=data)
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.py"
    path.write_text(PLAN)
    # A module beside the plan, as settings and models are.
    (tmp_path / "side_values.py").write_text("LOSS = 2.0\n")
    return path


def options(plan_file: Path, **more: bool) -> Options:
    return Options(folder=plan_file.parent / "out", **more)


def test_plan_runs_each_side_in_a_process_of_its_own(plan_file: Path) -> None:
    result = run_plan(plan_file, options(plan_file))
    assert result.passed
    row = result.steps[2].alignment
    assert row is not None
    measured = row.comparison.rows[0].measurement
    assert measured is not None
    # The score of this step is the process id.
    assert measured.reference.mean != measured.candidate.mean


def test_plan_runs_together_when_asked(plan_file: Path) -> None:
    result = run_plan(plan_file, options(plan_file), together=True)
    assert result.passed
    assert result.steps[2].alignment is not None
    measured = result.steps[2].alignment.comparison.rows[0].measurement
    assert measured is not None
    assert measured.reference.mean == measured.candidate.mean


def test_results_are_saved_with_the_hash_of_the_data(plan_file: Path) -> None:
    result = run_plan(plan_file, options(plan_file))
    folder = result.folder
    saved = Alignment.load(folder / "loss" / "alignment.json")
    assert saved.passed
    hashes = {load(folder / "loss" / f"{side}.safetensors").provenance.data_hash for side in ("reference", "candidate")}
    assert hashes == {load(folder / "data.npz").provenance.data_hash}
    assert json.loads((folder / "plan.json").read_text())["passed"] is True
    assert "said by a side" in (folder / "candidate.log").read_text()


def test_plan_goes_on_after_a_failure_unless_told_to_stop(plan_file: Path) -> None:
    on = run_plan(plan_file, options(plan_file, as_published=True))
    assert [one.passed for one in on.steps] == [True, False, True, True]
    stopped = run_plan(plan_file, options(plan_file, as_published=True), stop=True)
    assert [one.skipped for one in stopped.steps] == [False, False, True, True]
    assert not stopped.passed
    # What an earlier run left does not pass for this one's.
    assert not (stopped.folder / "lr" / "alignment.json").exists()


def test_plans_of_two_folders_keep_their_own_modules(tmp_path: Path) -> None:
    for name, loss in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.py").write_text(f"LOSS = {loss}\n")
        (tmp_path / name / "plan.py").write_text(
            "from dataclasses import dataclass\nfrom settings import LOSS\n"
            "from reprod_log.steps.plan import Plan, Step\n"
            "@dataclass\nclass Side:\n    loss: float\n"
            "plan = Plan((Step('loss', lambda: Side(LOSS).loss, lambda: Side(LOSS).loss),))\n"
        )
    seen = []
    for name in ("one", "two"):
        result = run_plan(tmp_path / name / "plan.py", Options(folder=tmp_path / "out"), together=True)
        assert result.steps[0].alignment is not None
        measured = result.steps[0].alignment.comparison.rows[0].measurement
        assert measured is not None
        seen.append(measured.reference.mean)
    assert seen == [1.0, 2.0]


def test_only_the_named_steps_are_done(plan_file: Path) -> None:
    result = run_plan(plan_file, options(plan_file), only=["lr", "loss"])
    assert [one.name for one in result.steps] == ["loss", "lr"]
    with pytest.raises(UsageError, match="no step 'los'"):
        run_plan(plan_file, options(plan_file), only=["los"])


BROKEN = """
import os
from reprod_log.steps.plan import Plan, Step

def raises():
    raise ValueError("no weights here")

plan = Plan((
    Step("metric", lambda: 1.0, raises),
    Step("loss", lambda: 1.0, lambda: 1.0),
    Step("training", lambda: 1.0, lambda: os._exit(7)),
    Step("lr", lambda: [0.1], lambda: [0.1], {"steps": 1}),
))
"""


def test_side_that_raises_fails_its_step_and_not_the_others(tmp_path: Path) -> None:
    (tmp_path / "plan.py").write_text(BROKEN)
    result = run_plan(tmp_path / "plan.py", Options(folder=tmp_path / "out"))
    assert str(result.steps[0].problem) == "candidate: ValueError: no weights here"
    assert result.steps[1].passed
    # A process that dies takes the later steps with it, and says so.
    assert "its process ended with code 7" in str(result.steps[2].problem)
    assert "its process ended with code 7" in str(result.steps[3].problem)
    assert not result.passed


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run(["align", *map(str, arguments)])
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def test_command_prints_one_table_of_80_columns(
    plan_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder = plan_file.parent / "out"
    code, out, _ = answer(capsys, plan_file, "--output", folder)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "ALIGNED: 4 of 4 steps of made plan pass"
    assert lines[1].split("  ")[0] == "step"
    named = [line.split()[:3] for line in lines if line[:1].isdigit()]
    assert named == [
        ["1", "metric", "PASS"],
        ["2", "loss", "PASS"],
        ["3", "training", "PASS"],
        ["4", "lr", "PASS"],
    ]
    assert max(len(line.rstrip()) for line in lines[:-1]) <= 80


def test_command_names_first_divergence_and_leaves_with_1(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, plan_file, "--as-published", "--stop", "-o", plan_file.parent / "out")
    assert code == 1
    assert out.startswith("NOT ALIGNED: 1 of 4 steps of made plan pass")
    assert "step 0 · loss" in out
    assert "SKIPPED" in out


def test_report_of_a_plan_has_every_step(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = plan_file.parent / "out"
    reports = ["--report", folder / "all.html", "--report", folder / "all.md"]
    code, _, _ = answer(capsys, plan_file, "-o", folder, *reports)
    assert code == 0
    page = (folder / "all.html").read_text()
    assert 'href="all_steps/loss.html"' in page
    assert (folder / "all_steps" / "loss.html").is_file()
    text = (folder / "all.md").read_text()
    assert "| loss | ✓ PASS |" in text
    assert "<summary>lr</summary>" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "not a file"),
        ("x = 1", "has no plan"),
        ("plan = lambda options: 3", "has no plan"),
        ("import nowhere_to_be_found", "could not be loaded: ModuleNotFoundError"),
        ("from reprod_log.steps.plan import Plan\nplan = Plan(())", "compare nothing"),
    ],
)
def test_unusable_plan_leaves_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "plan.py").write_text(content)
    code, _, err = answer(capsys, tmp_path / "plan.py", "-o", tmp_path / "out")
    assert code == 2
    assert said in err


def test_nothing_in_common_leaves_with_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.py").write_text(
        "from reprod_log.steps.plan import Plan, Step\n"
        "plan = Plan((Step('metric', lambda: {'a': 1.0}, lambda: {'b': 1.0}),))\n"
    )
    code, _, _ = answer(capsys, tmp_path / "plan.py", "-o", tmp_path / "out")
    assert code == 5


def test_unknown_report_suffix_leaves_with_2(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = answer(capsys, plan_file, "-o", plan_file.parent / "out", "--report", "x.pdf")
    assert code == 2
    assert ".html or .md" in err


def test_arrays_of_a_side_may_be_a_recording(tmp_path: Path) -> None:
    (tmp_path / "plan.py").write_text(
        "import numpy as np\nfrom reprod_log import Recording\nfrom reprod_log.steps.plan import Plan, Step\n"
        "make = lambda: Recording.from_arrays({'loss_0': np.float32(2.5)})\n"
        "plan = Plan((Step('backward', make, make),))\n"
    )
    result = run_plan(tmp_path / "plan.py", Options(folder=tmp_path / "out"))
    assert result.passed
    stored = load(tmp_path / "out" / "backward" / "reference.safetensors")
    assert np.array_equal(stored["loss_0"].array(), np.float32(2.5))
