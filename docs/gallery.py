"""Makes the reports of the gallery by running the page itself: `make docs` puts them into the site."""

from __future__ import annotations

import os
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
    os.chdir(REPORTS)
    names: dict[str, Any] = {}
    for block in blocks(HERE / "gallery.md"):
        if block.language == "python":
            # Reports then name the page and the line.
            exec(compile("\n" * block.line + block.text, str(block.page), "exec"), names)


if __name__ == "__main__":
    main()
