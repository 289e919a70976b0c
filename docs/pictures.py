"""Takes the pictures of the documentation from the demo's reports and the gallery's: `make pictures`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
GALLERY = HERE / "_reports" / "gallery"
sys.path.insert(0, str(HERE.parent / "tests" / "browser"))

from conftest import chromium_path

SIZES = {"report": (1200, 1240), "report_zh": (1200, 1240), "gallery_pooling": (1100, 820)}
USUAL = (1100, 560)


def pictures(demo: Path) -> dict[str, Path]:
    """The report of each picture."""
    found = {"report": demo / "mistake.html", "report_zh": demo / "mistake.html", "plan": demo / "report.html"}
    return found | {f"gallery_{path.stem}": path for path in sorted(GALLERY.glob("*.html"))}


def take(page: Any, name: str, report: Path) -> None:
    """One picture: the first screen, or the tensor where that says more."""
    page.goto(report.resolve().as_uri())
    if name == "gallery_pooling":
        page.locator("#answer a.key").first.click()
        page.locator(".tensors canvas").first.wait_for()
    page.wait_for_timeout(700)
    page.screenshot(path=HERE / "images" / f"{name}.png")
    print(f"docs/images/{name}.png")


def main() -> None:
    """Write every picture; `make demo` and docs/gallery.py make the reports."""
    demo = Path(sys.argv[1] if len(sys.argv) > 1 else "demo_output")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        for name, report in pictures(demo).items():
            width, height = SIZES.get(name, USUAL)
            language = "zh-CN" if name.endswith("_zh") else "en-US"
            context = browser.new_context(viewport={"width": width, "height": height}, locale=language)
            take(context.new_page(), name, report)
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
