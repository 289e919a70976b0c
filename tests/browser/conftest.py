"""A real Chromium, and pages that fail the test when they ask for anything or complain about anything."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from reprod_log import Alignment, write_report

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OpenPage = Callable[..., Any]


def chromium_path() -> str | None:
    """The browser at hand: the one named by REPROD_CHROMIUM, else one of the system."""
    named = os.environ.get("REPROD_CHROMIUM", "")
    if named:
        return named
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium_path()
    with sync_playwright() as running:
        if path is None and not Path(running.chromium.executable_path).exists():
            pytest.skip(f"no browser: none of {', '.join(_NAMES)} is installed and REPROD_CHROMIUM is not set")
        chromium = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Watched:
    """What a page did that a report must not do."""

    def __init__(self) -> None:
        self.complaints: list[str] = []

    def watch(self, page: Any, *, allowed: str = "file:") -> None:
        page.on("console", lambda message: self._console(message))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._request(request.url, allowed))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _request(self, url: str, allowed: str) -> None:
        if not url.startswith((allowed, "data:", "blob:")):
            self.complaints.append(f"request: {url}")


@pytest.fixture
def watched() -> Iterator[Watched]:
    watcher = Watched()
    yield watcher
    assert watcher.complaints == []


@pytest.fixture
def open_report(browser: Any, tmp_path: Path, watched: Watched) -> Iterator[OpenPage]:
    """Write an alignment as HTML, open it from disk, and give back the page; options go to the browser's context."""
    contexts = []

    def opened(alignment: Alignment, *, at: str = "", **options: Any) -> Any:
        path = write_report(alignment, tmp_path / "report.html")
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        watched.watch(page)
        page.goto(path.as_uri() + at)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def page(browser: Any, watched: Watched) -> Iterator[Any]:
    """An empty page that is watched."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    watched.watch(opened)
    yield opened
    context.close()
