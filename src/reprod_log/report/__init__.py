"""report: shows an Alignment; never computes one."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from reprod_log.errors import UsageError, listed
from reprod_log.messages import Name, message
from reprod_log.progress import shown, stage
from reprod_log.recording.files import replacing
from reprod_log.report import formats

if TYPE_CHECKING:
    from reprod_log.alignment import Alignment


@dataclass(frozen=True)
class Options:
    """How much to show, and in which language. Each format makes of it what fits it."""

    full: bool = False
    """Every entry, where the usual report shows only what does not pass."""
    language: str = "en"
    assets: str = ""
    """The folder, seen from an HTML page, of the scripts that several pages share; '' for one that has its own."""
    tensors: str = ""
    """The address that answers with the tensor of an entry, where a server has the recordings."""


USUAL = Options()


def write_report(
    alignment: Alignment, path: str | Path, *, format: str | None = None, full: bool = False, language: str = "en"
) -> Path:
    """Write the report in the format given by the suffix (or `format`), and return the path.

    `full` shows every entry, and not only those that do not pass; `language` is en or zh.
    """
    path = Path(path)
    with shown(language=language), stage(message("progress.report", path=Name(path))):
        content = render_report(alignment, format=format or format_of(path), full=full, language=language)
        with replacing(path) as file:
            file.write(content.encode("utf-8", "surrogatepass"))
    return path


def render_report(alignment: Alignment, *, format: str, full: bool = False, language: str = "en") -> str:
    """The report as text, in the format of that name."""
    known = all_formats()
    if format not in known:
        raise UsageError(f"no report format {format!r}; known are {listed(known, most=20)}")
    content: str = known[format].render(alignment, Options(full=full, language=language))
    return content


def format_of(path: str | Path) -> str:
    """The name of the format that the suffix of `path` means."""
    for name, module in all_formats().items():
        if Path(path).suffix.lower() in module.SUFFIXES:
            return name
    known = [suffix for module in all_formats().values() for suffix in module.SUFFIXES]
    raise UsageError(f"cannot tell the report format from the suffix of {path}; known are {listed(known, most=20)}")


def all_formats() -> dict[str, ModuleType]:
    """Every format in report/formats, by name."""
    return {
        found.name: import_module(f"{formats.__name__}.{found.name}")
        for found in pkgutil.iter_modules(formats.__path__)
    }
