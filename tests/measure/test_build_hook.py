"""What the build hook does to a wheel, with and without a compiler; hatchling itself is stood in for."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from ways import compiled

from reprod_log.measure import build_kernel

ROOT = Path(__file__).parents[2]
FOLDER = Path("src/reprod_log/measure")
SKETCH_FOLDER = Path("src/reprod_log/recording")


class Said(list):  # type: ignore[type-arg]
    def display_info(self, text: str) -> None:
        self.append(text)

    display_warning = display_info


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the hook on a copy of the sources and gives what it told hatchling and the user."""
    interface = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / SKETCH_FOLDER).mkdir(parents=True)
    for name in (FOLDER / "build_kernel.py", FOLDER / "kernel.c", SKETCH_FOLDER / "sketch.c"):
        shutil.copy(ROOT / name, tmp_path / name)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(target: str = "wheel") -> tuple[dict[str, Any], Said]:
        hook = module.KernelHook()
        hook.root, hook.target_name, hook.app = str(tmp_path), target, Said()
        data: dict[str, Any] = {"artifacts": [], "pure_python": True}
        before = dict(sys.modules)
        try:
            hook.initialize("standard", data)
        finally:
            for name in set(sys.modules) - set(before):
                del sys.modules[name]
        return data, hook.app

    run.built_file = tmp_path / FOLDER / build_kernel.LIBRARY.name  # type: ignore[attr-defined]
    return run


def test_a_wheel_with_the_kernel_is_for_this_platform_and_any_python(build: Any) -> None:
    if compiled("plain kernel") is None:
        pytest.skip("no compiler")
    data, _ = build()
    assert data["artifacts"] == [
        (FOLDER / build_kernel.LIBRARY.name).as_posix(),
        (SKETCH_FOLDER / build_kernel.SKETCH_LIBRARY.name).as_posix(),
    ]
    assert data["pure_python"] is False
    assert data["tag"].startswith("py3-none-")
    assert build.built_file.exists()


@pytest.mark.parametrize(("variable", "value", "said"), [
    ("CC", "/no/such/compiler", "not built"),
    (build_kernel.SWITCH, "1", "is set"),
])  # fmt: skip
def test_a_wheel_without_the_kernel_is_pure_and_keeps_nothing_old(
    build: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    build.built_file.write_text("left by an earlier build")
    data, told = build()
    assert data == {"artifacts": [], "pure_python": True}
    assert said in told[0]
    assert not build.built_file.exists()


def test_an_sdist_carries_no_library(build: Any) -> None:
    data, told = build("sdist")
    assert data == {"artifacts": [], "pure_python": True}
    assert not told


def test_licence_of_the_project_is_in_the_tree_and_goes_into_the_wheel() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert 'license = "Apache-2.0"\nlicense-files = ["LICENSE"]\n' in project
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
