"""Patches: a proven setting as the smallest change of the line on which the candidate's program makes the layer."""

from __future__ import annotations

import ast
import difflib
import inspect
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from reprod_log.diagnose.finding import Finding
from reprod_log.messages import Code, message
from reprod_log.recording import ModuleInfo

_PLAIN = (bool, int, float, str)


def with_patch(finding: Finding, modules: Mapping[str, ModuleInfo], partners: Mapping[str, str]) -> Finding:
    """A proven finding with its patch; as it is where no single line makes all of its layers, and only these.

    `modules` are the candidate's by path, `partners` has its paths by those of the reference.
    """
    if finding.confidence != "proven" or not finding.fixes or any(fix.weights for fix in finding.fixes):
        return finding
    paths = {partners.get(fix.layer, "") for fix in finding.fixes}
    settings = finding.fixes[0].settings
    lines = {modules[path].line for path in paths if path in modules}
    if len(lines) != 1 or any(fix.settings != settings for fix in finding.fixes):
        return finding
    line = lines.pop()
    made = {path: one.origin for path, one in modules.items() if one.line == line}
    if not line or set(made) != paths or len(set(made.values())) != 1:
        return finding
    found = _patched(line, next(iter(made.values())), settings)
    if found is None:
        return finding
    changed, patch = found
    advice = message("advice.patch", line=Code(line), code=Code(changed.strip()))
    return replace(finding, advice=(*finding.advice, advice), patch=patch)


def _patched(place: str, origin: str, settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """The changed line and a unified diff of its file; None when the call that makes the layer is not plain enough."""
    file, _, number = place.rpartition(":")
    try:
        text = Path(file).read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return None
    module, _, name = origin.rpartition(".")
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno == node.end_lineno == int(number) and _called(node) == name
    ]
    known = _parameters(getattr(sys.modules.get(module), name, None))
    lines = text.splitlines(keepends=True)
    if len(calls) != 1 or not lines[int(number) - 1].isascii():
        # Columns are counted in bytes.
        return None
    before = lines[int(number) - 1]
    changed = _changed(before, calls[0], settings, known)
    if changed is None:
        return None
    after = [*lines[: int(number) - 1], changed, *lines[int(number) :]]
    return changed, "".join(difflib.unified_diff(lines, after, f"a/{file}", f"b/{file}"))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _parameters(made: object) -> list[str]:
    """The parameters of a class in their order."""
    try:
        return list(inspect.signature(made).parameters) if callable(made) else []
    except ValueError:
        return []


def _changed(line: str, call: ast.Call, settings: Mapping[str, Any], known: Collection[str]) -> str | None:
    """The line with these settings in its call: in place of the value that stands there, or added at the end."""
    given: dict[str, ast.expr] = dict(zip(known, call.args, strict=False))
    given |= {one.arg: one.value for one in call.keywords if one.arg}
    spread = any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords)
    edits: list[tuple[int, int, str]] = []
    for name, value in settings.items():
        values = value if isinstance(value, (tuple, list)) else (value,)
        if spread or name not in known or not all(isinstance(one, _PLAIN) for one in values):
            return None
        if name in given:
            edits.append((given[name].col_offset, given[name].end_col_offset or 0, repr(value)))
        else:
            end = (call.end_col_offset or 0) - 1
            edits.append((end, end, f"{', ' if call.args or call.keywords else ''}{name}={value!r}"))
    for start, end, text in sorted(edits, reverse=True):
        line = line[:start] + text + line[end:]
    return line
