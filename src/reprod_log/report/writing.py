"""Writing: names and numbers as every report and every command writes them. Loads nothing but what it needs."""

from __future__ import annotations

import math

from reprod_log.recording import Key


def plain(text: str | Key) -> str:
    """The text with control, direction-changing and invisible characters made visible as escapes."""
    text = str(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(ord(c)) for c in text)


def shortened(text: str, most: int) -> str:
    """The text cut in its middle to at most `most` characters; both ends of a key say something."""
    if len(text) <= most:
        return text
    tail = most // 2
    return f"{text[: most - tail - 1]}…{text[len(text) - tail :]}"


def number(value: float | None) -> str:
    """A statistic in two digits: enough to see the size, narrow enough for a table; – when there is none."""
    if value is None:
        return "–"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return _exponent_cut(f"{value:.1e}")


def times(value: float | None) -> str:
    """A ratio, as people say it: 0.3, 12, 3,762, 4.5e+6."""
    return "–" if value is None else f"{value:,.0f}" if 10 <= value < 10_000 else _exponent_cut(f"{value:.2g}")


def _exponent_cut(text: str) -> str:
    return text.replace("e-0", "e-").replace("e+0", "e+")


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
