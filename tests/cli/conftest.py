"""An interpreter with torch loaded, for the programs that commands start."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forks import python_with_torch


@pytest.fixture(scope="session")
def _python_with_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with python_with_torch(tmp_path_factory.mktemp("python")) as python:
        yield python


@pytest.fixture
def torch_is_loaded(_python_with_torch: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Commands start their programs in forks of a process that has loaded torch; this is the interpreter."""
    monkeypatch.setattr(sys, "executable", str(_python_with_torch))
    return str(_python_with_torch)
