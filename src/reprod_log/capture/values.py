"""ValueRun: a loop of the user's own around models that are values: what these report is put into steps."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

from reprod_log.capture.gradients import Losses
from reprod_log.capture.guard import Guard
from reprod_log.capture.run import Run
from reprod_log.capture.session import Steps, StepSession
from reprod_log.capture.staging import Place, Stage
from reprod_log.errors import CaptureError
from reprod_log.frameworks.contract import Listener, Programs
from reprod_log.recording import Array, ModuleInfo, current_provenance
from reprod_log.recording.program import ONE_PRECISION

_OF_UPDATES = ("lr", "update", "optimizer")
_OF_CALLS = ("forward", "backward")
_STANDING = ("parameter", "buffer")
"""What counts is how these stand at the end of a step."""


class ValueRun(Run):
    """A run of models that are values; the framework tells what they compute, wherever the program runs them.

    Without models it is told by whoever made it.
    """

    def _listen(self, stage: Stage, steps: Steps, guard: Guard) -> None:
        self.session = StepSession(self._framework, self._options.selection, stage=stage, steps=steps, guard=guard)
        self._losses = Losses(self.session)
        self._modules: list[ModuleInfo] = []
        self._calls = _Calls()
        self._standing: dict[tuple[str, str], Array] = {}
        self._dtype = ""

    @property
    def _programs(self) -> Programs:
        programs = self._framework.programs
        if programs is None or "watch" not in self._framework.can:
            raise CaptureError(f"models of {self._framework.name} cannot be watched; compare them with align_models")
        return programs

    def _begin(self) -> None:
        guard = self.session.guard
        if self._models:
            listener = Listener(self._models, guard(self.found), guard(self.report), guard(self.know), guard.beside)
            self._undo.enter_context(self._programs.listening(listener))
        self._describe()

    def found(self, name: str, modules: Sequence[ModuleInfo]) -> None:
        """A model that reports from now on."""
        self._modules += [replace(one, path=f"{name}.{one.path}".strip(".")) for one in modules]
        self._describe()

    def _describe(self) -> None:
        library = self._library()
        version = str(getattr(sys.modules.get(library), "__version__", self._framework.version))
        made = current_provenance(framework=library, framework_version=version, device="", dtype=self._dtype)
        data_hash = str(self._data_hash)
        extra = {**self._facts, ONE_PRECISION: True}
        self._recorder.describe(replace(made, data_hash=data_hash, extra=extra), self._modules)

    def _library(self) -> str:
        """The library of the models, where the framework has several."""
        tops = [one.origin.partition(".")[0] for one in self._modules if one.kind]
        return tops[0] if tops else self._framework.name

    def report(
        self, phase: str, path: str, array: Array, role: str = "", number: Hashable = 0, layer_type: str = ""
    ) -> None:
        """One array that the program has computed."""
        session, steps = self.session, self.session.steps
        if session.over or session.paused:
            return
        call: int | None = None
        if phase == "data":
            # A model that is called again on the same values before its update is recomputed for its gradients.
            if steps.has_optimizers and self._calls.is_repeated(path, number, role, session.stage.digest(array)):
                return
            if self._calls.begins(path, number, role, session.stage.digest(array)):
                if steps.ends_before_call(path):
                    self._step_is_over()
                    self._calls.begins(path, number, role, session.stage.digest(array))
                steps.called(path)
            call = 0
        elif phase in _OF_CALLS:
            call = self._calls.number(phase, path, number, role)
        elif phase in _OF_UPDATES and (steps.has_optimizers or not self._models):
            steps.has_optimizers = True
            if phase == "update":
                self._calls.going_back = False
                steps.updated(next(iter(self._optimizers), "optimizer"))
        if (phase in _OF_CALLS and call is None) or (phase in _OF_UPDATES and not steps.has_optimizers):
            return
        self._dtype = self._dtype or (array.dtype.name if "float" in array.dtype.name else "")
        if not session.wants(phase) or not session.selection.has_layer(path):
            return
        if role.startswith("input") and phase == "forward" and not session.selection.has_inputs(steps.number):
            return
        if phase == "loss":
            self._losses.found([array])
            self._losses.settle(are_ours=True)
            return
        if phase in _STANDING:
            self._standing[phase, path] = array
            return
        self._put(phase, path, array, role, call, layer_type)

    def _put(
        self, phase: str, path: str, array: Array, role: str = "", call: int | None = None, layer_type: str = ""
    ) -> None:
        stage, place = self.session.stage, Place(phase, self.session.steps.number, path, role=role, call=call)
        stage.add(stage.make(place, array, layer_type=layer_type))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What is still being computed belongs to the run. Never under the guard's lock: it is reported through that.
        self.session.guard.beside(self._programs.settle)
        super().__exit__(kind, error, trace)

    @contextmanager
    def step(self) -> Iterator[None]:
        with super().step():
            yield
            self._programs.settle()

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._programs.settle()
        with super().paused():
            yield
            self._programs.settle()

    def _close_step(self) -> None:
        self._programs.settle()
        super()._close_step()

    def log(self, name: str, value: Any, phase: str = "loss") -> None:
        if self._entered and self._recording is None:
            self._programs.settle()
        super().log(name, value, phase)

    def _record_standing(self, *, whole: bool) -> None:
        for phase in _STANDING if whole else ():
            for path in [path for kind, path in self._standing if kind == phase]:
                self._put(phase, path, self._standing[phase, path])

    def _forget_step(self) -> None:
        self._standing.clear()
        self._calls = _Calls()

    def _finish(self) -> None:
        self.session.stage.close()
        self._describe()

    def _forget(self) -> None:
        self.session.over = True
        self._undo.close()

    @property
    def _any_called(self) -> bool:
        return bool(self._modules)


class _Calls:
    """Counts the calls of modules in one step by what they report, in the order of the program."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._open: dict[tuple[str, Hashable], list[tuple[int, set[str]]]] = {}
        """By path and place in the program: the calls from there, each with the roles that it has reported."""
        self._back: dict[tuple[str, Hashable, str], int] = {}
        self._outermost: tuple[str, Hashable, dict[str, str]] | None = None
        """Path and place of the outermost call, and digests of what it was given by role."""
        self.going_back = False
        """Whether gradients came since the outermost call: what is called now was called before, and is recomputed."""

    def is_repeated(self, path: str, number: Hashable, role: str, digest: str) -> bool:
        """Whether this input was reported before, and gradients came since."""
        return self.going_back and self._given(path, number).get(role) == digest

    def _given(self, path: str, number: Hashable) -> dict[str, str]:
        known = self._outermost
        return known[2] if known is not None and known[:2] == (path, number) else {}

    def begins(self, path: str, number: Hashable, role: str, digest: str) -> bool:
        """Whether this input is the first of another outermost call."""
        known = self._given(path, number)
        if known and role not in known:
            known[role] = digest
            return False
        self._outermost, self.going_back = (path, number, {role: digest}), False
        return True

    def number(self, phase: str, path: str, number: Hashable, role: str) -> int | None:
        """The number of the call in its step; None for what was reported before."""
        calls = self._open.setdefault((path, number), [])
        if phase == "backward":
            self.going_back = True
            # Turns of a loop come back in the opposite order.
            turn = self._back[path, number, role] = self._back.get((path, number, role), 0) + 1
            return calls[-turn][0] if turn <= len(calls) else None
        if calls and role not in calls[-1][1]:
            calls[-1][1].add(role)
        elif self.going_back:
            return None
        else:
            count = self._counts[path] = self._counts.get(path, -1) + 1
            calls.append((count, {role}))
        return calls[-1][0]
