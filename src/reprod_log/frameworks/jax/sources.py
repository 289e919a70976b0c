"""Where an equation of a jaxpr was written: the line of the user's code, and the module whose call it belongs to."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

_LIBRARIES = re.compile(
    r"-packages/(jax|jaxlib|flax|haiku|equinox|optax|jaxtyping)/|/reprod_log/|/(contextlib|functools)\.py$"
)
_SCOPE = re.compile(r"\[([^\]]*)\]")


def line_of(equation: Any) -> str:
    """File, number and text of the innermost line outside of the libraries; '' when there is none."""
    trace = equation.source_info.traceback
    for frame in () if trace is None else trace.frames:
        if not _LIBRARIES.search(frame.file_name) and not frame.file_name.startswith("<"):
            text = linecache.getline(frame.file_name, frame.line_num).strip()
            place = f"{Path(frame.file_name).name}:{frame.line_num}"
            return f"{place}: {text}" if text else place
    return ""


def path_of(equation: Any, around: str) -> str:
    """The path of the module in whose call it stands; `around` where only what calls the jaxpr says so."""
    scopes = _SCOPE.findall(str(equation.source_info.name_stack))
    return scopes[-1] if scopes else around
