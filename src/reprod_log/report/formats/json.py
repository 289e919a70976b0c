"""The alignment as JSON: everything in it, to be read back and judged again without the tensors.

One row per line, so that two saved alignments can be compared with `diff`. docs/formats.md describes the fields.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.errors import UnreadableFile
from reprod_log.report.options import USUAL, Options

SUFFIXES = (".json",)

_NONFINITE = "nonfinite"


def render(alignment: Alignment, options: Options = USUAL) -> str:
    """All of the alignment; nothing is left out in any form of it."""
    return _laid_out(alignment.to_dict(), depth=2) + "\n"


def read(path: str | Path) -> dict[str, Any]:
    """What `render` wrote, as plain values."""
    if Path(path).is_dir():
        raise UnreadableFile(
            f"{path} is a folder, and a saved alignment is a JSON file: `reprod compare REF CAND --json FILE` makes "
            "one. For a recording use `reprod show`, for a folder of logs `reprod check`."
        )
    try:
        content = json.loads(Path(path).read_bytes(), object_hook=_decoded)
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(
            f"{path} is not a saved alignment: it is not valid JSON ({error}). `reprod compare REF CAND --json FILE` "
            "makes one."
        ) from error
    if not isinstance(content, dict):
        raise UnreadableFile(f"{path} is not a saved alignment: it holds a {type(content).__name__}")
    return content


def _laid_out(value: Any, *, depth: int, indent: str = "") -> str:
    """Objects of the first levels field by field, lists in them item by item, everything deeper in one line."""
    inner = indent + " "
    if isinstance(value, dict) and value and depth:
        fields = (f"{_line(str(name))}: {_laid_out(one, depth=depth - 1, indent=inner)}" for name, one in value.items())
        return "{\n" + ",\n".join(inner + field for field in fields) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join(inner + _line(_encoded(one)) for one in value) + f"\n{indent}]"
    return _line(_encoded(value))


def _line(value: Any) -> str:
    # A lone surrogate (a key that is no text) cannot be written as UTF-8; JSON's own escape can hold it.
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    return text if text.isascii() else "".join(c if not 0xD800 <= ord(c) < 0xE000 else f"\\u{ord(c):04x}" for c in text)


def _encoded(value: Any) -> Any:
    """JSON has no NaN and no infinity, so they are written as {"nonfinite": "nan"}."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_NONFINITE: str(value)}
    if isinstance(value, dict):
        return {str(name): _encoded(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(one) for one in value]
    return value


def _decoded(value: dict[str, Any]) -> Any:
    if set(value) == {_NONFINITE} and value[_NONFINITE] in ("nan", "inf", "-inf"):
        return float(value[_NONFINITE])
    return value
