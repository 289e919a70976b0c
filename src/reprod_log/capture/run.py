"""Run: from the first hook to the finished recording, whatever it listens to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from reprod_log.capture.gradients import Losses, check_scalar
from reprod_log.capture.guard import Guard, described, warn
from reprod_log.capture.provenance import DataHash, path_of_rank, rank_and_size
from reprod_log.capture.selection import RunOptions
from reprod_log.capture.session import Steps, StepSession
from reprod_log.capture.staging import Place, Stage
from reprod_log.errors import CaptureError, ReprodLogError, UsageError, WriteFailed, counted, listed
from reprod_log.frameworks import Framework
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.tensors import view
from reprod_log.messages import Foreign, Message, message
from reprod_log.recording import PHASES, Array, Key, Recording
from reprod_log.recording.recorder import Recorder
from reprod_log.recording.spool import Spool


class Run(ABC):
    """What `watch` gives: hooks are on inside the `with` block and off after it; then `recording` is there."""

    def __init__(
        self,
        framework: Framework,
        models: Mapping[str, Any],
        optimizers: Mapping[str, Any],
        options: RunOptions,
    ) -> None:
        self._spool: Spool | None = None
        self._models = dict(models)
        self._optimizers = dict(optimizers)
        self._options = options
        self._rank, self._ranks = rank_and_size()
        # Absolute, because the program may change its folder.
        save = options.save
        self._save = None if save is None else path_of_rank(save, self._rank, self._ranks).absolute()
        self._recording: Recording | None = None
        self._entered = self._warned = False
        self._framework = framework
        self._facts = dict(options.facts)

    def _build(self) -> None:
        tensors, parts = self._framework.tensors, self._framework.parts

        def view_any(value: Any) -> tuple[Array, bool]:
            return tensors.view(value) if tensors.is_tensor(value) else view(value)

        # A file of one piece is written at the end; a folder grows step by step.
        grows = self._save is not None and not self._save.suffix
        self._recorder = Recorder(self._save if grows else None, spool=self._spool)
        if self._recorder.notes:
            warn(str(self._recorder.notes[0]), stacklevel=3)
        shard = parts.shard if self._ranks > 1 and parts is not None else None
        stage = Stage(self._recorder, self._options, view=view_any, shard=shard)
        steps = Steps(has_optimizers=bool(self._optimizers), after=self._options.step_after)
        self._data_hash, self._undo = DataHash(), ExitStack()
        self._listen(stage, steps, Guard(self._stopped))

    # what each kind of run does in its own way

    session: StepSession
    _losses: Losses

    @abstractmethod
    def _listen(self, stage: Stage, steps: Steps, guard: Guard) -> None:
        """Make the session and its listeners, which are not put on yet."""

    @abstractmethod
    def _begin(self) -> None:
        """Put the listeners on."""

    @abstractmethod
    def _finish(self) -> None:
        """Record what is known of the whole only at its end."""

    @abstractmethod
    def _forget(self) -> None:
        """Take the listeners off, and release models and optimizers."""

    @abstractmethod
    def _record_standing(self, *, whole: bool) -> None:
        """Record what stands at the end of a step, if it came to it."""

    @abstractmethod
    def _forget_step(self) -> None:
        """A new step begins."""

    def _stop(self) -> None:
        """No step from now on is wanted."""
        self.session.over = True

    @property
    @abstractmethod
    def _any_called(self) -> bool:
        """Whether a watched model was called."""

    def keep_in(self, spool: Spool | None) -> Run:
        """Keep arrays in these files instead of memory; to be called before it is entered."""
        self._spool = spool
        return self

    # in and out

    def __enter__(self) -> Run:
        if self._entered:
            raise UsageError("this run was entered before; call watch(...) again for another one")
        self._build()
        self._entered = True
        try:
            # What the user can change is raised before the training begins; anything else does not keep it from that.
            self.session.guard.attempt(self._begin, lets=ReprodLogError)
        except BaseException:
            self._forget()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        guard = self.session.guard
        if guard.is_forked:
            # A forked child has reached the end of its parent's block; the parent goes on recording.
            return
        try:
            guard.attempt(self._end, error)
            recording = self._recording = self._closed()
        finally:
            guard.attempt(self._forget)
            guard.end()
            self._models.clear()
            self._optimizers.clear()
        if error is None and not recording.complete:
            self._warn(f"the recording is incomplete: {listed(map(str, recording.notes[-1:]))}")
        if error is None and recording.complete and not self.session.stage.count:
            raise CaptureError(self._why_nothing())

    def _closed(self) -> Recording:
        guard, save = self.session.guard, self._save
        recording = guard.attempt(self._recorder.close)
        if recording is None:
            return self._recorder.remains()
        if save is None or not save.suffix:
            return recording
        saved = guard.attempt(self._saved, recording, save)
        return replace(recording, complete=False, notes=tuple(self._recorder.notes)) if saved is None else saved

    def _end(self, error: BaseException | None) -> None:
        """Record what the last step leaves, and what is known of the whole only now."""
        if error is not None:
            note = message("note.capture.cut_short", step=self.step_number, why=Foreign(described(error)))
            self._recorder.cut_short(note)
        if self.session.steps.busy:
            # What a step that broke off leaves behind is not what stands at its end.
            self._step_is_over(whole=error is None)
        self._finish()

    def _step_is_over(self, *, whole: bool = True) -> None:
        """Give all of the step to the recorder, with what stands at its end (if it came to it), and count on."""
        session = self.session
        self._record_standing(whole=whole)
        self._data_hash.update(staged.hash for staged in session.stage.waiting if staged.phase == "data")
        session.stage.flush()
        self._forget_step()
        self._losses.reset()
        session.steps.advance()
        if session.selection.is_over(session.steps.number) or session.stage.recorder.failed:
            self._stop()

    def stop(self, error: BaseException) -> None:
        """Record nothing more, because of an error on our side."""
        self.session.guard.stop(error)

    def _stopped(self, error: BaseException) -> None:
        session = self.session
        session.over = True
        note = message("note.capture.stopped", step=session.steps.number, why=Foreign(described(error)))
        self._recorder.cut_short(note)
        with suppress(Exception):
            # The part of the step that was recorded before; and its memory, of which there may be too little.
            session.stage.flush()
        session.stage.drop()
        if isinstance(error, Exception):
            self._warn(f"{note} (the program continues; the recording is incomplete)")

    def _warn(self, text: str) -> None:
        """Warn of the recording's state, once."""
        if not self._warned:
            self._warned = True
            warn(text, stacklevel=4)

    def note(self, note: Message) -> None:
        """Something a reader of the recording should know."""
        self._recorder.note(note)

    def know(self, facts: Mapping[str, Any]) -> None:
        """Add facts to the provenance."""
        self._facts.update(facts)

    def _saved(self, recording: Recording, path: Path) -> Recording:
        try:
            recording.save(path)
        except WriteFailed as error:
            return replace(
                recording,
                complete=False,
                notes=(*recording.notes, message("note.recording.not_saved", why=Foreign(error))),
            )
        return replace(recording, source=str(path))

    def _why_nothing(self) -> str:
        if not self._any_called:
            return (
                "nothing was recorded: no watched model was called inside the block. Call the model itself (model(x), "
                "not model.forward(x)) between entering and leaving it."
            )
        if self._recorder.notes:
            return f"nothing was recorded: {self._recorder.notes[0]}"
        return (
            f"nothing was recorded: {counted(self.session.steps.number, 'step was', 'steps were')} seen, "
            "but none of phases, layers and steps "
            "that were asked for was among them"
        )

    # what the user may do

    @property
    def recording(self) -> Recording:
        """The finished recording."""
        if self._recording is None:
            raise UsageError("the recording is there after the `with` block; it is still being made")
        return self._recording

    @property
    def step_number(self) -> int:
        """The number of the step that is being recorded, from 0 on."""
        return self.session.steps.number if self._entered else 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Everything inside the block is one step, whatever the optimizers do."""
        self._check_entered()
        if self.session.steps.busy:
            self._close_step()
        self.session.steps.hold()
        try:
            yield
        finally:
            self.session.steps.release()
            self._close_step()

    def end_step(self) -> None:
        """The step is over now."""
        self._check_entered()
        self._close_step()

    def _close_step(self) -> None:
        self.session.guard.attempt(self._step_is_over)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing inside the block is recorded or counted, for example a validation between two training steps."""
        self._check_entered()
        before, self.session.on_hold = self.session.on_hold, True
        try:
            yield
        finally:
            self.session.on_hold = before

    def loss(self, value: Any, name: str = "loss") -> None:
        """Record a loss: one number, before or after `backward`."""
        check_scalar(name, value)
        self.log(name, value, phase="loss")

    def log(self, name: str, value: Any, phase: str = "loss") -> None:
        """Record a tensor, a number or a nest of them by hand: a loss, a metric, a learning rate, a batch."""
        self._check_entered()
        if phase not in PHASES:
            raise UsageError(f"no such phase: {phase!r}; known are {listed(PHASES, most=20)}")
        session = self.session
        if phase == "data" and session.steps.ends_before_data() and not session.paused:
            self._close_step()
        if session.wants(phase):
            # What cannot be recorded raises here: the user sees which line logged it.
            session.guard.attempt(self._log, name, value, phase, lets=UsageError)

    def _log(self, name: str, value: Any, phase: str) -> None:
        session = self.session
        session.steps.touched()
        for role, leaf in flatten(value):
            key = Key(path=name, phase=phase, step=self.step_number, role=role)
            read = Key.parse(str(key))
            if (read.path, read.role) != (name, role):
                raise UsageError(f"{name!r} cannot be a name: '#', ':' and '/' have a meaning in keys; use '.' or '_'")
            session.is_tensor(leaf) or view(leaf)
            staged = session.stage.make(Place(phase, self.step_number, name, role=role), leaf)
            if staged is not None and phase == "loss":
                self._losses.given(staged)
            else:
                session.stage.add(staged)

    def _check_entered(self) -> None:
        if not self._entered:
            raise UsageError("nothing is being recorded yet: use it as `with watch(...) as run:`")
        if self._recording is not None:
            raise UsageError("nothing is being recorded any more: the `with` block has ended")
