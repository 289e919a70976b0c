"""reprod run: our options stand before the script, and what follows it is the script's own."""

from pathlib import Path

import pytest

from reprod_log.cli import WRONG_USE, run
from reprod_log.cli.app import command
from reprod_log.cli.scripts import arranged
from reprod_log.errors import UsageError


def arrange(given: str) -> tuple[str, list[str]]:
    ours, alike = arranged(given.split(), command(["run"]).commands["run"])
    return " ".join(ours), alike


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ("-o ref train.py --lr 0.1", "-o ref train.py --lr 0.1"),
        ("-oref train.py --lr 0.1", "-oref train.py --lr 0.1"),
        ("--float64 -o ref train.py data", "--float64 -o ref train.py data"),
        ("-o ref -- train.py --steps 3", "-o ref train.py --steps 3"),
        ("-o ref train.py -- --steps 3", "-o ref train.py --steps 3"),
        ("-o ref train.py -- -- x", "-o ref train.py -- x"),
        ("train.py -o ref", "-o ref train.py"),
        ("train.py -o ref --dtype float64", "-o ref --dtype float64 train.py"),
        ("train.py --float64 -oref", "--float64 -oref train.py"),
        ("--steps 3 train.py --output=ref", "--steps 3 --output=ref train.py"),
        ("train.py -o ref -- --steps 3", "-o ref train.py --steps 3"),
        ("train.py", "train.py"),
        ("train.py --lr 0.1", "train.py --lr 0.1"),
        ("", ""),
        ("--help", "--help"),
    ],
)
def test_ours_stand_before_the_script(given: str, understood: str) -> None:
    assert arrange(given) == (understood, [])


@pytest.mark.parametrize(
    ("given", "alike"),
    [("--output=ref train.py -o mine", ["-o"]), ("-o ref train.py --dtype=float64 --lr 1", ["--dtype"])],
)
def test_options_of_the_script_that_are_called_like_ours_are_left_to_it_with_a_note(
    given: str, alike: list[str]
) -> None:
    ours, found = arrange(given)
    assert ours == given
    assert [one.partition("=")[0] for one in found] == alike


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("train.py -o ref --lr 0.1", "reprod run -o ref train.py --lr 0.1"),
        ("train.py --lr 0.1 -o ref", "reprod run -o ref train.py --lr 0.1"),
        ("train.py --lr 0.1 -oref x", "reprod run -oref train.py --lr 0.1 x"),
        ("train.py --lr 0.1 --output=ref", "reprod run --output=ref train.py --lr 0.1"),
        ("--float64 train.py -o ref data", "reprod run --float64 -o ref train.py data"),
        ("train.py -o ref --dtype float64 data -- -x", "reprod run -o ref --dtype float64 train.py data -x"),
    ],
)
def test_what_could_mean_either_is_refused_with_the_right_command(given: str, right: str) -> None:
    with pytest.raises(UsageError, match="stand before the script") as refused:
        arrange(given)
    assert str(refused.value).endswith(f"Write: {right}")
    assert run(["run", *given.split()]) == WRONG_USE


def test_both_ways_of_naming_the_passes_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--float64", "--dtype", "float64", "-o", "ref", "train.py"]) == WRONG_USE
    assert "--float64 records both passes" in capsys.readouterr().err


def test_a_suffix_that_no_format_has_is_refused_before_the_script_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, ran = tmp_path / "train.py", tmp_path / "ran"
    script.write_text(f"open({str(ran)!r}, 'w')")
    assert run(["run", "-o", str(tmp_path / "ref.0"), str(script)]) == WRONG_USE
    assert "cannot tell the format" in capsys.readouterr().err
    assert not ran.exists()


@pytest.mark.parametrize(
    "given",
    [
        ["watch", "--plain", "-o", "out", "REF", "absent.py", "--plain"],
        ["watch", "REF", "--plain", "-o", "out", "absent.py", "--plain"],
        ["baseline", "check", "--plain", "DIR", "absent.py", "-o", "x"],
    ],
)
def test_options_stand_anywhere_before_the_script_of_other_commands(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(given) == WRONG_USE
    assert "absent.py is not a file" in capsys.readouterr().err
