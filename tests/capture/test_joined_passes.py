"""Passes made with `watch(run=…)` know what ran, and are joined only when they are of one program."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from reprod_log import Status, align
from reprod_log.capture import watch
from reprod_log.errors import UsageError
from reprod_log.recording import Recording, join_passes
from reprod_log.recording.program import programs_of
from reprod_log.recording.stores import load

Record = Callable[..., Recording]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Records a pass of the program `script`, called with `arguments`."""

    def made(run: str = "", script: str = "a", arguments: tuple[str, ...] = (), eps: float = 1e-5) -> Recording:
        path = tmp_path / "train.py"
        path.write_text(script)
        monkeypatch.setattr(sys.modules["__main__"], "__file__", str(path), raising=False)
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4, eps=eps))
        x = torch.randn(5, 3)
        if run:
            model, x = model.double(), x.double()
        with watch(model, run=run) as watched:
            model(x)
        return watched.recording

    return made


def test_pass_of_a_watched_program_knows_what_ran(record: Record) -> None:
    known = programs_of(record("float64", arguments=("--lr", "1")))["float64"]
    assert known.script
    assert known.arguments == ("--lr", "1")
    assert known.framework == f"torch {torch.__version__}"
    assert __name__.rpartition(".")[2] in {name.rpartition(".")[2] for name in known.modules}


def test_installed_packages_are_no_part_of_the_program_wherever_they_lie(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("site-packages", "mine"):
        module = ModuleType(f"of_{folder[:4]}")
        module.__file__ = str(tmp_path / folder / "code.py")
        monkeypatch.setitem(sys.modules, module.__name__, module)
    modules = programs_of(record())[""].modules
    assert "of_mine" in modules
    assert "of_site" not in modules


def test_what_only_claims_to_be_a_module_does_not_hide_the_program(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        __slots__ = ()
        __class__ = ModuleType  # type: ignore[assignment]  # as the libraries of cffi do, which have no __dict__

    monkeypatch.setitem(sys.modules, "of_cffi", Library())  # type: ignore[arg-type]
    assert programs_of(record())[""].script


def test_passes_of_one_program_are_joined_and_stay_so_in_a_file(record: Record, tmp_path: Path) -> None:
    whole = join_passes(record(), record("float64"))
    assert whole.runs == ("", "float64")
    read = load(whole.save(tmp_path / "ref"))
    again = replace(read, provenance=replace(read.provenance, time="later"), source="after")
    assert align(read, again).status is Status.PASS


@pytest.mark.parametrize(
    ("other", "named"),
    [({"script": "b"}, "script"), ({"arguments": ("x",)}, "arguments"), ({"eps": 1e-3}, "1.eps")],
)
def test_pass_of_another_program_is_refused(record: Record, other: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=f"not of the same program as the plain pass: .*{named}"):
        join_passes(record(), record("float64", **other))


@pytest.mark.parametrize("script", ["a", "b"])
def test_passes_put_together_by_hand_are_not_proven(record: Record, script: str) -> None:
    plain, wide = record(), record("float64", script=script)
    by_hand = replace(plain, entries=(*plain.entries, *wide.entries), source="ref")
    found = align(by_hand, replace(join_passes(record(), record("float64")), source="port"))
    assert found.status is Status.UNPROVEN
    assert "cause.odd_pass.unknown" in {one.cause.id for one in found.doubts}


def test_incomplete_pass_is_left_out_and_noted(record: Record) -> None:
    whole = join_passes(record(), replace(record("float64"), complete=False))
    assert whole.complete
    assert whole.runs == ("",)
    assert [note.id for note in whole.notes] == ["note.recording.pass_left_out"]


@pytest.mark.parametrize("runs", [("", ""), ("float64", "")])
def test_first_is_the_plain_pass_and_the_others_have_names(record: Record, runs: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="the plain recording first"):
        join_passes(*map(record, runs))
