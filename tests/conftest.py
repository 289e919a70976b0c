"""Settings of the whole suite."""

import gc
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from fast import HEAVY, is_heavy
from reprod_log.pairing.links import WeightMap
from sampling import WHOLE

# The same examples every time: a test that fails must fail again. Longer, random searches belong to fuzzing.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

_LONG = (
    "examples", "steps", "zoo", "browser", "test_doc_examples.py", "test_wrong_ports.py", "test_wrong_passes.py",
    "test_quantised.py", "test_parts_and_states.py", "test_spooled_runs.py", "test_other_cuts.py",
    "test_align_models.py",
)  # fmt: skip
"""Folders and files that take longest."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="Leave out tests that need a framework or a browser.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--fast") and is_heavy(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """With --fast, a test that imports a framework all the same fails: its source did not show it."""
    before = HEAVY & sys.modules.keys()
    result = yield
    if item.config.getoption("--fast") and (imported := (HEAVY & sys.modules.keys()) - before):
        pytest.fail(f"--fast, and {', '.join(sorted(imported))} was imported; see tests/fast.py")
    return result


@pytest.fixture
def weights_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names pair the weights, as where programs cannot be recorded; the search for a map takes longest in a wrong port.

    For tests of what is found behind the map, in models of the same names; pairing/, ports/, trust/, zoo/ and most
    tests of alignment/ and diagnose/ go the whole way.
    """
    monkeypatch.setattr("reprod_log.alignment.loading.search_weight_map", lambda *_: WeightMap((), agrees=False))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "whole: slow, and like a test that always runs; only with WHOLE=1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first, so that no process is left alone with one at the end."""
    left_out = [] if WHOLE else [item for item in items if item.get_closest_marker("whole")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("whole")]
    items.sort(key=lambda item: item.path.parent.name not in _LONG and item.path.name not in _LONG)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now stays: looking through all of it at every collection takes longer than many tests."""
    gc.collect()
    gc.freeze()
