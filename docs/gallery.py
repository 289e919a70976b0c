"""Makes the reports of the gallery by running the page itself: `make docs` puts them into the site."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPORTS = HERE / "_reports" / "gallery"
"""Conf.py copies what lies in _reports into the site."""
sys.path.insert(0, str(HERE.parent / "tests" / "docs"))

from blocks import blocks


def main() -> None:
    """Run every block of gallery.md; each writes its report into the folder that it runs in."""
    warnings.simplefilter("ignore")
    REPORTS.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "gallery.md", REPORTS)
    os.chdir(REPORTS)
    names: dict[str, Any] = {"__name__": "gallery"}
    for block in blocks(HERE / "gallery.md"):
        if block.language == "python":
            # Reports then name the page and the line, and not where the page lies.
            exec(compile("\n" * block.line + block.text, block.page.name, "exec"), names)
    (REPORTS / "gallery.md").unlink()


if __name__ == "__main__":
    main()
