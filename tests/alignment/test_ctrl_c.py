"""Ctrl-C in real processes: what was complete by then can be looked at, and it never passes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from forks import Command, run_in_forks
from reprod_log import load
from reprod_log.alignment import Alignment
from reprod_log.recording import Recording
from reprod_log.verdict import Status
from sampling import WHOLE

STOP = """
import os, signal, sys
from reprod_log.progress import shown
stopped = []
def stop_in(what, done, total, *, wanted, at):
    if what.startswith(wanted) and done >= at and not stopped:
        stopped.append(what)
        os.kill(os.getpid(), signal.SIGINT)
"""
MODELS = (
    STOP
    + """
import numpy as np, paddle, torch
from reprod_log import align_models
torch.manual_seed(0)
reference = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
norm = paddle.nn.LayerNorm(8, epsilon=float(sys.argv[2]))
candidate = paddle.nn.Sequential(paddle.nn.Linear(6, 8), norm, paddle.nn.Tanh(), paddle.nn.Linear(8, 3))
rng = np.random.default_rng(0)
def aligned():
    return align_models(
        reference, candidate, (rng.standard_normal((4, 6)).astype("float32"),), targets=rng.integers(0, 3, 4),
        loss=(torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy),
        optimizer=(
            lambda model: torch.optim.SGD(model.parameters(), 0.1),
            lambda model: paddle.optimizer.SGD(0.1, parameters=model.parameters()),
        ),
        steps=2, allow_unproven=True, progress=lambda *now: stop_in(*now, wanted=sys.argv[1], at=0),
    )
"""
)
CAUGHT = """
try:
    aligned()
except KeyboardInterrupt as stop:
    stop.result.save("partial.json")
"""
PRINTED = """
try:
    aligned()
except KeyboardInterrupt as stop:
    print(stop.result, stop)
"""
TRAINING = """
import os, signal, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(9):
    if step == 2:
        os.kill(os.getpid(), signal.SIGINT)
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
STOPS = {
    "layers": (CAUGHT, "candidate's layers one by one", "1e-5"),
    "gradients": ("aligned()", "candidate with the reference's gradients", "1e-5"),
    "float64": (PRINTED, "candidate in float64", "1e-5"),
} | (
    {
        "layers of a wrong port": (CAUGHT, "candidate's layers one by one", "1e-3"),
        "proof": (CAUGHT, "proving", "1e-3"),
    }
    if WHOLE
    else {}
)
"""How a program goes on, the stage in which it is stopped, and the candidate's epsilon."""
COMPARE = (
    STOP
    + """
from reprod_log.cli import main
place = sys.argv.pop(1)
times = []
def now(what, done, total):
    # Measuring is the first stage that compares, the noise floor the second.
    times.append(1) if done == 0 else None
    if len(times) == int(place):
        stop_in(what, done, total, wanted="comparing", at=20_000_000)
with shown(now):
    main()
"""
)


def ran(code: str, *arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        # Whoever runs the tests in the background may have Ctrl-C ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        check=False,
    )


Stopped = dict[str, tuple[subprocess.CompletedProcess[str], Path]]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Every program that needs a framework as it ended, and its folder."""
    folders = {name: tmp_path_factory.mktemp("stopped") for name in (*STOPS, "run")}
    (folders["run"] / "train.py").write_text(TRAINING, encoding="utf-8")
    quiet = {"PYTHONWARNINGS": "ignore"}
    commands = [Command(rest, folders[name], quiet, MODELS + end) for name, (end, *rest) in STOPS.items()]
    commands.append(Command(["run", "-o", "rec", "train.py"], folders["run"], quiet))
    done = run_in_forks(*commands, loaded=["paddle"])
    return {name: (one, folders[name]) for name, one in zip(folders, done, strict=True)}


@pytest.mark.parametrize(
    ("name", "status"),
    [("layers", Status.UNPROVEN), pytest.param("layers of a wrong port", Status.FAIL, marks=pytest.mark.whole)],
)
def test_passes_of_both_sides_are_judged_and_never_pass(stopped: Stopped, name: str, status: Status) -> None:
    done, folder = stopped[name]
    assert done.returncode == 0, done.stderr
    partial = Alignment.load(folder / "partial.json")
    assert (partial.status, partial.passed) == (status, False)
    assert partial.doubts[0].rule == "stopped"
    said = str(partial.doubts[0].cause)
    assert "candidate in float64" in said
    # The layers of the reference alone are no evidence without those of the candidate.
    assert "one by one" not in said
    assert {one.key.run for one in partial.comparison.rows} == {"", "float64"}


def test_program_that_catches_nothing_ends_as_by_ctrl_c(stopped: Stopped) -> None:
    done, _ = stopped["gradients"]
    assert done.returncode == -signal.SIGINT
    last = done.stderr.splitlines()[-1]
    assert "stopped by Ctrl-C: only these passes are complete" in last
    assert "candidate's layers one by one" in last
    assert "gradients" not in last


def test_nothing_is_judged_before_both_sides_ran_in_float64(stopped: Stopped) -> None:
    done, _ = stopped["float64"]
    assert done.stdout.startswith("None stopped by Ctrl-C: too few passes are complete")
    assert "reference in float64" in done.stdout


@pytest.mark.whole
def test_proof_that_is_stopped_leaves_the_causes_unproven(stopped: Stopped) -> None:
    done, folder = stopped["proof"]
    assert done.returncode == 0
    partial = Alignment.load(folder / "partial.json")
    assert (partial.status, partial.doubts[0].rule) == (Status.FAIL, "stopped")
    named = [one for one in partial.findings if "eps" in str(one.cause)]
    assert [one.confidence for one in named] == ["hint"]


def test_run_keeps_the_steps_that_were_complete(stopped: Stopped) -> None:
    done, folder = stopped["run"]
    assert done.returncode == 130
    assert "the script was interrupted" in done.stderr
    kept = load(folder / "rec")
    assert (kept.steps, kept.complete) == ((0, 1), False)


@pytest.fixture
def sides(tmp_path: Path) -> Path:
    """Two recordings with a float64 pass, of which each batch of measuring takes one entry."""
    rng = np.random.default_rng(0)
    truth = {f"step0/forward/layer{place}#0:output": rng.standard_normal(1_500_000) for place in range(4)}
    for name in ("ref", "cand"):
        plain = {key: array.astype(np.float32) for key, array in truth.items()}
        wide = {f"float64@{key}": array for key, array in truth.items()}
        Recording.from_arrays({**plain, **wide}).save(tmp_path / f"{name}.safetensors")
    return tmp_path


@pytest.mark.parametrize(("place", "said"), [(1, "of 8 pairs were compared"), (2, "all pairs were compared")])
def test_compare_answers_with_what_it_measured_and_leaves_with_130(sides: Path, place: int, said: str) -> None:
    options = ["--allow-unproven", "--json", "partial.json", "--report", "partial.md", "--threads", "1"]
    done = ran(COMPARE, str(place), "compare", "ref.safetensors", "cand.safetensors", *options, cwd=sides)
    assert done.returncode == 130, done.stderr
    assert done.stdout.startswith("NOT PROVEN")
    assert said in done.stdout
    assert said in (sides / "partial.md").read_text(encoding="utf-8")
    partial = Alignment.load(sides / "partial.json")
    assert (partial.status, partial.passed) == (Status.UNPROVEN, False)
    assert 0 < len(partial.verdict.judgements) < 4 + place


def test_plan_keeps_the_steps_before_and_skips_those_after(tmp_path: Path) -> None:
    (tmp_path / "plan.py").write_text(
        textwrap.dedent("""
        import os, signal
        import numpy as np
        from reprod_log.recording import Recording
        from reprod_log.steps.plan import Plan, Step

        def side():
            return Recording.from_arrays({"loss": np.arange(3.0)})

        def stopped():
            os.kill(os.getpid(), signal.SIGINT)

        plan = Plan(
            tuple(Step("loss", one, side, name=name) for name, one in (("a", side), ("b", stopped), ("c", side))),
            apart=False,
        )
        """),
        encoding="utf-8",
    )
    done = ran("from reprod_log.cli import main; main()", "plan", "plan.py", "-o", "out", cwd=tmp_path)
    assert done.returncode == 130, done.stderr + done.stdout
    steps = json.loads((tmp_path / "out" / "plan.json").read_text(encoding="utf-8"))["steps"]
    assert [one["status"] for one in steps][1:] == ["NOTHING", "SKIPPED"]
    assert steps[1]["problem"] == "stopped by Ctrl-C"
    assert "stopped by Ctrl-C" in done.stdout
    assert (tmp_path / "out" / "a" / "alignment.json").exists()
