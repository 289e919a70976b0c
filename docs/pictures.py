"""Takes the pictures of the documentation from the demo's reports: `make pictures`."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "browser"))

from conftest import chromium_path

PICTURES = {
    "report": ("mistake.html", 1200, 1240, "en-US"),
}
"""The name of a picture: the report, the size of the window, the reader's language."""


def main() -> None:
    """Write every picture; `make demo` makes the reports."""
    demo = Path(sys.argv[1] if len(sys.argv) > 1 else "demo_output")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        for name, (report, width, height, language) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, locale=language)
            page.goto((demo / report).resolve().as_uri())
            page.wait_for_timeout(500)
            page.screenshot(path=HERE / "images" / f"{name}.png")
            print(f"docs/images/{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
