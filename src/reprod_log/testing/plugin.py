"""The pytest plugin: the fixture `reprod`, `--reprod-update`, `--reprod-report`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reprod_log.errors import NotAligned

if TYPE_CHECKING:
    from reprod_log.testing.baseline import Baseline

_FOLDER = "reprod_baselines"
_PROPERTY = "reprod_baseline"
_BASELINE = pytest.StashKey["Baseline"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("reprod_log", "numerical baselines")
    group.addoption("--reprod-update", action="store_true", help="Write the baselines of the tests that run.")
    group.addoption("--reprod-report", metavar="DIR", help="Write an HTML report of every failed baseline into DIR.")
    parser.addini(
        "reprod_baselines", f"Folder for baselines beside each test file (default: {_FOLDER}).", default=_FOLDER
    )


@pytest.fixture
def reprod(request: pytest.FixtureRequest) -> Baseline:
    """Records values and holds them against the baseline kept in the repository, at the end of the test."""
    # Only tests that use the fixture pay for the engine.
    from reprod_log.testing.baseline import Baseline

    config = request.config
    test = request.node.nodeid.partition("::")[2]
    folder = request.path.parent / str(config.getini("reprod_baselines")) / request.path.stem
    reports = config.getoption("--reprod-report")
    name = file_name(test)
    baseline = Baseline(
        folder / f"{name}.safetensors",
        update=bool(config.getoption("--reprod-update")),
        report=Path(reports) / f"{request.path.stem}.{name}.html" if reports else None,
    )
    request.node.stash[_BASELINE] = baseline
    return baseline


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A baseline that does not match fails the test itself, not its teardown; a test that failed stays failed."""
    result = yield
    baseline = item.stash.get(_BASELINE, None)
    if baseline is None:
        return result
    try:
        baseline.finish()
    except NotAligned as error:
        # The text is the first screen of the report; lines of our own code would only push it away.
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    if baseline.outcome:
        item.user_properties.append((_PROPERTY, f"{baseline.outcome}: {baseline.path}"))
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the baselines that were written. Properties of reports also come from other processes (pytest-xdist)."""
    outcomes = [
        str(value)
        for report in terminalreporter.stats.get("passed", [])
        for name, value in report.user_properties
        if name == _PROPERTY and report.when == "call"
    ]
    if not outcomes:
        return
    written = sorted(one for one in outcomes if one.startswith("written"))
    terminalreporter.section("reprod_log baselines")
    for line in written:
        terminalreporter.write_line(line)
    terminalreporter.write_line(f"{len(written)} written, {len(outcomes) - len(written)} unchanged")


def file_name(test: str) -> str:
    """A test's name as every file system takes it; a hash separates names that had to be changed."""
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", test).strip("_.")[:100]
    return safe if safe == test else f"{safe}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
