"""Runs: every pass of two programs that a verdict needs, put together into one recording per side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from reprod_log.errors import CaptureError, ReprodLogError, first_line
from reprod_log.experiments.injection import gradients_by_step, inject_into
from reprod_log.experiments.isolation import Call, first_calls, run_isolated
from reprod_log.experiments.program import Program
from reprod_log.experiments.runs import as_mapping, run_in_part, run_program
from reprod_log.measure.comparison import measure_pair
from reprod_log.pairing import Pair
from reprod_log.pairing.call_arguments import arranged, with_shared_outputs
from reprod_log.pairing.layers import Layers, match_layers
from reprod_log.pairing.tensors import time_and_batch_exchanged
from reprod_log.pairing.weight_map import make_plan
from reprod_log.recording import PHASES, Entry, Recording

Progress = Callable[[str, int, int], None]
"""Hears what is being done, how many parts are done, and how many there are."""

FLOAT64 = "float64"
_INJECTED_PHASES = tuple(phase for phase in PHASES if phase != "clip")
"""A gradient that was put in differs from the one computed, which would look like clipping."""


class Runs:
    """Every pass of both programs, put together into one recording per side."""

    def __init__(
        self,
        ours: Program,
        theirs: Program,
        batches: list[tuple[Any, Any]],
        rename: Mapping[str, str],
        progress: Progress | None,
        quick: bool,
        detailed: int | None = None,
        notes: Sequence[str] = (),
        tables: tuple[str, ...] = (),
    ) -> None:
        self.ours, self.theirs, self.batches, self.rename, self.quick = ours, theirs, batches, rename, quick
        self.detailed = detailed
        self._progress = progress or (lambda what, done, total: None)
        self._done, self._total = 0, 7 if quick else 12
        self._notes: tuple[list[str], list[str]] = ([], list(notes))
        self.tables = tables
        """The candidate's buffers that had other values before the reference's were carried over."""
        self.calls: list[Call] = []
        """What each layer of the reference was given at its first call, once the layers were run alone."""
        self.their_calls: dict[str, Call] = {}
        """The same for the candidate's layers, by the reference's paths: the reference's tensors, as they take them."""
        self.partners: dict[str, str] = {}
        """The candidate's path for each layer of the reference that was run alone."""

    def recordings(self) -> tuple[Recording, Recording]:
        """The recording of each side, with all passes in it."""
        mains = [
            self._told(f"{name} as it runs", run_in_part, program, self.batches, detailed=self.detailed)
            for name, program in (("reference", self.ours), ("candidate", self.theirs))
        ]
        reference, candidate = mains
        self._check_repeats(reference)
        extra: tuple[list[Entry], list[Entry]] = ([], [])
        for side, (name, program) in enumerate((("reference", self.ours), ("candidate", self.theirs))):
            extra[side].extend(self._wide(name, program, side))
        layers = match_layers(reference, candidate, rename=self.rename)
        self._isolate(reference, candidate, layers, extra)
        if not self.quick and self.ours.optimizer is not None and self.theirs.optimizer is not None:
            self._inject(reference, candidate, layers, extra)
        whole = [
            replace(main, entries=(*main.entries, *more), notes=(*main.notes, *notes))
            for main, more, notes in zip(mains, extra, self._notes, strict=True)
        ]
        return whole[0], whole[1]

    def _told(self, what: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._progress(what, self._done, self._total)
        result = do(*args, **kwargs)
        self._done += 1
        self._progress(what, self._done, self._total)
        return result

    def _check_repeats(self, reference: Recording) -> None:
        """Another seed must not change anything: random numbers outside of Dropout layers cannot be shared."""
        again: Recording = self._told(
            "reference again, other seed", run_program, self.ours, self.batches[:1], seed=1, run="repeat"
        )
        for entry in again.entries:
            first = str(entry.key.in_run(""))
            if first not in reference:
                continue
            measured = measure_pair(Pair(reference[first], entry)).measurement
            if measured is not None and (measured.differing or measured.nonfinite_mismatched):
                raise CaptureError(
                    f"the reference does not repeat itself: {first} differs by {measured.max_abs:.3g} between two runs "
                    "with other seeds. It draws random numbers outside of Dropout layers, or its kernels are not "
                    "deterministic. Put the models in eval mode, or draw the numbers once and pass them as inputs."
                )

    def _wide(self, name: str, program: Program, side: int) -> tuple[Entry, ...]:
        try:
            recording: Recording = self._told(
                f"{name} in float64",
                run_in_part,
                program,
                self.batches,
                run=FLOAT64,
                dtype=FLOAT64,
                detailed=self.detailed,
            )
        except ReprodLogError:
            raise
        except Exception as error:  # a kernel without float64 may raise anything; its word is the note
            self._notes[side].append(f"could not be run in float64: {first_line(error)}")
            return ()
        return recording.entries

    def _isolate(
        self, reference: Recording, candidate: Recording, layers: Layers, extra: tuple[list[Entry], list[Entry]]
    ) -> None:
        calls = first_calls(self.ours, *self.batches[0])
        # A model's partner is the other model, whatever is between its layers.
        roots = as_mapping(self.ours.model).keys() & as_mapping(self.theirs.model).keys()
        partners = {**{root: root for root in roots}, **{path: found[0] for path, found in layers.modules.items()}}
        there = {call.path: partners[call.path] for call in calls if call.path in partners}
        self.partners = there
        calls, self.their_calls = self._both_calls(calls, candidate)
        self.calls = calls
        same = {path: path for path in there}
        here_info = {module.path: module for module in reference.modules}
        there_info = {module.path: module for module in candidate.modules}
        exchanged = {
            path
            for path, other in there.items()
            if path in here_info
            and other in there_info
            and time_and_batch_exchanged(here_info[path], there_info[other])
        }
        for side, (name, program, paths, swap) in enumerate(
            (("reference", self.ours, same, set[str]()), ("candidate", self.theirs, there, exchanged))
        ):
            given = calls if side == 0 else list(self.their_calls.values())
            for dtype in (None, FLOAT64):
                run = f"isolated.{dtype}" if dtype else "isolated"
                entries, notes = self._told(
                    f"{name}'s layers one by one",
                    run_isolated,
                    program,
                    given,
                    run=run,
                    dtype=dtype,
                    paths=paths,
                    exchanged=swap,
                )
                extra[side].extend(entries)
                self._notes[side].extend(notes)

    def _both_calls(self, calls: Sequence[Call], candidate: Recording) -> tuple[list[Call], dict[str, Call]]:
        """The calls of both sides; modules of the user's own are given arguments as they take them."""
        own = {module.path for module in candidate.modules if module.path and not module.kind}
        seen = {call.path: call for call in first_calls(self.theirs, *self.batches[0])}
        ours: list[Call] = []
        theirs: dict[str, Call] = {}
        for call in calls:
            partner = self.partners.get(call.path, "")
            other = seen.get(partner)
            call = call if other is None else with_shared_outputs(call, other)
            ours.append(call)
            fitting = arranged(call, other) if other is not None and partner in own else call
            if fitting is not None:
                theirs[call.path] = fitting
            else:
                self._notes[1].append(
                    f"{partner} ({self.theirs.framework.NAME}) was not run alone: its partner is given other tensors"
                )
        return ours, theirs

    def _inject(
        self,
        reference: Recording,
        candidate: Recording,
        layers: Layers,
        extra: tuple[list[Entry], list[Entry]],
    ) -> None:
        gradients = gradients_by_step(reference)
        last = max(gradients, default=0)
        shapes = {
            f"{module.path}.{name}".lstrip("."): shape
            for module in candidate.modules
            for name, shape in module.parameters.items()
        }
        plan = make_plan(layers.units, shapes)
        # With its own gradients the reference runs as it ran before.
        extra[0].extend(
            replace(entry, key=entry.key.in_run("injected"))
            for entry in reference.of_run("")
            if entry.key.phase in _INJECTED_PHASES and (entry.key.step or 0) <= last
        )
        passes: tuple[tuple[int, str, Program, str | None, Any], ...] = (
            (0, "reference", self.ours, FLOAT64, None),
            (1, "candidate", self.theirs, None, plan),
        )
        for side, name, program, dtype, mapping in passes:
            run = f"injected.{dtype}" if dtype else "injected"
            try:
                recording = self._told(
                    f"{name} with the reference's gradients",
                    run_program,
                    program,
                    self.batches[: self.detailed],
                    run=run,
                    dtype=dtype,
                    inject=inject_into(program, gradients, mapping),
                    phases=_INJECTED_PHASES,
                )
            except ReprodLogError:
                raise
            except Exception as error:  # as above: a kernel without float64
                self._notes[side].append(f"could not be run with the reference's gradients: {first_line(error)}")
                continue
            extra[side].extend(recording.entries)
