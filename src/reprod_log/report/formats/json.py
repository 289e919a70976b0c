"""The alignment as JSON: everything in it, to be read back and judged again without the tensors."""

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
    return json.dumps(_encoded(alignment.to_dict()), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def read(path: str | Path) -> dict[str, Any]:
    """What `render` wrote, as plain values."""
    try:
        content = json.loads(Path(path).read_bytes(), object_hook=_decoded)
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise UnreadableFile(f"{path} is not a saved alignment: it holds a {type(content).__name__}")
    return content


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
