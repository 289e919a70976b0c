"""Who may import whom, and who may name a framework."""

import ast
from pathlib import Path

import pytest
from rooms import FRAMEWORKS, ROOMS, SHIMS, Package

import reprod_log

LOOKUPS = {"alignment/alignment.py -> report", "ranks/__init__.py -> alignment"}
"""Later rooms that are loaded by name when they are asked for: how an alignment shows itself, and a public name."""


@pytest.fixture(scope="module")
def package() -> Package:
    return Package(Path(reprod_log.__file__).parent)


def test_imports_point_to_rooms_that_stand_before(package: Package) -> None:
    rule = f"A room imports only rooms that stand before it: {' · '.join(ROOMS)}."
    assert package.imports_pointing_down() == set(), rule


def test_later_rooms_are_looked_up_only_where_declared(package: Package) -> None:
    assert package.lookups_pointing_down() == LOOKUPS


def test_frameworks_are_named_only_where_they_belong(package: Package) -> None:
    assert package.frameworks_named() == {}


def test_frameworks_are_imported_only_where_they_belong(package: Package) -> None:
    assert not [line for line in sorted(package.frameworks_imported()) if not line.startswith("frameworks/")]


def test_eager_parts_are_called_only_where_programs_run(package: Package) -> None:
    """Other rooms go through sides, runners and live models, which a framework without these parts has, too."""
    users = {
        file.split("/")[0]
        for file, tree in package.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "eager"
    }
    assert users == {"frameworks", "capture"}


def test_every_file_stands_in_a_room(package: Package) -> None:
    assert {file.split("/")[0].removesuffix(".py") for file in package.trees} <= {*ROOMS, *SHIMS}


@pytest.mark.parametrize(
    ("file", "line", "violation"),
    [
        ("recording/key.py", "from made.cli import run", "recording/key.py -> cli"),
        ("recording/key.py", "import made.verdict.status", "recording/key.py -> verdict"),
        ("recording/key.py", "from made import report", "recording/key.py -> report"),
        ("recording/key.py", "from made import align", "recording/key.py -> align"),
        ("recording/key.py", "def late():\n    from made.steps import plan", "recording/key.py -> steps"),
        ("recording/key.py", "from ..ranks import mesh", "recording/key.py -> ranks"),
        ("recording/key.py", "from .. import ranks", "recording/key.py -> ranks"),
        ("recording/key.py", "from made.utils import x", "recording/key.py -> utils"),
        ("recording/key.py", "from made.errors import X\nfrom . import entry\nfrom made.recording import y", None),
        ("utils.py", "from made.cli import run", None),
    ],
)
def test_imports_that_point_down_are_seen(tmp_path: Path, file: str, line: str, violation: str | None) -> None:
    made = tmp_path / "made"
    (made / file).parent.mkdir(parents=True, exist_ok=True)
    (made / file).write_text(line, encoding="utf-8")
    assert Package(made).imports_pointing_down() == ({violation} if violation else set())


@pytest.mark.parametrize(
    ("line", "violation"),
    [
        ('import_module("made.report.view")', "recording/key.py -> report"),
        ('HOMES = {"align": "made.alignment"}', "recording/key.py -> alignment"),
        ('import_module(f"made.verdict.{name}")', "recording/key.py -> verdict"),
        ('"""See made.report."""\nGROUP = "made.metrics"\nimport_module("made.recording.npz")', None),
    ],
)
def test_lookups_that_point_down_are_seen(tmp_path: Path, line: str, violation: str | None) -> None:
    file = tmp_path / "made" / "recording" / "key.py"
    file.parent.mkdir(parents=True)
    file.write_text(line, encoding="utf-8")
    assert Package(tmp_path / "made").lookups_pointing_down() == ({violation} if violation else set())


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ('name = "torch"', 1),
        ('text = "bias_attr in paddle, bias in Torch"', 1),
        ("module = sys.modules.paddle", 1),
        ("torch.nn(jax)", 2),
        ('def f():\n    """What torch does."""', 0),
        ('x = 1\n"""As torch has it."""', 0),
        ("torch_loss = torches  # torch", 0),
    ],
)
def test_names_of_frameworks_are_counted(tmp_path: Path, line: str, count: int) -> None:
    for room in ("capture", "layers"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "made.py").write_text(line, encoding="utf-8")
    assert Package(tmp_path).frameworks_named() == ({"capture/made.py": count} if count else {})


def test_imports_of_frameworks_are_seen(tmp_path: Path) -> None:
    lines = (f"def late():\n    from {framework}.nn import Linear\n" for framework in FRAMEWORKS)
    (tmp_path / "made.py").write_text("".join(lines), encoding="utf-8")
    assert Package(tmp_path).frameworks_imported() == {f"made.py -> {framework}" for framework in FRAMEWORKS}
