"""How Sphinx makes the site out of the Markdown in this folder. Nothing it makes asks the network for anything."""

import re
from pathlib import Path

from sphinx.search.en import SearchEnglish

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
exclude_patterns = ["_build", "_reports", "_templates"]
# The reports of the gallery, where docs/gallery.py made them.
html_extra_path = ["_reports"] if (HERE / "_reports").is_dir() else []
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_search_language = "mixed"
suppress_warnings = ["myst.header"]

# The order of the navigation. A page that is not there is left out; one that is not named here comes last.
START = ["install", "quickstart", "gallery", "workflow", "my_numbers_differ", "migrating"]
UNDERSTAND = [
    "verdict", "precision", "diagnosis", "weight_map", "steps", "recording", "zoo", "real_models", "group_norm",
    "speed", "promises",
]  # fmt: skip
LOOK_UP = ["commands", "exit_codes", "metrics", "formats", "testing", "messages", "glossary", "house"]
CHINESE = [
    "install", "quickstart", "gallery", "workflow", "my_numbers_differ", "migrating", "verdict", "precision",
    "diagnosis", "weight_map", "steps", "recording", "zoo", "real_models", "speed", "promises", "commands", "exit_codes",
    "metrics", "formats", "ranks", "testing", "agents", "messages", "glossary",
]  # fmt: skip


def _toctree(title: str, names: list[str]) -> str:
    listed = "\n".join(names)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n"


def _navigation(folder: Path) -> str:
    there = {path.stem for path in folder.glob("*.md")} - {"index"}
    frameworks = sorted(f"frameworks/{path.stem}" for path in (folder / "frameworks").glob("*.md"))
    if folder.name == "zh":
        known = [name for name in CHINESE if name in there]
        return _toctree("中文", [*known, *sorted(there - set(known)), *frameworks])
    groups = [("Start", START), ("Understand", UNDERSTAND), ("Look up", LOOK_UP)]
    rest = sorted(there.difference(*(names for _, names in groups)))
    parts = [_toctree(title, [name for name in names if name in there]) for title, names in groups]
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


class Mixed(SearchEnglish):
    """English words, and Chinese by pairs of characters: there are no spaces to tell its words apart."""

    lang = "mixed"
    _chinese = re.compile(r"[\u4e00-\u9fff]+")
    js_splitter_code = """
function splitQuery(query) {
  const words = query.split(/[^\\p{Letter}\\p{Number}_]+/gu).filter(Boolean);
  return words.flatMap((word) => word.split(/([\\u4e00-\\u9fff]+)/u).filter(Boolean).flatMap((part) =>
    /[\\u4e00-\\u9fff]/u.test(part) && part.length > 2 ? Array.from({ length: part.length - 1 }, (_, at) => part.slice(at, at + 2)) : [part]));
}
"""

    def split(self, input: str) -> list[str]:
        """The words of a text, and every pair of neighbouring Chinese characters."""
        words = super().split(self._chinese.sub(" ", input))
        runs = self._chinese.findall(input)
        return [*words, *(run[at : at + 2] for run in runs for at in range(max(1, len(run) - 1)))]


def _other_language(app: object, page: str, template: str, context: dict[str, object], tree: object) -> None:
    """The same page in the other language, or its first page where there is none."""
    chinese = page.startswith("zh/")
    name = page.removeprefix("zh/") if chinese else f"zh/{page}"
    there = (HERE / f"{name}.md").is_file()
    context["other_page"] = name if there else "index" if chinese else "zh/index"
    context["other_language"] = "English" if chinese else "中文"


def setup(app: object) -> None:
    app.connect("source-read", _read)  # type: ignore[attr-defined]
    app.connect("html-page-context", _other_language)  # type: ignore[attr-defined]
    app.add_search_language(Mixed)  # type: ignore[attr-defined]
