"""`--json -`: one document on standard output, whatever else is printed; the next command; names that were unified."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reprod_log
from reprod_log import Recording, compare
from reprod_log.cli import run
from reprod_log.cli.app import command

KEY = "step0/forward/layers.0.ln1#0:output"
SCRIPT = """import torch
print("words of the script")
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
model(torch.ones(4, 3)).sum().backward()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ours = {"step0/data/x": np.ones(4), KEY: np.ones(4), "step0/loss/loss": np.array(1.0)}
    Recording.from_arrays(ours).save(tmp_path / "ref.npz")
    theirs = {**ours, "step0/loss/loss": np.array(np.nan)}
    theirs["step0/forward/blocks.0.norm1#0:output"] = theirs.pop(KEY) + 1
    Recording.from_arrays(theirs).save(tmp_path / "cand.npz")
    return tmp_path


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The document that the command prints; its exit code stands in it."""
    capsys.readouterr()
    code = run([*arguments, "--json", "-"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (found["schema"], found["version"]) == ("reprod_log answer", 1)
    assert found["exit_code"] == code
    assert found["command"] == arguments[0]
    return found


def test_comparison_answers_with_both_names_and_what_to_type_next(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answered(capsys, "compare", "ref.npz", "cand.npz", "--rename", "layers.0.ln1=blocks.0.norm1")
    assert (found["status"], found["passed"], found["exit_code"]) == ("FAIL", False, 1)
    first = found["first_divergence"]
    assert first["reference"] == KEY
    assert first["candidate"] == "step0/forward/blocks.0.norm1#0:output"
    assert first["words"] == "step 0 · forward · layers.0.ln1 ↔ blocks.0.norm1 · output"
    assert first["reason"]["id"].startswith("reason.")
    assert found["headline"]["id"] == "headline.causes.behind"
    assert [one["words"] for one in found["failing"]] == [first["words"], "step 0 · loss · loss"]
    assert found["failing"][1]["max_abs"] == "nan"
    typed = "reprod compare ref.npz cand.npz --rename layers.0.ln1=blocks.0.norm1"
    assert found["next"] == f"{typed} --json last.json --report report.html"


def test_entries_of_one_side_have_no_name_on_the_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, "compare", "ref.npz", "cand.npz")
    alone = [(one["reference"], one["candidate"]) for one in found["failing"] if one["status"] == "UNMATCHED"]
    assert alone == [(KEY, None), (None, "step0/forward/blocks.0.norm1#0:output")]


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["show", "ref.npz"], {"entries", "passes", "complete", "next"}),
        (["convert", "ref.npz", "out.npz"], {"written", "entries", "next"}),
        (["doctor"], {"packages", "frameworks", "switches", "next"}),
        (["judge", "saved.json"], {"status", "causes", "next"}),
        (["report", "saved.json"], {"status", "causes", "next"}),
        (["report", "saved.json", "out.md"], {"status", "causes", "written", "next"}),
        (["check", "logs"], {"steps", "status", "headline", "next"}),
        (["check", "empty"], {"next"}),
        (["zoom", "ref.npz", "ref.npz", "-o", "zoom"], {"status", "next"}),
        (["compare", "ref.npz", "nowhere.npz"], {"error"}),
        (["compare", "train.py", "cand.npz"], {"error"}),
    ],
)
def test_every_command_answers(
    arguments: list[str], fields: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["compare", "ref.npz", "cand.npz", "--json", "saved.json"])
    (folder / "logs").mkdir()
    (folder / "empty").mkdir()
    for name in ("ref", "cand"):
        run(["convert", f"{name}.npz", f"logs/forward_{'torch' if name == 'ref' else 'paddle'}.npz"])
    assert fields <= set(answered(capsys, *arguments))


def test_every_command_has_the_option() -> None:
    for name, one in command().commands.items():
        if name not in ("serve", "mcp"):
            assert any("--json" in option.opts for option in one.params), name


@pytest.mark.usefixtures("torch_is_loaded")
def test_script_and_its_programs_print_elsewhere(folder: Path) -> None:
    (folder / "train.py").write_text(SCRIPT + "import subprocess\nsubprocess.run(['echo', 'words of its program'])\n")
    line = [sys.executable, "-m", "reprod_log", "run", "--float64", "-o", "ref", "--json", "-", "train.py"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["recording"], found["complete"]) == ("ref", True)
    assert found["next"] == "reprod compare ref CANDIDATE"
    assert "words of the script" in done.stderr
    assert "words of its program" in done.stderr


def test_json_elsewhere_is_refused_where_nothing_is_saved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "ref.npz", "--json", "file.json"]) == 2
    assert "write --json - > file.json" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["show", "ref.npz"], ["compare", "ref.npz", "ref.npz"], ["doctor"]])
def test_commands_end_with_the_next_one(arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(arguments)
    assert capsys.readouterr().out.splitlines()[-1].startswith("next: reprod ")


@pytest.mark.parametrize(
    ("typed", "then"),
    [
        ("compare ref.npz cand.npz --json a.json", "report a.json report.html"),
        ("compare ref.npz cand.npz --report a.md", "compare ref.npz cand.npz --report a.md --json last.json"),
        ("compare ref.npz ref.npz --limit max_abs:1", "compare ref.npz ref.npz --limit max_abs:1 --report report.html"),
        ("compare ref.npz ref.npz --report a.md", "compare ref.npz ref.npz --report a.md --json last.json"),
        ("compare ref.npz ref.npz --json a.json --report a.md", "serve ."),
        ("judge saved.json --accept *", "judge saved.json --accept '*' --report report.html"),
        ("report saved.json", "report saved.json report.html"),
        ("report saved.json a.md", "serve ."),
    ],
)
def test_next_command_is_not_the_one_that_was_typed(
    typed: str, then: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["compare", "ref.npz", "cand.npz", "--json", "saved.json"])
    run(typed.split())
    assert capsys.readouterr().out.splitlines()[-1] == f"next: reprod {then}"


def test_help_fits_and_has_every_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["-h"]) == 0
    text = capsys.readouterr().out
    assert "..." not in text.replace("[ARGS]...", "")
    assert max(map(len, text.splitlines())) <= 80
    for name in command().commands:
        assert f"\n  {name} " in text
    assert text.count("  reprod ") == 3


def test_align_compares_recordings_as_it_does_in_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["align", "ref.npz", "ref.npz"]) == run(["compare", "ref.npz", "ref.npz"])
    assert run(["align", "no_plan.py"]) == 2
    assert "no_plan.py" in capsys.readouterr().err


def test_compare_of_python_compares() -> None:
    found = compare(Recording.from_arrays({"x": np.ones(2)}), Recording.from_arrays({"x": np.zeros(2)}))
    assert not found.passed
    assert reprod_log.compare.compute_diff is compare.compute_diff


def test_every_field_is_on_the_page_for_agents(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    found = answered(capsys, "compare", "ref.npz", "cand.npz")
    for name in (*found, *found["first_divergence"], *found["sure"], *answered(capsys, "doctor")):
        assert f"`{name}`" in page, name
