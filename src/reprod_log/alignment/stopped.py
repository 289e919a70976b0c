"""What Ctrl-C leaves of an alignment: it states how far it got, and it never passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from reprod_log.alignment.alignment import Alignment
from reprod_log.diagnose.finding import told
from reprod_log.errors import interrupted, result_of
from reprod_log.messages import Message
from reprod_log.verdict import Status

Result = TypeVar("Result")


class Patience:
    """Takes the first Ctrl-C for the wish to see what there is; the second one ends the work."""

    def __init__(self) -> None:
        self.stopped = False

    def __call__(self, kind: type[Result], work: Callable[[], Result]) -> Result:
        """What the work gives, or had by the time of the first Ctrl-C."""
        try:
            return work()
        except KeyboardInterrupt as stop:
            found = result_of(stop, kind)
            if self.stopped or found is None:
                raise
            self.stopped = True
            return found


def stopped(alignment: Alignment, how_far: Message) -> KeyboardInterrupt:
    """Ctrl-C with the alignment of what was complete as its `result`, if anything of it could be judged."""
    # Whatever was to be let through: a part of the evidence is not what that was asked for.
    policy = replace(alignment.policy, allow_unproven=False, allow_incomplete=False)
    doubt = told("cause.stopped", how_far=how_far)
    partial = replace(alignment, policy=policy, findings=(doubt, *alignment.findings))
    if partial.status is Status.NOTHING:
        return interrupted(str(doubt.cause))
    return interrupted(f"{doubt.cause}. The alignment so far is the attribute `result` of this exception", partial)
