"""The documentation's site: built in strict mode, read from disk in a real browser, asking the network for nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def built(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(source), str(target)]
    # Colours would stand in the messages.
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1", "PYTHONHASHSEED": "0"}
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = built(DOCS, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    missing = [path for path in DOCS.rglob("*.md") if not (site / path.relative_to(DOCS)).with_suffix(".html").exists()]
    assert not missing


@pytest.mark.parametrize("name", ["index", "my_numbers_differ", "commands", "zh/my_numbers_differ"])
def test_page_opens_from_disk(name: str, site: Path, page: Any) -> None:
    page.goto((site / f"{name}.html").as_uri())
    assert page.locator("h1").first.inner_text()
    for image in page.locator("article img").all():
        assert image.evaluate("one => one.naturalWidth") > 100
    assert page.locator(".sidebar-tree a", has_text="Quickstart").count() == 1


def test_navigation_and_search_work_from_disk(site: Path, page: Any) -> None:
    page.goto((site / "index.html").as_uri())
    page.locator(".sidebar-tree a", has_text="My numbers differ").click()
    assert page.locator("h1").first.inner_text().startswith("My numbers differ")
    page.goto((site / "search.html").as_uri() + "?q=isolated")
    page.locator("#search-results li a").first.wait_for(timeout=20_000)


@pytest.mark.parametrize("words", ["舍入", "噪声底", "首个分歧"])
def test_search_finds_chinese_words(site: Path, page: Any, words: str) -> None:
    page.goto((site / "search.html").as_uri() + f"?q={words}")
    page.locator("#search-results li a[href^='zh/']").first.wait_for(timeout=20_000)


def test_search_does_not_find_what_is_not_there(site: Path, page: Any) -> None:
    page.goto((site / "search.html").as_uri() + "?q=舍底首声")
    page.get_by_text("did not match any documents").wait_for(timeout=20_000)


def test_language_can_be_switched_on_every_page(site: Path, page: Any) -> None:
    page.goto((site / "verdict.html").as_uri())
    page.locator(".sidebar-language a").click()
    assert page.url.endswith("zh/verdict.html")
    page.locator(".sidebar-language a").click()
    assert page.url.endswith("/verdict.html")
    assert "zh" not in page.url.rsplit("/", 2)[1:]
    page.goto((site / "house.html").as_uri())
    page.locator(".sidebar-language a").click()
    assert page.url.endswith("zh/index.html")


def test_broken_link_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy(DOCS / "conf.py", source)
    (source / "zh").mkdir()
    (source / "zh" / "index.md").write_text("# zh\n", encoding="utf-8")
    (source / "index.md").write_text("# Index\n\n[there](missing.md)\n", encoding="utf-8")
    done = built(source, tmp_path / "site")
    assert done.returncode != 0
    assert "missing.md" in done.stderr
