"""reprod judge: a saved alignment under another policy, without the tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from reprod_log.alignment import Alignment
from reprod_log.cli.answer import answer
from reprod_log.cli.groups import Judging, Output
from reprod_log.errors import UsageError

NAME = "judge"


def run(
    saved: Annotated[Path, typer.Argument(metavar="SAVED", help="An alignment saved as JSON.")],
    *,
    policy: Annotated[
        Literal["fixed", "calibrated"] | None, typer.Option(help="By default the policy of the saved alignment.")
    ] = None,
    judging: Judging,
    output: Output,
) -> int:
    """Judge a saved alignment again under another policy, without its tensors."""
    if judging.limit and policy == "calibrated":
        raise UsageError("--limit requires the fixed policy: drop --limit or --policy calibrated")
    alignment = Alignment.load(saved)
    options = judging.options(policy=None if judging.limit or policy else alignment.policy)
    return answer(alignment.judged_by(options.policy_for(calibrated=policy == "calibrated")), output)
