"""The lines at which a program makes its layers, as recordings keep them and alignments show them."""

import inspect
from pathlib import Path

import pytest
import torch

from reprod_log import Alignment, align, load, watch
from reprod_log.frameworks.source_lines import written_at


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.act = (
            torch.nn.LayerNorm(4),  # norm
            torch.nn.ReLU(),  # act
        )
        self.add_module("last", torch.nn.Linear(4, 4))  # last

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # Block runs
        return self.last(self.act(self.norm(x)))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Linear(4, 4),  # features.0
            torch.nn.Sequential(
                torch.nn.Tanh(),  # features.1.0
            ),
        )
        self.blocks = torch.nn.ModuleList([Block() for _ in range(2)])
        self.heads = torch.nn.ModuleList(torch.nn.Linear(4, size) for size in (2, 3))  # heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # Net runs
        x = self.features(x)
        for block in self.blocks:
            x = block(x)
        return self.heads[0](x)


def line_of(comment: str) -> str:
    lines = inspect.getsource(inspect.getmodule(Net)).splitlines()  # type: ignore[arg-type]
    return str(1 + next(place for place, line in enumerate(lines) if line.endswith(f"# {comment}")))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    model = Net()
    with watch(model, save=tmp_path / "rec"):
        model(torch.zeros(2, 4))
    return tmp_path / "rec"


@pytest.mark.parametrize(
    ("path", "comment"),
    [
        ("", "Net runs"),
        ("features.0", "features.0"),
        ("features.1.0", "features.1.0"),
        ("blocks.1", "Block runs"),
        ("blocks.1.norm", "norm"),
        ("blocks.0.act", "act"),
        ("blocks.0.last", "last"),
        ("heads.0", "heads"),
    ],
)
def test_layer_is_found_where_the_program_makes_it(recording: Path, path: str, comment: str) -> None:
    found = next(one.line for one in load(recording).modules if one.path == path)
    file, _, line = found.rpartition(":")
    assert Path(file).name == Path(__file__).name
    assert line == line_of(comment)


def test_saved_alignment_keeps_the_lines_of_both_sides(recording: Path, tmp_path: Path) -> None:
    saved = align(recording, recording).save(tmp_path / "last.json")
    found = Alignment.load(saved)
    assert found.reference.lines == found.candidate.lines
    assert found.reference.lines["blocks.1.norm"].endswith(f":{line_of('norm')}")


def test_model_without_source_has_no_lines(tmp_path: Path) -> None:
    space: dict[str, type[torch.nn.Module]] = {}
    exec("import torch\nclass Typed(torch.nn.Linear):\n    def forward(self, x):\n        return x", space)
    model = space["Typed"](2, 2)
    with watch(model, save=tmp_path / "rec"):
        model(torch.ones(1, 2))
    assert [one.line for one in load(tmp_path / "rec").modules] == [""]


def test_function_that_belongs_to_no_module_has_its_line() -> None:
    names: dict[str, object] = {}
    exec(compile("\ndef loss(x): return x", "page.md", "exec"), names)
    assert written_at(names["loss"], "torch") == "page.md:2"
