"""report: shows an Alignment; never computes one."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from reprod_log.errors import UsageError, listed
from reprod_log.record.atomic import replacing
from reprod_log.report import formats

if TYPE_CHECKING:
    from reprod_log.alignment import Alignment


def write_report(alignment: Alignment, path: str | Path, *, format: str | None = None) -> Path:
    """Write the report in the format that the suffix (or `format`) names, and give back the path."""
    path = Path(path)
    chosen = _by_name(format) if format else _by_suffix(path)
    with replacing(path) as file:
        file.write(chosen.render(alignment).encode("utf-8", "surrogatepass"))
    return path


def all_formats() -> dict[str, ModuleType]:
    """Every format in report/formats, by name."""
    return {
        found.name: import_module(f"{formats.__name__}.{found.name}")
        for found in pkgutil.iter_modules(formats.__path__)
    }


def _by_name(name: str) -> ModuleType:
    known = all_formats()
    if name not in known:
        raise UsageError(f"no report format {name!r}; known are {listed(known, most=20)}")
    return known[name]


def _by_suffix(path: Path) -> ModuleType:
    for module in all_formats().values():
        if path.suffix.lower() in module.SUFFIXES:
            return module
    known = [suffix for module in all_formats().values() for suffix in module.SUFFIXES]
    raise UsageError(f"cannot tell the report format from the suffix of {path}; known are {listed(known, most=20)}")
