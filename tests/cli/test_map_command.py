"""reprod map: the map of two models made by functions, or of a saved alignment; its converter; what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reprod_log import Alignment, align, cli, write_report

MODELS = """
import numpy as np


def reference():
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_proj, self.up_proj = torch.nn.Linear(6, 8), torch.nn.Linear(6, 8)

        def forward(self, x):
            return torch.tanh(self.gate_proj(x)) * self.up_proj(x)

    return Model()


def port(first, second, sign=1):
    import paddle

    class Model(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            setattr(self, first, paddle.nn.Linear(6, 8))
            setattr(self, second, paddle.nn.Linear(6, 8))

        def forward(self, x):
            return sign * paddle.tanh(getattr(self, first)(x)) * getattr(self, second)(x) ** (2 if sign < 0 else 1)

    return Model()


def candidate():
    return port("w1", "w2")


def crossed():
    return port("up", "gate")


def wrong():
    return port("w1", "w2", -1)


def aligned():
    from reprod_log import align_models

    batch = np.random.default_rng(0).normal(size=(3, 6)).astype("float32")
    align_models(reference(), candidate(), (batch,)).save("saved.json")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "models.py").write_text(MODELS)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "batch.npz", x=rng.normal(size=(4, 6)).astype("float32"))
    return tmp_path


def _map(*arguments: str) -> int:
    return cli.run(["map", *arguments])


def test_the_map_is_printed_and_written_as_a_converter(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = _map("models.py:reference", "models.py:candidate", "--inputs", "batch.npz", "-o", "convert.py")
    shown = capsys.readouterr().out
    assert code == cli.ALIGNED
    assert "PROVEN: with this map of 4 weights" in shown
    assert "w1.weight  6×8\n  ← gate_proj.weight\n    transposed" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "('w1.weight', (6, 8), {'gate_proj.weight': (8, 6)}, lambda a: a.T)" in (folder / "convert.py").read_text()


def test_a_map_against_the_names_is_not_proven(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _map("models.py:reference", "models.py:crossed", "--inputs", "batch.npz") == cli.NOT_PROVEN
    shown = " ".join(capsys.readouterr().out.split())
    assert "it contradicts the names" in shown
    assert "up_proj → gate" in shown


def test_programs_that_differ_have_no_map_and_no_converter(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("models.py:reference", "models.py:wrong", "--inputs", "batch.npz")
    assert _map(*arguments) == cli.NOT_ALIGNED
    assert "NOT ALIGNED: no map was found" in capsys.readouterr().out
    assert _map(*arguments, "-o", "convert.py") == cli.WRONG_USE
    assert "the map is not proven" in capsys.readouterr().err
    assert not (folder / "convert.py").exists()


def test_the_map_of_a_saved_alignment_is_in_every_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, object] = {}
    exec(compile(MODELS, "models", "exec"), space)
    space["aligned"]()  # type: ignore[operator]
    assert _map("saved.json", "--language", "zh") == cli.ALIGNED
    assert "已证明" in capsys.readouterr().out
    alignment = Alignment.load("saved.json")
    assert alignment.weight_map is not None
    html = write_report(alignment, "report.html").read_text(encoding="utf-8")
    markdown = write_report(alignment, "report.md").read_text(encoding="utf-8")
    assert '<section id="map">' in html
    assert "| `w1.weight` | 6×8 | `gate_proj.weight` | transposed | proven by values |" in markdown
    text = write_report(alignment, "report.txt").read_text(encoding="utf-8")
    assert "gate_proj → w1; up_proj → w2" in text


def test_an_alignment_of_recordings_has_no_map(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.npz", "other.npz"):
        np.savez(folder / name, a=np.arange(4.0))
    align("one.npz", "other.npz").save("plain.json")
    assert _map("plain.json") == cli.WRONG_USE
    assert "plain.json has no weight map" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("models.py:reference",), "give the candidate's as well"),
        (("models.py:reference", "models.py:candidate"), "--inputs is missing"),
        (("models.py:refrence", "models.py:candidate", "--inputs", "batch.npz"), "has no function 'refrence'"),
        (("models.py", "models.py:candidate", "--inputs", "batch.npz"), "write FILE.py:FUNCTION"),
        (("none.py:a", "models.py:candidate", "--inputs", "batch.npz"), "is not a file"),
        (("models.py:reference", "models.py:candidate", "--inputs", "none.npz"), "cannot read --inputs none.npz"),
    ],
)
def test_wrong_arguments_are_explained(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert _map(*arguments) == cli.WRONG_USE
    assert message in " ".join(capsys.readouterr().err.split())
