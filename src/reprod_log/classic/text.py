"""The text of a classic report, line by line as 1.0.1 writes it."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reprod_log.classic.difference import chosen_methods
from reprod_log.errors import UsageError

LINE = "[%(asctime)s] %(name)s %(levelname)s: %(message)s"
DATE = "%Y/%m/%d %H:%M:%S"


def stamped(message: str) -> str:
    """A line as 1.0.1's logger wrote it. No logging is involved, so nobody's logging is touched."""
    return f"[{time.strftime(DATE)}] root INFO: {message}"


def check_print_diff(
    diff_dict: Mapping[str, Any],
    diff_method: Any = "mean",
    diff_threshold: float = 1e-6,
    print_func: Callable[[str], Any] = print,
    indent: str = "\t",
    level: int = 0,
) -> bool:
    """Print every difference with its check, and return whether there was at least one and all passed."""
    methods = chosen_methods(diff_method)
    threshold = _number(diff_threshold)
    tabs = indent * level
    outcomes = []
    for key, value in diff_dict.items():
        if not _is_leaf(value):
            print_func(f"{tabs}{key}")
            outcomes.append(check_print_diff(value, methods, threshold, print_func, indent, level + 1))
            continue
        print_func(f"{tabs}{key}: ")
        for method in methods:
            # `<=`, so that equality passes and NaN does not.
            passed = bool(value[method] <= threshold)
            print_func(f"{tabs}{indent}{method} diff: check passed: {passed}, value: {value[method]}")
            outcomes.append(passed)
        for note in getattr(value, "notes", ()):
            print_func(f"{tabs}{indent}note: {note}")
    return bool(outcomes) and all(outcomes)


def _is_leaf(value: Mapping[str, Any]) -> bool:
    # A nested dict may itself have members called mean, max and min; its values are dicts then.
    return set(value) == {"mean", "max", "min"} and not any(isinstance(one, Mapping) for one in value.values())


def _number(threshold: Any) -> float:
    try:
        number = float(threshold)
    except (TypeError, ValueError):
        raise UsageError(f"diff_threshold must be a number, not {threshold!r}") from None
    if math.isnan(number):
        raise UsageError("diff_threshold is NaN; nothing could pass or fail it")
    return number


def init_logger(
    log_file: str | Path | None = None, name: str = "root", log_level: int = logging.DEBUG
) -> logging.Logger:
    """A logger that writes the classic lines to the screen and to `log_file`; the program's own stay untouched."""
    # Made directly and not by getLogger: 1.0.1 took over the root logger, which doubled lines and mixed files.
    logger = logging.Logger(name, log_level)
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout)]
    if log_file is not None:
        Path(log_file).parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(log_file, "w", encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(logging.Formatter(LINE, DATE))
        logger.addHandler(handler)
    return logger
