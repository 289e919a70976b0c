"""What importing the package costs, and what it offers."""

import subprocess
import sys
from pathlib import Path

import pytest

import reprod_log

FRAMEWORKS = (
    "torch",
    "paddle",
    "jax",
    "tensorflow",
    "mindspore",
    "onnx",
    "onnxruntime",
    "keras",
    "flax",
    "equinox",
    "haiku",
)


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
    assert "rich" in modules_after("import reprod_log, rich")


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
