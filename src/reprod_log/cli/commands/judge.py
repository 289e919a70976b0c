"""reprod judge: a saved alignment under another policy, without the tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.alignment import Alignment, AlignOptions
from reprod_log.cli.answer import Output, answer
from reprod_log.cli.options import (
    Accept,
    AllowIncomplete,
    AllowUnmatched,
    AllRows,
    EqualNan,
    Full,
    Language,
    Limits,
    ModuleTree,
    Reports,
)
from reprod_log.errors import UsageError

NAME = "judge"


def run(
    saved: Annotated[Path, typer.Argument(metavar="SAVED", help="An alignment saved as JSON.")],
    policy: Annotated[str, typer.Option(help="fixed or calibrated; the saved one's own by default.")] = "",
    limit: Limits = [],  # noqa: B006  # typer's way of saying 'none given'
    allow_unmatched: AllowUnmatched = [],  # noqa: B006
    accept: Accept = [],  # noqa: B006
    allow_incomplete: AllowIncomplete = False,
    equal_nan: EqualNan = False,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Save the new judgement.")] = None,
    report: Reports = [],  # noqa: B006
    full: Full = False,
    language: Language = "en",
    tree: ModuleTree = False,
    all_rows: AllRows = False,
) -> int:
    """Judge a saved alignment again under another policy, without its tensors."""
    if limit and policy == "calibrated":
        raise UsageError("--limit requires the fixed policy: drop --limit or --policy calibrated")
    output = Output(json, report, full, language, tree, all_rows)
    alignment = Alignment.load(saved)
    if policy not in ("", "fixed", "calibrated"):
        raise UsageError(f"--policy is fixed or calibrated, not {policy!r}")
    options = AlignOptions.of(
        policy=None if limit or policy else alignment.policy,
        limits=limit,
        allow_unmatched=allow_unmatched,
        accept=accept,
        allow_incomplete=allow_incomplete,
        equal_nan=equal_nan,
    )
    return answer(alignment.judged_by(options.policy_for(calibrated=policy == "calibrated")), output)
