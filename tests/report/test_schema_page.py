"""docs/formats.md names every field that a saved alignment has, and every format and suffix there is."""

import re
from pathlib import Path
from typing import Any

from made_alignments import calibrated, classic, hostile

from reprod_log.report import all_formats

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([A-Za-z_0-9.]+)`", PAGE))


def fields(value: Any, *, inside: str = "") -> set[str]:
    if isinstance(value, dict):
        own = set() if inside in ("seeds", "extra", "settings", "arguments") else set(value)
        return own.union(*(fields(one, inside=name) for name, one in value.items()))
    if isinstance(value, (list, tuple)):
        return set().union(*(fields(one, inside=inside) for one in value))
    return set()


def test_every_field_of_a_saved_alignment_is_documented() -> None:
    seen = set().union(*(fields(made.to_dict()) for made in (calibrated(), classic(), hostile())))
    assert seen - NAMED == set()
    assert {"worst_elements", "near", "confidence", "noise"} <= seen


def test_every_suffix_is_documented() -> None:
    suffixes = {suffix for module in all_formats().values() for suffix in module.SUFFIXES}
    assert suffixes <= set(re.findall(r"`(\.\w+)`", PAGE))
