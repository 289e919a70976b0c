"""The recipes for conda and Docker say what pyproject.toml says; the way through a container is tried without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reprod_log.cli import run
from reprod_log.version import __version__

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
RECIPE = (ROOT / "packaging" / "conda" / "meta.yaml").read_text(encoding="utf-8")
DOCKER = (ROOT / "packaging" / "Dockerfile").read_text(encoding="utf-8")
OTHER_NAMES = {"python-xxhash": "xxhash"}
"""What conda-forge calls otherwise."""


def required(text: str) -> dict[str, str]:
    return dict(re.findall(r"([\w-]+) ?>=([\d.]+)", text))


def test_conda_recipe_has_the_version_and_the_dependencies_of_the_project() -> None:
    assert f'version = "{__version__}"' in RECIPE
    listed = PROJECT.partition("\ndependencies = [")[2].partition("\n]")[0]
    of_project = required(re.sub(r"^\s*#.*$", "", listed, flags=re.MULTILINE))
    run_time = required(RECIPE.partition("\n  run:\n")[2].partition("\ntest:")[0])
    python = run_time.pop("python")
    assert {OTHER_NAMES.get(name, name): least for name, least in run_time.items()} == of_project
    assert f'requires-python = ">={python}"' in PROJECT
    assert "reprod = reprod_log.cli:main" in RECIPE


def test_every_wheel_of_the_build_is_found_by_the_docker_file() -> None:
    made = re.search(r"--wheel-dir (\S+) /source", DOCKER)
    assert made is not None
    assert f"COPY --from=build {made.group(1)} " in DOCKER
    assert 'ENTRYPOINT ["reprod"]' in DOCKER
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {".git", "build", "dist"} <= set(ignored)


def test_commands_that_the_recipes_run_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert run(["--help"]) == 0
    assert __version__ in capsys.readouterr().out
