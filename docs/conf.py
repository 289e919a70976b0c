"""How Sphinx makes the site out of the Markdown in this folder. Nothing it makes asks the network for anything."""

import re
from pathlib import Path

HERE = Path(__file__).parent

project = "reprod_log"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "reprod_log"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
# Summaries of search results would be fetched, which a page opened from disk may not do.
html_show_search_summary = False
myst_heading_anchors = 3
exclude_patterns = ["_build"]
suppress_warnings = ["myst.header"]

# The order of the navigation. A page that is not there is left out; one that is not named here comes last.
START = ["quickstart", "workflow", "my_numbers_differ", "migrating"]
UNDERSTAND = ["verdict", "diagnosis", "steps", "recording", "zoo", "group_norm", "speed", "promises"]
LOOK_UP = ["commands", "exit_codes", "metrics", "formats", "testing", "messages", "glossary", "house"]
CHINESE = ["quickstart", "workflow", "my_numbers_differ", "verdict", "glossary"]


def _toctree(title: str, names: list[str]) -> str:
    listed = "\n".join(names)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n"


def _navigation(folder: Path) -> str:
    there = {path.stem for path in folder.glob("*.md")} - {"index"}
    if folder.name == "zh":
        known = [name for name in CHINESE if name in there]
        return _toctree("中文", [*known, *sorted(there - set(known))])
    groups = [("Start", START), ("Understand", UNDERSTAND), ("Look up", LOOK_UP)]
    rest = sorted(there.difference(*(names for _, names in groups)))
    parts = [_toctree(title, [name for name in names if name in there]) for title, names in groups]
    frameworks = sorted(f"frameworks/{path.stem}" for path in (folder / "frameworks").glob("*.md"))
    parts.append(_toctree("Frameworks", frameworks))
    if rest:
        parts.append(_toctree("More", rest))
    return "".join([*parts, _toctree("中文", ["zh/index"])])


def _read(app: object, name: str, source: list[str]) -> None:
    """Add the navigation to the first pages; say paths of the repository outside of this folder as text."""
    folder = (HERE / name).parent
    if name in ("index", "zh/index"):
        source[0] += _navigation(folder)

    def outside(link: re.Match[str]) -> str:
        text, target = link.group(1), link.group(2)
        inside = (folder / target.partition("#")[0]).resolve().is_relative_to(HERE.resolve())
        return link.group(0) if inside else f"{text} (`{(folder / target).resolve().relative_to(HERE.parent)}`)"

    source[0] = re.sub(r"\[([^\]]+)\]\((\.\.?/[^)]+)\)", outside, source[0])


def setup(app: object) -> None:
    app.connect("source-read", _read)  # type: ignore[attr-defined]
