"""The error along depth as a picture without scripts, for notebooks and for the line of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from reprod_log.messages import Words
from reprod_log.report.view import ReportRow
from reprod_log.report.writing import number, plain

_MOST_POINTS = 400
_LABELS = 44
"""Room for the ends of the axis, in pictures that are high enough to have them."""


def depth_picture(rows: Sequence[ReportRow], phrase: Words, *, width: int, height: int) -> Markup:
    """The relative error of every entry in the order of execution, on a logarithmic axis; what fails in red.

    Empty where fewer than two entries differ.
    """
    measured = [(row, error) for row in rows if not row.key.run and (error := row.number("rel_l2")) is not None]
    finite = [error for _, error in measured if error > 0 and math.isfinite(error)]
    if len(finite) < 2:
        return Markup("")
    low = math.floor(math.log10(min(finite)))
    high = max(math.ceil(math.log10(max(finite))), low + 1)
    radius = 3 if height > 60 else 1.5
    left = _LABELS if height > 60 else 2 * radius

    def level(error: float) -> float:
        # Nothing lies on the lower edge, what is not finite on the upper one.
        share = 1.0 if not math.isfinite(error) else 0.0 if error <= 0 else (math.log10(error) - low) / (high - low)
        return 2 * radius + (height - 4 * radius) * (1 - share)

    every = max(1, len(measured) // _MOST_POINTS)
    kept = [one for place, one in enumerate(measured) if place % every == 0 or not one[0].status.passed]
    kept = kept[:: max(1, len(kept) // _MOST_POINTS)]
    dot = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{}" fill="{}"><title>{}: {}</title></circle>')
    dots = Markup("").join(
        dot.format(
            left + (width - left - 2 * radius) * place / max(1, len(kept) - 1),
            level(error),
            radius,
            Markup("#1a7f37" if row.status.passed else "#cf222e"),
            plain(phrase(row.title)),
            number(error),
        )
        for place, (row, error) in enumerate(kept)
    )
    text = Markup('<text x="0" y="{}" font-size="11" fill="currentColor">1e{}</text>')
    labels = [text.format(14, high), text.format(height - 4, low)] if height > 60 else []
    return Markup(
        '<svg viewBox="0 0 {} {}" style="width:100%;max-width:{}px" role="img" aria-label="{}">{}{}</svg>'
    ).format(
        width, height, width if height <= 60 else 10 * width, phrase.get("section.depth"), Markup("").join(labels), dots
    )
