"""The command: what it prints, and the code it leaves with."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from reprod_log import Recording, cli
from reprod_log.cli import run
from reprod_log.cli.app import command
from reprod_log.recording import Provenance


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    Recording.from_arrays({"logits": np.ones(4, np.float32), "loss": np.array(1.0)}).save(tmp_path / "ref.npy")
    Recording.from_arrays({"logits": np.ones(4, np.float32), "loss": np.array(1.0)}).save(tmp_path / "same.npz")
    Recording.from_arrays({"logits": np.ones(4, np.float32), "loss": np.array(1.5)}).save(tmp_path / "off.npy")
    Recording.from_arrays({"output": np.ones(4, np.float32), "loss": np.array(1.0)}).save(tmp_path / "renamed.npy")
    Recording.from_arrays({"other": np.ones(4)}).save(tmp_path / "other.npy")
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run([str(one) for one in arguments])
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def test_aligned_recordings_leave_with_0(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "compare", logs / "ref.npy", logs / "same.npz")
    assert code == 0
    assert out.startswith("ALIGNED: all 2 entries pass")


def test_difference_leaves_with_1_and_is_located(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "compare", logs / "ref.npy", logs / "off.npy")
    assert code == 1
    assert out.startswith("NOT ALIGNED: 1 fail; 1 of 2 entries pass")
    assert "first divergence: loss" in out
    assert "reference 1, candidate 1.5" in out


def test_nothing_in_common_leaves_with_5(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "compare", logs / "ref.npy", logs / "other.npy")
    assert code == 5
    assert "NOTHING COMPARED" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "ref.npy", "missing.npy"],
        ["compare", "ref.npy"],
        ["compare", "ref.npy", "same.npz", "--limit", "typo:1"],
        ["compare", "ref.npy", "same.npz", "--limit", "mean_abs"],
        ["compare", "ref.npy", "same.npz", "--rename", "x"],
        ["compare", "ref.npy", "same.npz", "--rename", "nothing=else"],
        ["show", "missing"],
        ["check", "ref.npy"],
        ["convert", "ref.npy", "x.h5"],
        ["convert", "ref.npy", "ref.npy"],
        ["nonsense"],
    ],
)
def test_wrong_use_leaves_with_2_and_a_message(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(logs)
    code, _, err = answer(capsys, *arguments)
    assert code == 2
    assert err.strip()
    assert "Traceback" not in err


def test_bug_of_ours_leaves_with_3(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from reprod_log.cli.commands import compare

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(compare, "align_with", broken)
    code, _, err = answer(capsys, "compare", logs / "ref.npy", logs / "off.npy")
    assert code == 3
    assert "this is a bug in reprod_log" in err


def test_limits_and_renames_are_taken(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "compare", logs / "ref.npy", logs / "off.npy", "--limit", "mean_abs:1")[0] == 0
    assert answer(capsys, "compare", logs / "ref.npy", logs / "renamed.npy")[0] == 1
    assert answer(capsys, "compare", logs / "ref.npy", logs / "renamed.npy", "--rename", "logits=output")[0] == 0
    unmatched = ("--allow-unmatched", "logits", "--allow-unmatched", "output")
    assert answer(capsys, "compare", logs / "ref.npy", logs / "renamed.npy", *unmatched)[0] == 0


def test_alignment_is_saved_as_json(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "compare", logs / "ref.npy", logs / "off.npy", "--json", logs / "out" / "a.json")
    saved = json.loads((logs / "out" / "a.json").read_text())
    assert saved["passed"] is False
    assert saved["first_divergence"] == "loss"


def test_same_recordings_give_byte_identical_json(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.json", "b.json"):
        answer(capsys, "compare", logs / "ref.npy", logs / "off.npy", "--json", logs / name)
    assert (logs / "a.json").read_bytes() == (logs / "b.json").read_bytes()


def test_recording_is_shown_and_converted(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("copy.safetensors", "copy.npz", "copy.npy", "copy"):
        assert answer(capsys, "convert", logs / "ref.npy", logs / target)[0] == 0
        assert answer(capsys, "compare", logs / "ref.npy", logs / target)[0] == 0
    code, out, _ = answer(capsys, "show", logs / "copy", "--values")
    assert code == 0
    assert "logits" in out
    assert "float32" in out
    assert "0/0" in out


def test_untrusted_file_is_refused_by_name(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fractions import Fraction

    np.save(logs / "strange.npy", {"x": np.array([Fraction(1, 2)], dtype=object)})
    code, _, err = answer(capsys, "show", logs / "strange.npy")
    assert code == 2
    assert "fractions.Fraction" in err
    assert answer(capsys, "show", logs / "strange.npy", "--trust")[0] == 0


def test_doctor_says_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "doctor")
    assert code == 0
    assert f"numpy {np.__version__}" in out
    assert "OMP_NUM_THREADS" in out


def test_control_characters_in_keys_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.npz", "b.npz"):
        Recording.from_arrays({"evil\x1b[2J\x07[red]key": np.array(len(name) + ord(name[0]))}).save(tmp_path / name)
    _, out, _ = answer(capsys, "compare", tmp_path / "a.npz", tmp_path / "b.npz")
    assert "\x1b[2J" not in out
    assert "\\x1b[2J\\x07[red]key" in out


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_narrow_terminal_shows_everything(logs: Path, width: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "reprod_log", "compare", str(logs / "ref.npy"), str(logs / "off.npy")],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": width},
        check=False,
    )
    assert answer.returncode == 1
    assert "FAIL" in answer.stdout
    assert "loss" in answer.stdout
    assert "\x1b" not in answer.stdout
    # The next command stays on one line, to be copied.
    assert max(len(line) for line in answer.stdout.splitlines() if not line.startswith("next: ")) <= int(width)


@pytest.mark.parametrize(
    ("command", "code"), [("show {0}/ref.npy", 0), ("compare {0}/ref.npy {0}/off.npy --json {0}/out.json", 1)]
)
def test_reader_that_leaves_early_changes_no_answer(logs: Path, command: str, code: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "reprod_log", *command.format(logs).split()],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert (answer.returncode, answer.stderr) == (code, "")
    assert (logs / "out.json").exists() == (code == 1)


@pytest.mark.parametrize("command", ["--help", "--version", "convert {0}/ref.npy {0}/out.safetensors"])
def test_reader_that_leaves_before_there_is_an_answer_leaves_141(logs: Path, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    arguments = [sys.executable, "-m", "reprod_log", *command.format(logs).split()]
    try:
        answer = subprocess.run(arguments, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (answer.returncode, answer.stderr) == (cli.READER_GONE, "")


def test_reader_that_leaves_after_the_first_line_changes_no_verdict(tmp_path: Path) -> None:
    for name, value in (("ref", 1.0), ("off", 2.0)):
        Recording.from_arrays({f"loss_{place}": np.full(1, value) for place in range(3000)}).save(tmp_path / name)
    command = [sys.executable, "-m", "reprod_log", "compare", "ref", "off", "--all"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 1)
    assert first.startswith("NOT ALIGNED")


def test_interrupted_command_leaves_with_130(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch("reprod_log.cli.commands.compare.align_with", side_effect=KeyboardInterrupt):
        assert answer(capsys, "compare", logs / "ref.npy", logs / "off.npy")[0] == cli.INTERRUPTED
    assert answer(capsys, "compare", logs / "ref.npy", logs / "off.npy")[0] == 1


def test_what_was_written_is_named(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, page = str(logs / "a.json"), str(logs / "a.md")
    assert run(["compare", str(logs / "ref.npy"), str(logs / "off.npy"), "--json", saved, "--report", page]) == 1
    assert capsys.readouterr().out.splitlines()[-3:-1] == [f"written: {saved}", f"written: {page}"]
    assert run(["report", saved, page]) == 1
    assert capsys.readouterr().out == f"written: {page}\nnext: reprod serve {logs}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("compare {0}/reff.npy {0}/ref.npy", "similar: 'ref.npy'"),
        ("compare {0}/nowhere/x {0}/ref.npy", "There is no folder"),
        ("compare {0}/empty.npy {0}/ref.npy", "empty.npy is not a whole .npy file"),
        ("show {0}/empty.bin", "it is an empty file"),
        ("show {0}/saved.json", "`reprod report"),
        ("report {0}/empty.npy", "not valid JSON"),
        ("judge {0}/other.json", "its schema is None and not 'reprod_log alignment'"),
        ("convert {0}/ref.npy {0}/same.npz/x.npz", "A part of this path is a file and not a folder"),
        ("compare {0}/ref.npy {0}/same.npz --json {0}/folder", "Is a directory. Give the name of a file in it."),
        ("repro {0}/saved.json -o {0}/same.npz --layer x", "reprod: "),
        ("run {0}/folder -o {0}/new", "there is no script"),
        ("check {0}/ref.npy", "is not a folder"),
        ("serve {0}/ref.npy", "is not a folder"),
        ("ranks {0}/ref.npy", "does not hold the parts of several ranks"),
        ("plan {0}/folder", "is not a file"),
        ("compare {0}/train.py {0}/ref.npy", "Record it first: reprod run --float64 -o train"),
        ("align {0}/ref.npy {0}/train.npy", "no such file or folder"),
    ],
)
def test_bad_input_is_told_without_a_traceback(logs: Path, arguments: str, told: str, capsys) -> None:
    for name in ("empty.npy", "empty.bin"):
        (logs / name).touch()
    (logs / "other.json").write_text("{}")
    (logs / "folder").mkdir()
    assert run(["compare", str(logs / "ref.npy"), str(logs / "same.npz"), "--json", str(logs / "saved.json")]) == 0
    assert run(arguments.format(logs).split()) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said
    assert "Errno" not in said


@pytest.mark.parametrize("name", ["judge", "report"])
def test_folder_instead_of_a_saved_alignment_is_told(name: str, tmp_path: Path, capsys) -> None:
    assert run([name, str(tmp_path)]) == 2
    assert "is a folder, and a saved alignment is a JSON file" in capsys.readouterr().err


def test_ranks_of_a_missing_folder_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ranks", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith(f"reprod: there is no {tmp_path / 'none'}")


def test_values_are_shown_with_whole_names_on_a_narrow_screen(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    # The path that was given is shown as it is, however long.
    monkeypatch.chdir(tmp_path)
    key = "step0/forward/encoder.layers.11.attention.self.query_projection#0:output"
    origin = Provenance(framework="torch", extra={"run": {"script": "train.py", "args": ["--lr", "0.1"]}, "rank": 0})
    Recording.from_arrays({key: np.arange(6.0).reshape(2, 3), "y": np.ones(1)}, provenance=origin).save("a.npz")
    assert run(["show", "a.npz", "--values"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[lines.index(key) + 1].split() == ["float64", "2×3", "0", "5", "2.5", "0/0"]
    assert "  run.script: train.py" in lines
    assert "  run.args: --lr, 0.1" in lines
    assert not any("{" in line for line in lines)


def test_commands_that_are_only_listed_say_what_they_say_when_loaded() -> None:
    loaded, listed = command().commands, command(["--help"]).commands
    assert {name: one.help for name, one in listed.items()} == {name: one.help for name, one in loaded.items()}
    assert all(one.params for name, one in loaded.items() if name not in ("doctor", "mcp"))


def test_a_command_is_loaded_wherever_its_name_stands() -> None:
    assert list(command(["compare", "show"]).commands) == ["compare"]
    assert command(["--", "compare"]).commands["compare"].params


def test_the_list_of_commands_loads_none_of_their_machinery() -> None:
    program = (
        "import sys; from reprod_log.cli import run; run(['--help']); print('reprod_log.alignment' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "False"


def test_a_comparison_of_plain_files_loads_nothing_of_layers_ranks_and_reports(logs: Path) -> None:
    program = (
        "import sys; from reprod_log.cli import run; "
        f"run(['compare', {str(logs / 'ref.npy')!r}, {str(logs / 'same.npz')!r}]); print(' '.join(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(answer.stdout.splitlines()[-1].split())
    needless = [
        f"reprod_log.{name}"
        for name in ("layers.kinds", "ranks.joining", "report.formats.markdown", "transfer", "experiments", "steps")
    ]
    assert all(find_spec(name) for name in needless), "a module has moved: name its new place"
    assert "reprod_log.measure.comparison" in loaded
    assert not loaded & set(needless)
