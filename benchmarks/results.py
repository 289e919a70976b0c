"""RESULTS.md: one file that several benchmarks write to, each its own section and nothing else.

    from results import write_section
    write_section("Recording", text)

A section is a heading of the second level and everything up to the next one. Writing it again replaces it where it
stands; a new one goes to the end.
"""

from __future__ import annotations

import platform
import re
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
_INTRODUCTION = """# What was measured

Ratios within one run count; absolute times depend on the machine and on what else it does. `make bench` writes every
section anew.
"""
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def write_section(title: str, text: str, *, path: Path = RESULTS) -> Path:
    """Replace the section with this title, or add it at the end; the other sections stay as they are."""
    if "\n" in title or not title.strip():
        raise ValueError(f"a title is one line, not {title!r}")
    if _HEADING.search(text):
        raise ValueError("the text of a section has no headings of the second level; use ### inside")
    content = path.read_text(encoding="utf-8") if path.exists() else _INTRODUCTION
    section = f"## {title.strip()}\n\n{text.strip()}\n"
    headings = list(_HEADING.finditer(content))
    ends = [found.start() for found in headings[1:]] + [len(content)]
    for found, end in zip(headings, ends, strict=False):
        if found.group(1).strip() == title.strip():
            rest = content[end:]
            content = content[: found.start()] + section + ("\n" + rest if rest else "")
            break
    else:
        content = content.rstrip("\n") + "\n\n" + section
    path.write_text(content, encoding="utf-8")
    return path


def versions(*packages: str) -> str:
    """Today's date, the machine in a few words, and the versions of Python and these packages."""
    found = [f"Python {platform.python_version()}"]
    for name in packages:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} not installed")
    return f"{date.today().isoformat()}, {platform.system()} {platform.machine()}, {', '.join(found)}"
