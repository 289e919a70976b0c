"""Who may import whom: the flow of the design as a test over the import graph."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import reprod_log

ROOT = Path(reprod_log.__file__).parent
FRAMEWORKS = ("torch", "paddle", "jax", "tensorflow", "mindspore", "onnx", "onnxruntime", "keras", "flax")

# A room may import itself and the rooms that stand before it here.
ROOMS = (
    "errors", "version", "messages", "recording", "layers", "frameworks", "capture", "pairing", "ranks", "transfer",
    "measure", "verdict", "experiments", "diagnose", "alignment", "steps", "report", "testing", "classic", "cli",
)  # fmt: skip
SHIMS = ("__init__", "__main__", "compare", "record", "utils", "ReprodLogger", "ReprodDiffHelper")
# Imports that still point down. The list may only shrink.
KNOWN = {
    ("alignment/alignment.py", "report"),
    ("diagnose/operators.py", "alignment"),
    ("diagnose/proof.py", "alignment"),
    ("pairing/call_arguments.py", "experiments"),
    ("pairing/correspondence.py", "transfer"),
    ("pairing/model_values.py", "transfer"),
    ("pairing/survey.py", "transfer"),
    ("ranks/explaining.py", "alignment"),
    ("ranks/explaining.py", "diagnose"),
    ("ranks/explaining.py", "verdict"),
    ("ranks/gradients.py", "diagnose"),
    ("ranks/model_axes.py", "diagnose"),
    ("ranks/opening.py", "alignment"),
    ("ranks/reduction.py", "diagnose"),
    ("ranks/replicas.py", "alignment"),
    ("ranks/replicas.py", "diagnose"),
    ("ranks/replicas.py", "measure"),
    ("ranks/replicas.py", "verdict"),
    ("ranks/settings.py", "diagnose"),
    ("ranks/statistics.py", "diagnose"),
    ("steps/overview.py", "report"),
}


def stage_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 or path.name == "__init__.py", f"{path}: relative import"
            found.add(node.module or "reprod_log")
    return found


def stages_imported(path: Path) -> set[str]:
    ours = {name.split(".")[1] for name in imports_of(path) if name.startswith("reprod_log.")}
    return ours - {stage_of(path)}


FILES = sorted(ROOT.rglob("*.py"))


def test_imports_point_to_rooms_that_stand_before() -> None:
    down = {
        (str(path.relative_to(ROOT)), other)
        for path in FILES
        if (room := stage_of(path)) not in SHIMS
        for other in stages_imported(path)
        if ROOMS.index(other) > ROOMS.index(room)
    }
    assert not down - KNOWN, "imports that point down"
    assert not KNOWN - down, "these are gone: take them off the list"


def test_frameworks_are_imported_only_where_they_belong() -> None:
    homes = ("frameworks", "transfer/frameworks", "experiments/frameworks", "steps/frameworks")
    named = {
        str(path.relative_to(ROOT)): names
        for path in FILES
        if not str(path.relative_to(ROOT)).startswith(homes)
        and (names := {name.split(".")[0] for name in imports_of(path)} & set(FRAMEWORKS))
    }
    assert not named


def modules_after(program: str) -> set[str]:
    answer = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.split(".")[0] for line in answer.stdout.split()}


HEAVY = {*FRAMEWORKS, "numba", "rich", "jinja2", "typer", "click"}


def test_importing_reprod_log_imports_nothing_heavy() -> None:
    assert not modules_after("import reprod_log") & HEAVY


def test_comparing_files_imports_no_framework(tmp_path: Path) -> None:
    program = f"""
import numpy as np, reprod_log
for name in "ab":
    logger = reprod_log.ReprodLogger()
    logger.add("x", np.ones(3))
    logger.save({str(tmp_path)!r} + "/" + name)
helper = reprod_log.ReprodDiffHelper()
helper.compare_info(helper.load_info({str(tmp_path)!r} + "/a.npy"), helper.load_info({str(tmp_path)!r} + "/b.npy"))
helper.report(path=None)
from reprod_log.cli import run
run(["compare", {str(tmp_path)!r} + "/a.npy", {str(tmp_path)!r} + "/b.npy"])
"""
    assert not modules_after(program) & set(FRAMEWORKS)


def test_the_import_check_can_fail() -> None:
    assert "torch" in modules_after("import reprod_log, torch")


def test_exports_are_what_the_module_says() -> None:
    for name in reprod_log.__all__:
        assert getattr(reprod_log, name) is not None
    assert set(reprod_log.__all__) <= set(dir(reprod_log))
    assert reprod_log.__all__ == sorted(reprod_log.__all__, key=lambda name: (name[0].islower(), name))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        reprod_log.nonsense  # noqa: B018


def test_lazy_names_are_those_that_are_not_there_at_once() -> None:
    program = (
        "import reprod_log; print(sorted(set(reprod_log.__all__) - set(vars(reprod_log))) == sorted(reprod_log._HOMES))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "True"
