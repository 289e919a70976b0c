"""Small pictures of benchmark results, as SVG beside RESULTS.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).with_name("plots")


def lines(
    name: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x: str,
    y: str,
    log: tuple[bool, bool] = (True, True),
) -> Path:
    """One line for each series of (x, y), written to plots/<name>.svg."""
    import matplotlib

    matplotlib.use("svg")
    # The same data gives the same file: no date, no random names; text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "reprod_log", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for title, points in series.items():
        axes.plot([one for one, _ in points], [two for _, two in points], marker="o", markersize=3, label=title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if log[0]:
        axes.set_xscale("log", base=2)
    if log[1]:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path
