"""reprod site: every saved alignment of a folder as a site of plain files that can be published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.alignment import Alignment
from reprod_log.cli.ending import give, tell_next, tell_written
from reprod_log.cli.options import AsJson, Language
from reprod_log.errors import UsageError
from reprod_log.report.overview import overview_answer, write_overview
from reprod_log.report.serve.listing import Listing
from reprod_log.steps.overview import Overview, StepResult

NAME = "site"


def run(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with saved alignments.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the site goes.")] = Path("site"),
    language: Language = "en",
    json: AsJson = None,
) -> int:
    """Write all saved alignments below DIR as a static site: a table of runs, and a report for each."""
    steps = tuple(_steps(folder))
    if not steps:
        raise UsageError(f"there is no saved alignment below {folder}; reprod compare REF CAND --json FILE makes one")
    overview = Overview("site", folder.resolve().name, folder, steps)
    output.mkdir(parents=True, exist_ok=True)
    tell_written(write_overview(overview, output / "index.html", language=language))
    give(lambda: overview_answer(overview))
    tell_next("python", "-m", "http.server", "--directory", output)
    return 0


def _steps(folder: Path) -> list[StepResult]:
    """The saved alignments by their paths below the folder, in the order of these."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; reprod site takes the folder with saved alignments")
    listing = Listing(folder)
    try:
        found = sorted(one.name for one in listing.items() if one.kind == "alignment")
    finally:
        listing.close()
    return [StepResult(name, None, None, None, Alignment.load(folder / name)) for name in found]
