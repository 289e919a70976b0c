"""watch: record what a model does, step by step; Run: from the first hook to the finished recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from reprod_log.capture.gradients import check_scalar
from reprod_log.capture.guard import Guard, described, warn
from reprod_log.capture.listening import Listening
from reprod_log.capture.program import running_program
from reprod_log.capture.provenance import (
    caveat_notes,
    extra_facts,
    idle_notes,
    path_of_rank,
    provenance_of,
    rank_and_size,
    silence_notes,
)
from reprod_log.capture.selection import RunOptions, selection
from reprod_log.capture.session import Session, Steps, names_of
from reprod_log.capture.staging import Stage
from reprod_log.errors import CaptureError, ReprodLogError, UsageError, WriteFailed, counted, listed
from reprod_log.frameworks import Framework, framework_of
from reprod_log.frameworks.module_tree import Node, Root, Slot
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.tensors import view
from reprod_log.messages import Foreign, Message, message
from reprod_log.recording import PHASES, Array, Key, Recording
from reprod_log.recording.program import FACT
from reprod_log.recording.recorder import Recorder
from reprod_log.recording.spool import Spool
from reprod_log.recording.stores import store_for


class Run:
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
        framework, tensors = self._framework, self._framework.tensors
        distributed = framework.distributed

        def view_any(value: Any) -> tuple[Array, bool]:
            return tensors.view(value) if tensors.is_tensor(value) else view(value)

        # A file of one piece is written at the end; a folder grows step by step.
        grows = self._save is not None and not self._save.suffix
        self._recorder = Recorder(self._save if grows else None, spool=self._spool)
        if self._recorder.notes:
            warn(str(self._recorder.notes[0]), stacklevel=3)
        stage = Stage(
            self._recorder,
            self._options,
            view=view_any,
            shard=distributed.shard if self._ranks > 1 and distributed is not None else None,
        )
        steps = Steps(has_optimizers=bool(self._optimizers), after=self._options.step_after)
        self._session = Session(
            framework,
            self._options.selection,
            stage=stage,
            steps=steps,
            guard=Guard(self._stopped),
            ranks=self._ranks,
        )
        self._listening = Listening(self._session)

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
            self._session.guard.attempt(self._begin, lets=ReprodLogError)
        except BaseException:
            self._listening.forget()
            raise
        return self

    def _begin(self) -> None:
        for name, model in self._models.items():
            self.add_model(Root(name, model))
        for name, optimizer in self._optimizers.items():
            self.add_optimizer(name, optimizer)
        self._check_layers()
        self._listening.to_process()
        self.describe()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        guard = self._session.guard
        if guard.is_forked:
            # A forked child has reached the end of its parent's block; the parent goes on recording.
            return
        try:
            guard.attempt(self._end, error)
            recording = self._recording = self._closed()
        finally:
            guard.attempt(self._listening.forget)
            guard.end()
            self._models.clear()
            self._optimizers.clear()
        if error is None and not recording.complete:
            self._warn(f"the recording is incomplete: {listed(map(str, recording.notes[-1:]))}")
        if error is None and recording.complete and not self._session.stage.count:
            raise CaptureError(self._why_nothing())

    def _closed(self) -> Recording:
        guard, save = self._session.guard, self._save
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
        if self._session.steps.busy:
            # What a step that broke off leaves behind is not what stands at its end.
            self._listening.close_step(whole=error is None)
        self._finish()

    def stop(self, error: BaseException) -> None:
        """Record nothing more, because of an error on our side."""
        self._session.guard.stop(error)

    def _stopped(self, error: BaseException) -> None:
        session = self._session
        session.over = True
        note = message("note.capture.stopped", step=session.steps.number, why=Foreign(described(error)))
        self._recorder.cut_short(note)
        with suppress(Exception):
            # The part of the step that was recorded before; and its memory, of which there may be too little.
            session.stage.flush()
        session.stage.drop()
        if isinstance(error, Exception):
            self._warn(f"{note} (the program goes on; the recording is incomplete)")

    def _warn(self, text: str) -> None:
        """Warn of the recording's state, once."""
        if not self._warned:
            self._warned = True
            warn(text, stacklevel=4)

    def add_model(self, root: Root) -> None:
        """Listen to one more model."""
        self._listening.to_model(root)

    def replace_module(self, node: Node, module: Any) -> None:
        """Listen to `module` under the name of a node whose own module is no longer used."""
        self._session.tree.replace_module(node, module)
        self._listening.calls.attach(node)

    def node_of(self, module: Any) -> Node | None:
        return self._session.tree.node_of(module)

    @property
    def is_busy(self) -> bool:
        """Whether a watched module or a backward pass is running, or nothing is to be recorded."""
        return self._listening.is_busy

    @property
    def is_inside(self) -> bool:
        """Whether a watched module or a backward pass is running."""
        return self._listening.is_inside

    def note(self, note: Message) -> None:
        """Something a reader of the recording should know."""
        self._recorder.note(note)

    def know(self, facts: Mapping[str, Any]) -> None:
        """Add facts to the provenance."""
        self._facts.update(facts)

    def add_optimizer(self, name: str, optimizer: Any) -> None:
        """Listen to one more optimizer."""
        self._listening.to_optimizer(name, optimizer)

    def describe(self) -> None:
        """Put into the recording where it comes from, as far as it is known now."""
        session = self._session
        origin = provenance_of(
            session.framework, session.tree, self._listening.updates.optimizers, session.stage, self._options.mesh
        )
        self._recorder.describe(replace(origin, extra={**origin.extra, **self._facts}), session.tree.infos())

    def _check_layers(self) -> None:
        tree = self._session.tree
        things: list[Node | Slot] = [*tree.nodes, *tree.slots]
        if not things or any(self._session.chosen(thing) for thing in things):
            return
        paths = [node.path for node in tree.nodes if node.path]
        raise UsageError(f"{'; '.join(map(str, self._idle_patterns()))}; the model has {listed(paths)}")

    def _idle_patterns(self) -> list[Message]:
        """What to say of the patterns of layers that fit nothing."""
        tree = self._session.tree
        things: list[Node | Slot] = [*tree.nodes, *tree.slots]
        names = {name for thing in things for name in names_of(thing)}
        return idle_notes(self._options.selection.layers, names)

    def _finish(self) -> None:
        session, recorder = self._session, self._recorder
        session.stage.close()
        tree, called = session.tree, self._listening.calls.called
        if called:
            for note in self._idle_patterns():
                recorder.note(note)
        unseen = self._listening.unseen
        silence = silence_notes(tree, called, unseen.nodes)
        for note in (*tree.notes, *silence, *unseen.notes(), *caveat_notes(tree, called, session.eager.caveat)):
            recorder.note(note)
        self._describe_again()

    def _describe_again(self) -> None:
        """Add what was not known at the start: parameters and optimizers made since, the data."""
        session, recorder = self._session, self._recorder
        known = extra_facts(session.framework, session.tree, self._listening.updates.optimizers, self._options.mesh)
        recorder.modules = session.tree.infos()
        recorder.provenance = replace(
            recorder.provenance, data_hash=str(self._listening.data_hash), extra={**known, **self._facts}
        )

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
        if not self._listening.calls.called:
            return (
                "nothing was recorded: no watched model was called inside the block. Call the model itself (model(x), "
                "not model.forward(x)) between entering and leaving it."
            )
        if self._recorder.notes:
            return f"nothing was recorded: {self._recorder.notes[0]}"
        return (
            f"nothing was recorded: {counted(self._session.steps.number, 'step was', 'steps were')} seen, "
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
        return self._session.steps.number if self._entered else 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Everything inside the block is one step, whatever the optimizers do."""
        self._check_entered()
        if self._session.steps.busy:
            self._close_step()
        self._session.steps.hold()
        try:
            yield
        finally:
            self._session.steps.release()
            self._close_step()

    def end_step(self) -> None:
        """The step is over now."""
        self._check_entered()
        self._close_step()

    def _close_step(self) -> None:
        self._session.guard.attempt(self._listening.close_step)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing inside the block is recorded or counted, for example a validation between two training steps."""
        self._check_entered()
        before, self._session.on_hold = self._session.on_hold, True
        try:
            yield
        finally:
            self._session.on_hold = before

    def loss(self, value: Any, name: str = "loss") -> None:
        """Record a loss: one number, before or after `backward`."""
        check_scalar(name, value)
        self.log(name, value, phase="loss")

    def log(self, name: str, value: Any, phase: str = "loss") -> None:
        """Record a tensor, a number or a nest of them by hand: a loss, a metric, a learning rate, a batch."""
        self._check_entered()
        if phase not in PHASES:
            raise UsageError(f"no such phase: {phase!r}; known are {listed(PHASES, most=20)}")
        session = self._session
        if phase == "data" and session.steps.ends_before_data() and not session.paused:
            self._close_step()
        if session.wants(phase):
            # What cannot be recorded raises here: the user sees which line logged it.
            session.guard.attempt(self._log, name, value, phase, lets=UsageError)

    def _log(self, name: str, value: Any, phase: str) -> None:
        session = self._session
        session.steps.touched()
        for role, leaf in flatten(value):
            key = Key(path=name, phase=phase, step=self.step_number, role=role)
            read = Key.parse(str(key))
            if (read.path, read.role) != (name, role):
                raise UsageError(f"{name!r} cannot be a name: '#', ':' and '/' have a meaning in keys; use '.' or '_'")
            session.is_tensor(leaf) or view(leaf)
            staged = session.stage.make(phase, leaf, step=self.step_number, root=None, inside=name, role=role)
            if staged is not None and phase == "loss":
                self._listening.losses.given(staged)
            else:
                session.stage.add(staged)

    def _check_entered(self) -> None:
        if not self._entered:
            raise UsageError("nothing is being recorded yet: use it as `with watch(...) as run:`")
        if self._recording is not None:
            raise UsageError("nothing is being recorded any more: the `with` block has ended")


def watch(
    model: Any,
    *,
    optimizer: Any = None,
    save: str | Path | None = None,
    phases: Iterable[str] | None = None,
    layers: str | Iterable[str] | None = None,
    steps: int | Iterable[int] | None = None,
    detail: str | Mapping[str, str] = "full",
    inputs: bool | str = "first",
    budget: int | None = None,
    run: str = "",
    step_after: str | None = None,
    mesh: Any = None,
) -> Run:
    """A context manager that records everything `model` computes inside it; `recording` is there afterwards.

        with watch(model, optimizer=optimizer, save="recording") as run:
            for batch, target in loader:
                optimizer.zero_grad()
                criterion(model(batch), target).backward()
                optimizer.step()
        run.recording

    model       a module of torch or paddle, or several by name: {"generator": g, "discriminator": d}
    optimizer   one, several in a list, or several by name; without it, no learning rate, update or state is recorded
    save        where the recording goes: a folder that grows step by step (no suffix), or a file written at the end
                (.npz, .safetensors …); None keeps it in memory. With several processes each writes its own part.
    phases      which of data, forward, loss, backward, gradient, clip, lr, update, parameter, buffer, optimizer and
                metric to record; all by default
    layers      patterns of module or parameter paths, e.g. "encoder.*"; all by default
    steps       how many steps to record, or their numbers; all by default
    detail      "full"; "sketch" (statistics and 256 numbers a tensor, from which the difference to another run can be
                estimated; "sketch:1024" for more of them); or "summary" (statistics and a hash instead of values);
                also by phase: {"forward": "summary"}
    inputs      whether each layer's inputs are recorded too: True, False, or "first": in the first recorded step only
    budget      most bytes of values to keep; what no longer fits is summarised, and the recording notes it
    run         the name of the pass ("float64" …) when `join_passes` puts several recordings of one program together
    step_after  the name of the optimizer whose update ends a step, when one iteration has several updates
    mesh        with several processes, the named axes that they lie on: torch's DeviceMesh, paddle's ProcessMesh or
                HybridCommunicateGroup, or sizes by name, the outermost first: {"dp": 2, "tp": 2}. Found by itself when
                parameters are distributed tensors or paddle's fleet was given hybrid_configs

    A step is everything up to an optimizer's update: batches accumulated into one update are one step, and a loss
    logged after the update still belongs to it. Without optimizers each call of the model is a step.
    `with run.step():` and `run.end_step()` say it explicitly, and `with run.paused():` leaves something out.

    Losses are found where `backward` starts; `run.loss(value)` gives them a name or records one without backward, and
    `run.log(name, value, phase=…)` records anything else. What is watched computes the same bits as without.
    """
    models = _named(model, "model", single="")
    optimizers = named_optimizers(optimizer)
    framework = _one_framework(models, optimizers)
    if step_after is not None and step_after not in optimizers:
        raise UsageError(
            f"step_after={step_after!r} is not an optimizer here; there are {listed(optimizers) or 'none'}"
        )
    if save is not None:
        # An ending that no store knows should not come out after hours of training.
        store_for(save)
        save = Path(save)
    if budget is not None and budget < 0:
        raise UsageError(f"budget must be a number of bytes, not {budget!r}")
    chosen = selection(phases=phases, layers=layers, steps=steps, detail=detail, inputs=inputs)
    facts: dict[str, Any] = {}
    # What runs is unknown then, which a comparison of several passes takes into account; the program goes on.
    with suppress(Exception):
        facts[FACT] = {run: running_program(framework).to_dict()}
    return Run(framework, models, optimizers, RunOptions(chosen, save, budget, run, step_after, mesh, facts))


def _named(thing: Any, what: str, *, single: str) -> dict[str, Any]:
    if not isinstance(thing, Mapping):
        return {single: thing}
    wrong = [name for name in thing if not isinstance(name, str) or not name or set(name) & set("/:#@")]
    if wrong or not thing:
        raise UsageError(f"{what} must have names of letters, digits, '.' and '_', not {wrong or dict(thing)!r}")
    return dict(thing)


def named_optimizers(optimizer: Any) -> dict[str, Any]:
    """One optimizer, several in a list, or several by name, each with its name."""
    if optimizer is None:
        return {}
    if isinstance(optimizer, (list, tuple)):
        return {f"optimizer{number}": one for number, one in enumerate(optimizer)}
    return _named(optimizer, "optimizer", single="optimizer")


def _one_framework(models: Mapping[str, Any], optimizers: Mapping[str, Any]) -> Framework:
    found: dict[str, Framework] = {}
    for name, model in models.items():
        framework = framework_of(model)
        if not framework.eager.is_module(model):
            raise UsageError(f"model {name!r} is a {type(model).__name__}, not a module".replace(" ''", ""))
        found[framework.name] = framework
    for name, optimizer in optimizers.items():
        framework = framework_of(optimizer)
        if not framework.eager.is_optimizer(optimizer):
            raise UsageError(f"optimizer {name!r} is a {type(optimizer).__name__}, not an optimizer")
        found[framework.name] = framework
    if len(found) > 1:
        raise UsageError("models and optimizers of different frameworks cannot be watched as one run; use two")
    return next(iter(found.values()))
