"""The process of one side of a plan: records the steps it is told to, one after the other.

    python -m reprod_log.steps.side_process PLAN OPTIONS

reads one JSON object per line ({"step": …, "side": …, "path": …}) and answers each with one ({"problem": …}, '' when
the recording lies at the path). Whatever the plan's own code prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from reprod_log.recording import Recording
from reprod_log.steps import subject_module
from reprod_log.steps.plan import Options, Plan, SideName, plan_at


def record_side(plan: Plan, title: str, side: SideName) -> Recording:
    """What one side gives for a step, with the hash of the plan's data in it."""
    step = plan.step(title)
    made = step.side(side)()
    if not isinstance(made, Recording):
        record = subject_module(step.subject).record
        made = record(made, **step.arguments_for(record))
    return made if plan.data is None else plan.data.stamped(made)


def main(arguments: list[str]) -> None:
    """Answer requests until the input ends."""
    # The answers keep the real standard output to themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    path, given = arguments
    known = json.loads(given)
    options = Options(full=known["full"], as_published=known["as_published"], folder=Path(known["folder"]))
    asker = os.getppid()
    with plan_at(path, options) as plan:
        for line in sys.stdin:
            if os.getppid() != asker:
                # Whoever asked is gone; requests that were sent ahead have no reader any more.
                return
            request = json.loads(line)
            problem = ""
            try:
                record_side(plan, request["step"], request["side"]).save(request["path"])
            except (
                Exception
            ) as error:  # whatever the plan's code raises becomes the step's problem, and the log has it all
                traceback.print_exc()
                problem = f"{type(error).__name__}: {error}"
            print(json.dumps({"problem": problem}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
