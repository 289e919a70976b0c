"""reprod run: the passes of one recording are of one program, and recording again says what it replaces."""

import sys
from pathlib import Path

import pytest

from reprod_log import load
from reprod_log.cli import WRONG_USE, run
from reprod_log.recording.program import differing_passes, programs_of

SCRIPT = """
import os, sys
import torch
from settings_of_mine import EPS
torch.manual_seed(int(os.environ.get("MY_SEED", "0")))
net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3, eps=EPS))
if "--eval" in sys.argv:
    net.eval()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=float(os.getenv("MY_MOMENTUM") or 0.0))
for _ in range(2):
    opt.zero_grad(); net(torch.ones(2, 4)).square().mean().backward(); opt.step()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MY_SEED", raising=False)
    monkeypatch.delenv("MY_MOMENTUM", raising=False)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "settings_of_mine.py").write_text("EPS = 1e-5\n")
    assert record("train.py") == 0
    return tmp_path


def record(*script: str, options: tuple[str, ...] = ()) -> int:
    sys.modules.pop("settings_of_mine", None)
    return run(["run", *options, "-o", "rec", *script])


WIDE = ("--dtype", "float64")


def test_second_pass_of_the_same_program_is_added(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record("train.py") == 0
    assert capsys.readouterr().out.endswith("next: reprod run --dtype float64 -o rec train.py\n")
    assert record("train.py", options=WIDE) == 0
    recording = load(place / "rec")
    assert recording.runs == ("", "float64")
    known = programs_of(recording)
    assert set(known) == {"", "float64"}
    assert differing_passes(recording) == ()
    assert set(known[""].modules) == {"settings_of_mine"}
    assert {"MY_SEED", "MY_MOMENTUM"} <= set(known[""].environment)
    assert known[""].framework.startswith("torch ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("script", "the script has changed"),
        ("module", "the module settings_of_mine has changed"),
        ("argument", "arguments: '' there, '--eval' now"),
        ("variable", "the environment variable MY_SEED has a different value"),
        ("other variable", "the environment variable MY_MOMENTUM has a different value"),
        ("variable of the framework", "the environment variable TORCH_SOMETHING has a different value"),
    ],
)
def test_second_pass_of_another_program_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: str, said: str
) -> None:
    if change == "variable of the framework":
        monkeypatch.setenv("TORCH_SOMETHING", "0")
        assert record("train.py") == 0
        monkeypatch.setenv("TORCH_SOMETHING", "1")
    if change == "script":
        (place / "train.py").write_text(SCRIPT.replace("lr=0.1", "lr=0.2"))
    if change == "module":
        (place / "settings_of_mine.py").write_text("EPS = 1e-6\n")
    if "variable" in change:
        monkeypatch.setenv("MY_MOMENTUM" if "other" in change else "MY_SEED", "1")
    if change == "variable of the framework":
        monkeypatch.delenv("MY_SEED")
    before = load(place / "rec")
    assert record("train.py", *(["--eval"] if change == "argument" else []), options=WIDE) == WRONG_USE
    told = capsys.readouterr().err
    assert said in told
    assert "Record both again with one command: reprod run --float64 -o rec train.py" in told
    after = load(place / "rec")
    assert (after.runs, len(after)) == (before.runs, len(before))


def test_recording_again_says_what_it_replaces(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record("train.py", options=WIDE) == 0
    assert "replaces" not in capsys.readouterr().out
    assert record("train.py", options=WIDE) == 0
    assert "this replaces the float64 pass that was there" in capsys.readouterr().out
    assert record("train.py") == 0
    shown = capsys.readouterr().out
    assert "this replaces the recording that was there" in shown
    assert "passes: plain, float64" in shown
    assert "next: reprod run --dtype float64 -o rec train.py" in shown
    assert load(place / "rec").runs == ("",)


@pytest.mark.usefixtures("torch_is_loaded")
def test_one_command_records_both_passes(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "train.py").write_text(SCRIPT + "\nprint('steps', sys.argv[1:])\n")
    command = ["run", "--float64", "--steps", "1", "-o", "both", "train.py", "--", "--steps", "7"]
    assert run(command) == 0
    shown = capfd.readouterr().out
    assert shown.count("steps ['--steps', '7']") == 2
    assert "next: reprod compare rec both" in shown
    recording = load(place / "both")
    assert recording.runs == ("", "float64")
    assert recording.steps == (0,)
    assert differing_passes(recording) == ()


@pytest.mark.usefixtures("torch_is_loaded")
def test_plain_pass_that_fails_ends_the_command(place: Path) -> None:
    (place / "train.py").write_text(SCRIPT + "\nsys.exit(7)\n")
    assert run(["run", "--float64", "-o", "both", "train.py"]) == 7


def test_environment_is_left_as_it_was(place: Path) -> None:
    import os

    kind = type(os.environ)
    assert record("train.py", options=WIDE) == 0
    assert type(os.environ) is kind
