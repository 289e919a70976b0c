"""Pages made from the templates: one way to fill them, so that text is escaped everywhere alike."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from reprod_log.messages import words
from reprod_log.report.html_parts import HtmlParts
from reprod_log.report.plain import plain

TEMPLATES = Path(__file__).with_name("templates")


def page(template: str, *, language: str = "en", **values: Any) -> str:
    """The template filled in: autoescaped, with the report's style (`style`) and sentences (`p`) at hand."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["plain"] = plain
    return environment.get_template(template).render(
        p=HtmlParts(words(language)), style=(TEMPLATES / "report.css").read_text(encoding="utf-8"), **values
    )


def scripts(*names: str) -> str:
    """Our own scripts of these names (paths below templates), one after the other."""
    return "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names)


def content_policy(scripts: list[str]) -> str:
    """What the browser may do with the page: run these very scripts, nothing else, and fetch nothing at all."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def embedded(data: dict[str, Any]) -> str:
    """JSON that nothing inside can end early: no `<` is left in it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
