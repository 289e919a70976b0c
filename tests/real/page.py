"""docs/real_models.md from the outcomes that the runs have left in build/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from real.cases import DEVELOPMENT, LIBRARIES, PADDLENLP, SAME, SCORED, Case, all_cases
from real.outcome import Outcome, kept, totals

_ROOT = Path(__file__).resolve().parents[2]
_LONGEST = 150

_HEAD = """# Models of public libraries

`make test-real` compares models that nobody here wrote, as they are: torchvision with paddle.vision and timm,
transformers with paddlenlp, and one library with itself after a change of kernel, compiler, precision or memory. They
are small and their weights random; nothing is downloaded. `tests/real/run.py --page` makes this page from the outcomes
of these runs; what is not in it was not run.

A pair that is the same function is *right* when it passes and no cause is given. A pair that differs is *found* when it
fails, *placed* when the first place reported is where it differs, and *named* when a cause gives the reason. Of the
scored half only totals are shown: its models are not looked into, so that nothing is fitted to them.
"""
_HALVES = ("half", "cases that were run", "the same function", "differing")
_ALIKE = ("pair", "verdict", "right", "processor seconds", "peak MB")
_APART = ("pair", "verdict", "first place", "placed", "named", "first cause")


def write_page() -> None:
    """Write the page again; rows of cases that no longer exist are left out."""
    outcomes = {name: one for place in (LIBRARIES, PADDLENLP) for name, one in kept(place).items()}
    rows = [(case, outcomes[case.name]) for case in all_cases() if case.name in outcomes]
    (_ROOT / "docs" / "real_models.md").write_text("\n".join([_HEAD, *_body(rows)]) + "\n")


def _body(rows: list[tuple[Case, Outcome]]) -> Iterator[str]:
    yield from _header(_HALVES)
    graded = totals([one for _, one in rows])
    for half in (DEVELOPMENT, SCORED):
        run, all_of_it = (sum(case.half == half for case in some) for some in ([case for case, _ in rows], all_cases()))
        same, differing = graded.get(half, ("not run", "not run"))
        yield f"| {half} | {run} of {all_of_it} | {same} | {differing} |"
    shown = [(case, one) for case, one in rows if case.half == DEVELOPMENT]
    yield "\n## The same function\n"
    yield from _header(_ALIKE)
    for case, one in shown:
        if case.truth == SAME:
            told = "" if one.right else _cell(one.first)
            yield f"| {case.name} | {one.verdict} {told} | {_yes(one.right)} | {one.seconds:.0f} | {one.megabytes} |"
    yield "\n## Pairs that differ\n"
    yield from _header(_APART)
    for case, one in shown:
        if case.truth != SAME:
            grades = f"{_yes(one.placed)} | {_yes(one.named)}"
            cause = _cell(one.causes[0]) if one.causes else ""
            name = f"{case.name} ({case.why})" if case.why else case.name
            yield f"| {name} | {one.verdict} | {_cell(one.first)} | {grades} | {cause} |"


def _header(titles: tuple[str, ...]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"


def _yes(grade: bool) -> str:
    return "yes" if grade else "no"


def _cell(text: str) -> str:
    """One line of a table, of a bearable length."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
