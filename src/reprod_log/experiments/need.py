"""Need: what the runs of two programs take in memory and on disk, estimated before they begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from reprod_log.capture.eager import runner_of
from reprod_log.capture.guard import warn
from reprod_log.capture.live import live_model
from reprod_log.errors import UsageError, readable_size
from reprod_log.frameworks.contract import Call
from reprod_log.frameworks.side import Batch, Side, as_mapping
from reprod_log.messages import Code, Message, Parts, message
from reprod_log.recording import dtype_named
from reprod_log.recording.entry import content_hash
from reprod_log.recording.spool import Spool, free_memory, open_spool

_KEPT_IN_MEMORY = 1 << 28
"""Recordings of up to 256 MB in all stay there."""
_MARGIN = 1.25
"""Recordings were measured to take up to a fifth more than the estimate."""
_STATES = 2
"""What an optimizer keeps for each parameter: as Adam does."""
_REGIONS = 3
"""Gradients of a parameter from layers alone: in its layer, its block and the whole."""


@dataclass(frozen=True)
class Need:
    """What all runs take, in bytes; the two models themselves are there already."""

    weights: int
    """All parameters and buffers of the reference."""
    activations: int
    """What its modules give in one step, as far as it is known."""
    steps: int
    trains: bool
    updates: bool
    injected: bool

    @property
    def arrays(self) -> int:
        """All recordings of both sides: as they run, in float64 (twice the size), layers alone, gradients put in."""
        gradients = self.weights if self.trains else 0
        kept = gradients + (2 + _STATES) * self.weights * self.updates if self.trains else self.weights
        through = self.activations * (2 if self.trains else 1)
        plain = self.steps * (kept + through)
        alone = _REGIONS * self.weights + 2 * self.activations
        return 6 * plain + 6 * alone + 3 * plain * self.injected

    @property
    def working(self) -> int:
        """The largest run itself: a float64 copy with gradients, the state of its optimizer and activations."""
        copies = 2 + _STATES * self.updates
        return 2 * (copies + 2) * self.weights + 4 * self.activations

    @classmethod
    def of(
        cls,
        ours: Side,
        theirs: Side,
        batches: Sequence[Batch],
        calls: Sequence[Call],
        detailed: int | None,
        quick: bool,
    ) -> Need:
        """The need of these sides; `calls` are the first calls of the reference's modules."""
        insides = [live_model(model).modules[0].inside for model in as_mapping(ours.model).values()]
        facts = [one for inside in insides for one in {each.first: each for each in inside.values()}.values()]
        sizes = [(prod(one.shape), dtype_named(one.dtype).itemsize) for one in facts if one.shape is not None]
        itemsize = max((size for count, size in sizes if count > 1), default=4)
        outputs = sum(prod(shape) for call in calls for shape in call.outputs.values())
        updates = ours.optimizer is not None and theirs.optimizer is not None
        return cls(
            weights=sum(count * size for count, size in sizes),
            activations=outputs * itemsize,
            steps=min(len(batches), detailed or len(batches)),
            trains=ours.loss is not None or ours.step is not None,
            updates=updates,
            injected=updates and not quick,
        )

    def within(self, budget: int | None) -> Need:
        """The need with as much evidence as there is room for: fewer steps in full, then no gradients put in."""
        if budget is None:
            return self
        ways = [replace(self, steps=steps) for steps in range(self.steps, 0, -1)]
        ways.append(replace(self, steps=1, injected=False))
        fitting = next((way for way in ways if _MARGIN * way.arrays <= budget), None)
        if fitting is None:
            least = readable_size(_MARGIN * ways[-1].arrays)
            raise UsageError(
                f"budget={budget} has no room for the arrays of the runs: with one step in full and quick=True they "
                f"need about {least}. {self.advice()}"
            )
        return fitting

    def _smaller(self) -> list[tuple[str, Need]]:
        """What to leave out, as it is written in the call, and the need then."""
        ways = []
        if self.injected:
            ways.append(("quick=True", replace(self, injected=False)))
        if self.steps > 1:
            ways.append(("detailed=1", replace(self, steps=1)))
            ways.append(("detailed=1, quick=True", replace(self, steps=1, injected=False)))
        if self.trains:
            rest = replace(self, steps=1, trains=False, updates=False, injected=False)
            ways.append(("loss=None, optimizer=None, steps=1", rest))
        return ways

    def reduced_from(self, wished: Need, budget: int | None) -> tuple[Message, ...]:
        """What is missing because of the budget, as a note."""
        if budget is None or self == wished:
            return ()
        less = [message("need.steps", steps=self.steps)] if self.steps < wished.steps else []
        less += [message("need.not_injected")] if self.injected != wished.injected else []
        disk = readable_size(wished.arrays)
        return (message("need.budget", budget=readable_size(budget), disk=disk, less=Parts(less)),)

    def note(self) -> Message:
        """The need as a note."""
        return message("need", memory=readable_size(self.working), disk=readable_size(self.arrays))

    def advice(self) -> Message:
        """The need, and what it would be with less."""
        ways = [message("need.way", call=Code(way), disk=readable_size(one.arrays)) for way, one in self._smaller()]
        return message("need.less", need=self.note(), less=Parts(ways)) if ways else self.note()


@dataclass(frozen=True)
class Storage:
    """Where the arrays of all runs go, and the facts behind that decision."""

    spool: Spool | None = None
    """None: memory."""
    calls: tuple[Call, ...] | None = None
    """The first calls of the reference's modules; None when it could not be run."""
    need: Need | None = None
    """None for what is small."""
    detailed: int | None = None
    """How many steps are kept in full; None: all."""
    quick: bool = False
    notes: tuple[Message, ...] = ()
    """What there was no room for."""

    @classmethod
    def of(
        cls,
        ours: Side,
        theirs: Side,
        batches: Sequence[Batch],
        *,
        spool: str | Path | None,
        budget: int | None,
        detailed: int | None,
        quick: bool,
    ) -> Storage:
        """Memory for what is small; else the folder given, or a usual one with room enough.

        Of runs that need more than the `budget`, as much is kept as there is room for.
        """
        try:
            calls = tuple(runner_of(ours.framework).calls(ours, batches[0])) if "isolate" in ours.framework.can else ()
        except Exception:  # the run itself raises it again, where it can say what was run
            return cls(None if spool is None else open_spool(spool, 0, budget), detailed=detailed, quick=quick)
        wished = Need.of(ours, theirs, batches, calls, detailed, quick)
        need = wished.within(budget)
        if need != wished:
            detailed, quick = need.steps, quick or not need.injected
        notes = need.reduced_from(wished, budget)
        if spool is None and need.arrays <= _KEPT_IN_MEMORY:
            return cls(calls=calls, detailed=detailed, quick=quick, notes=notes)
        found, memory = open_spool(spool, need.arrays, budget), free_memory()
        wanted = need.working + (need.arrays if found is None else 0)
        advice = need.advice()
        if memory is not None and wanted > memory:
            if found is None and need.working <= memory:
                raise UsageError(
                    f"{advice}. Neither memory ({readable_size(memory)} available) nor a usual folder for temporary "
                    "files has room for these arrays: give spool=a folder on a disk that has"
                )
            warn(f"{advice}. {readable_size(memory)} of memory are available", stacklevel=4)
        if found is not None:
            calls = tuple(call.changed(lambda array: found.keep(array, content_hash(array))) for call in calls)
        return cls(found, calls, need, detailed, quick, notes)
