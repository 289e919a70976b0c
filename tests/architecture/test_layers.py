"""Who may import whom: the flow of the design as a test over the import graph."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import reprod_log

ROOT = Path(reprod_log.__file__).parent
FRAMEWORKS = ("torch", "paddle", "jax", "tensorflow", "mindspore", "onnx", "onnxruntime", "keras", "flax")

# A stage may import itself and what stands before it in this table.
FLOW = {
    "errors": (),
    "record": ("errors",),
    # transfer: the layouts of layers, which are plain data; a sketch is taken in the canonical one.
    "capture": ("errors", "record", "transfer"),
    "transfer": ("errors", "record", "capture"),
    "match": ("errors", "record", "transfer"),
    "measure": ("errors", "record", "match"),
    "calibrate": ("errors", "record", "match", "measure"),
    "judge": ("errors", "record", "match", "measure", "calibrate"),
    "diagnose": ("errors", "record", "capture", "transfer", "match", "measure", "calibrate", "judge"),
    "alignment": ("errors", "record", "match", "measure", "calibrate", "judge", "diagnose", "report"),
    # ranks: makes alignments of a run's own processes, and adds what they tell to those that `align` makes.
    "ranks": ("errors", "record", "match", "measure", "judge", "diagnose", "alignment"),
    "report": ("errors", "record", "match", "measure", "calibrate", "judge", "diagnose", "alignment"),
}
STAND_ON_EVERYTHING = ("classic", "steps", "cli", "live", "testing")
SHIMS = ("__init__", "__main__", "compare", "utils", "ReprodLogger", "ReprodDiffHelper")


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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upward_in_the_flow(path: Path) -> None:
    stage = stage_of(path)
    if stage in (*STAND_ON_EVERYTHING, *SHIMS):
        return
    assert stage in FLOW, f"{stage} is not in the flow; add it to FLOW with a reason"
    assert stages_imported(path) <= set(FLOW[stage])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_frameworks_are_known_only_where_they_belong(path: Path) -> None:
    inside = path.relative_to(ROOT).parts
    if inside[:2] in (
        ("capture", "frameworks"),
        ("transfer", "frameworks"),
        ("live", "frameworks"),
        ("steps", "frameworks"),
    ):
        return
    named = {name.split(".")[0] for name in imports_of(path)} & set(FRAMEWORKS)
    assert not named, f"{path} imports {named}"


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
