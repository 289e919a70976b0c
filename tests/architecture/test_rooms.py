"""Who may import whom, and who may name a framework: two rules, each with a list of what still breaks it.

The lists may only shrink. What is gone has to leave them too:

    UPDATE_KNOWN=1 python -m pytest tests/architecture/test_rooms.py

writes both lists anew, for example after a file was moved, unless one of them would grow.
"""

import os
from pathlib import Path

import pytest
from rooms import FRAMEWORKS, NAME_FRAMEWORKS, ROOMS, SHIMS, Package

import reprod_log

HERE = Path(__file__).parent
PACKAGE = Package(Path(reprod_log.__file__).parent)
HOMES = ("frameworks/", "transfer/frameworks/", "experiments/frameworks/", "steps/frameworks/")
"""Where frameworks are imported."""


def check(found: list[str], name: str, *, rule: str, size: int, known_size: int) -> None:
    """Fail with every line that is new and every line that is gone; or write the list anew, when asked to."""
    file = HERE / name
    known = file.read_text(encoding="utf-8").splitlines()
    if os.environ.get("UPDATE_KNOWN"):
        assert size <= known_size, f"{file.name} would grow from {known_size} to {size}; {rule}"
        file.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        return
    new = [f"  new: {line}" for line in found if line not in known]
    gone = [f"  gone: {line}" for line in known if line not in found]
    assert not new + gone, "\n".join([rule, *new, *gone, "When the list shrinks: UPDATE_KNOWN=1 writes it anew."])


def test_imports_point_to_rooms_that_stand_before() -> None:
    found = sorted(PACKAGE.imports_pointing_down())
    known = len((HERE / "known_imports.txt").read_text(encoding="utf-8").splitlines())
    rule = f"A room imports only rooms that stand before it: {' · '.join(ROOMS)}."
    check(found, "known_imports.txt", rule=rule, size=len(found), known_size=known)


def test_frameworks_are_named_only_where_they_belong() -> None:
    counts = PACKAGE.frameworks_named()
    found = sorted(f"{file} {count}" for file, count in counts.items())
    lines = (HERE / "known_names.txt").read_text(encoding="utf-8").splitlines()
    known = sum(int(line.split()[1]) for line in lines)
    rule = f"Only these rooms name frameworks: {', '.join(NAME_FRAMEWORKS)}. The number is how often a file does."
    check(found, "known_names.txt", rule=rule, size=counts.total(), known_size=known)


def test_frameworks_are_imported_only_where_they_belong() -> None:
    assert not [line for line in sorted(PACKAGE.frameworks_imported()) if not line.startswith(HOMES)]


def test_every_file_stands_in_a_room() -> None:
    assert {file.split("/")[0].removesuffix(".py") for file in PACKAGE.trees} <= {*ROOMS, *SHIMS}


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
    ("line", "count"),
    [
        ('name = "torch"', 1),
        ('text = "bias_attr in paddle, bias in Torch"', 1),
        ("module = sys.modules.paddle", 1),
        ("torch.nn(jax)", 2),
        ('def f():\n    """What torch does."""', 0),
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
