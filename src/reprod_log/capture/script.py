"""run_script: record a script that knows nothing of us."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from reprod_log.capture.guard import Guard, described
from reprod_log.capture.listening import ModelRun
from reprod_log.capture.provenance import ScriptFiles, file_digest, program_of
from reprod_log.capture.run import Run
from reprod_log.capture.selection import RunOptions, selection
from reprod_log.capture.session import RecordingLevel
from reprod_log.capture.values import ValueRun
from reprod_log.errors import CaptureError, ReprodLogError, UsageError, listed
from reprod_log.frameworks import LIBRARY_OF, Framework, is_imported, is_loaded, known_names, loaded, watchable_names
from reprod_log.frameworks.contract import Listener
from reprod_log.frameworks.hooks import Undo
from reprod_log.frameworks.module_tree import Node, Root
from reprod_log.frameworks.nests import mapped
from reprod_log.messages import Code, message
from reprod_log.recording import ModuleInfo, Recording
from reprod_log.recording.program import FACT, Program


class _Listener(MetaPathFinder):
    """Finds nothing by itself; it only has the loaders of some packages report when they are done."""

    def __init__(self, names: Iterable[str], imported: Callable[[str], None]) -> None:
        self._names = set(names)
        self._imported = imported

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        # Once is enough, and the other finders must not come back to us.
        self._names.discard(fullname)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find and finder is not self else None
            if spec is not None:
                self._report(spec, fullname)
                return spec
        return None

    def _report(self, spec: ModuleSpec, name: str) -> None:
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module

        def execute_and_report(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            # It is whole from here on; the import system sets this when its loader is done.
            vars(spec)["_initializing"] = False
            self._imported(name)

        loader.exec_module = execute_and_report  # type: ignore[method-assign]


def on_import(names: Iterable[str], imported: Callable[[str], None]) -> Undo:
    """Have `imported(name)` called for each of these packages: now for those that are there, later for the rest."""
    waiting = []
    for name in names:
        if is_imported(name):
            imported(name)
        else:
            waiting.append(name)
    listener = _Listener(waiting, imported)
    sys.meta_path.insert(0, listener)

    def undo() -> None:
        if listener in sys.meta_path:
            sys.meta_path.remove(listener)

    return undo


def run_script(
    script: str | Path,
    args: Sequence[str] = (),
    *,
    save: str | Path | None = None,
    phases: Iterable[str] | None = None,
    layers: str | Iterable[str] | None = None,
    steps: int | Iterable[int] | None = None,
    detail: str | Mapping[str, str] = "full",
    inputs: bool | str = "first",
    budget: int | None = None,
    run: str = "",
    dtype: str | None = None,
    framework: str | None = None,
) -> Recording:
    """The recording of what a script's models do, as `python script args` would run it, in this process.

    Every outermost module that the script calls is watched from its first call on, every optimizer that it makes from
    its first step on; steps are counted as `watch` does. The options are those of `watch`. With one model its layers
    have their own names; with several, the names of the script's variables stand before them.

    With `dtype="float64"` models, optimizers and the inputs of outermost calls are converted when a model is first
    called, so that the weights are the same numbers as in the script's own precision.

    One framework is recorded: the only one whose models (modules with parameters) are called. A script that calls
    models of two requires `framework`; without it UsageError is raised where the second one is called.
    What this program itself runs, to check a transfer for example, is not recorded.

    An exception or exit of the script is raised again, after what was recorded until then has been saved.
    """
    path = Path(script)
    if not path.is_file():
        raise UsageError(f"there is no script {path} to run")
    chosen = selection(phases=phases, layers=layers, steps=steps, detail=detail, inputs=inputs)
    if dtype not in (None, "float32", "float64"):
        raise UsageError(f"dtype must be 'float32' or 'float64', not {dtype!r}")
    if framework is not None and framework not in known_names():
        raise UsageError(f"framework must be one of {listed(known_names(), most=20)}, not {framework!r}")
    # Enough to run it again, for a closer look at one place.
    started: dict[str, Any] = {"python": sys.executable, "folder": os.getcwd(), "script": str(path), "args": list(args)}
    if framework is not None:
        started["framework"] = framework
    program = Program(script=file_digest(path), arguments=tuple(args))
    facts = {"run": started, FACT: {run: program.to_dict()}}
    # Absolute, because the script may change its folder.
    target = None if save is None else Path(save).absolute()
    options = RunOptions(chosen, target, budget, run, facts=facts)
    watcher = _Watcher(options, dtype=dtype, framework=framework, program=program)
    _run_as_main(path, args, watcher)
    return watcher.recording()


def _run_as_main(path: Path, args: Sequence[str], watcher: _Watcher) -> None:
    """Run the script as `python path args` would, with its models watched."""
    with ExitStack() as undo:
        undo.callback(setattr, sys, "argv", sys.argv)
        undo.callback(setattr, sys, "path", sys.path)
        sys.argv = [str(path), *args]
        sys.path = [str(path.resolve().parent), *sys.path]
        undo.callback(watcher.files.watch_environment(watcher.guard))
        undo.push(watcher.leave)
        undo.callback(_return_to, os.getcwd())
        undo.callback(on_import((*known_names(), *LIBRARY_OF), watcher.guard(watcher.imported)))
        undo.callback(watcher.stop_looking)
        try:
            runpy.run_path(str(path), run_name="__main__")
        except BaseException as error:
            if watcher.guard.is_forked:
                _end_child(error)
            raise
        if watcher.guard.is_forked:
            _end_child(None)


def _return_to(folder: str) -> None:
    """Go back to where the script was started; what is recorded goes to a path that was given there."""
    with suppress(OSError):
        os.chdir(folder)


def _end_child(error: BaseException | None) -> NoReturn:
    """End a forked process where its script ends: what comes after it is for the parent to do."""
    code = error.code if isinstance(error, SystemExit) else int(error is not None)
    with suppress(OSError, ValueError):
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


class _Watcher:
    """Looks out for models and optimizers, and has them watched as one run."""

    def __init__(self, options: RunOptions, *, dtype: str | None, framework: str | None, program: Program) -> None:
        self._options, self._dtype = options, dtype
        self._program, self.files = program, ScriptFiles()
        self._run: Run | None = None
        self._level = RecordingLevel()
        self.guard = Guard(self._stopped)
        self._failure = ""
        self._chosen = framework
        self._framework: Framework | None = None
        self._looked_at: set[str] = set()
        self._others: set[str] = set()
        self._too_early: set[str] = set()
        self._refusal: ReprodLogError | None = None
        self._looking = ExitStack()
        self._optimizers: list[Any] = []
        self._attached = 0
        self._models: list[Root] = []
        self._functions: dict[tuple[str, type], Node] = {}
        self._values: list[Framework] = []
        """Those whose models are values, which tell by themselves what these compute."""
        self._heard: dict[str, ExitStack] = {}
        """What ends that, by framework."""

    # frameworks

    def imported(self, name: str) -> None:
        """A framework that we know is there now, or a library of one."""
        owner = LIBRARY_OF.get(name, name)
        if not is_loaded(owner) or (name == owner and name in LIBRARY_OF.values()):
            return
        framework = next(one for one in loaded() if one.name == owner)
        if "watch" not in framework.can:
            return
        if framework.programs is None:
            self._looked_at.add(framework.name)
            self._look(framework)
        else:
            self._hear(framework)

    def _hear(self, framework: Framework) -> None:
        """Have a framework whose models are values tell what they compute."""
        programs = framework.programs
        assert programs is not None

        def found(name: str, modules: Sequence[ModuleInfo]) -> None:
            begun = self.guard.attempt(self._begin, framework, None, lets=ReprodLogError)
            if begun and isinstance(self._run, ValueRun):
                self.guard(self._run.found)(name, modules)

        def report(*args: Any, **kwargs: Any) -> None:
            if self._framework is framework and isinstance(self._run, ValueRun) and self._level.is_recorded:
                self.guard(self._run.report)(*args, **kwargs)

        def know(facts: Mapping[str, Any]) -> None:
            if self._framework is framework and self._run is not None:
                self._run.know(facts)

        self._looked_at.add(framework.name)
        # Once more with every library of the framework that comes: the last time knows all that are there.
        if framework not in self._values:
            self._values.append(framework)
            self._heard[framework.name] = self._looking.enter_context(ExitStack())
        self._heard[framework.name].close()
        self._heard[framework.name].enter_context(
            programs.listening(Listener(None, found, report, know, self.guard.beside))
        )

    def _look(self, framework: Framework) -> None:
        def called(
            module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
            # Asked first: a compiler should see nothing of the rest.
            if framework.eager.is_tracing():
                return None
            if self.guard.attempt(self._begin, framework, module, lets=ReprodLogError):
                self.guard(self._take)(framework, module)
            return self._converted(framework, module, args, kwargs)

        self._looking.callback(framework.eager.on_any_call(called))
        self._looking.callback(framework.eager.on_new_optimizer(self.guard(self._made)))

    def stop_looking(self) -> None:
        self._looking.close()

    def _settle(self, framework: Framework, module: Any) -> None:
        """See to which framework is recorded, now that `module` is called."""
        if framework is self._framework or framework.name in self._others:
            return
        is_model = framework.programs is not None or _has_parameters(framework, module)
        if self._framework is None and self._chosen in (None, framework.name):
            # A transform of pictures, a loss function says nothing of what the script is about.
            if is_model or self._chosen is not None or len(self._looked_at) == 1:
                self._framework = framework
            else:
                self._too_early.add(framework.name)
            return
        if not is_model:
            return
        if self._chosen is None:
            self._refuse(framework)
        self._others.add(framework.name)

    def _refuse(self, other: Framework) -> None:
        first = self._framework.name if self._framework is not None else ""
        raise UsageError(
            f"the script calls models of {first} and of {other.name}, and a recording holds those of one framework. "
            f"Choose one: --framework {first} or --framework {other.name} (framework= of run_script)."
        )

    def _stopped(self, error: BaseException) -> None:
        """Something of ours went wrong; the script goes on."""
        if self._run is not None:
            self._run.stop(error)
        else:
            self._failure = described(error)

    # what the script does

    def _made(self, optimizer: Any) -> None:
        if not self._level.is_recorded:
            return
        # Reported once per constructor in the chain.
        if not any(known is optimizer for known in self._optimizers):
            self._optimizers.append(optimizer)

    def _begin(self, framework: Framework, module: Any) -> bool:
        """Whether this call is one to record; what the user has to decide is raised before anything is recorded."""
        if self.guard.stopped or not self._level.is_recorded:
            return False
        # A layer of one framework may be a module of the one below it as well.
        if framework.programs is None and any(one.owns(module) for one in self._values):
            return False
        try:
            self._settle(framework, module)
            if framework is not self._framework or (isinstance(self._run, ModelRun) and self._run.is_busy):
                return False
            if self._run is None:
                self._start(framework)
        except ReprodLogError as error:
            self._refusal = error
            raise
        return True

    def _take(self, framework: Framework, module: Any) -> None:
        """Have the module watched, and the optimizers that were made since."""
        run = self._run
        if isinstance(run, ModelRun):
            if run.node_of(module) is None:
                self._adopt(framework, run, module)
            self._attach_optimizers(framework, run)

    def _converted(
        self, framework: Framework, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments in the dtype of the pass, for every model that was converted, recorded or not any more."""
        run, dtype = self._run, self._dtype
        if not isinstance(run, ModelRun) or dtype is None or not self._level.is_recorded:
            return None
        if run.is_inside or run.node_of(module) is None:
            return None

        given: list[Any] = []

        def cast(_: str, leaf: Any) -> Any:
            if not framework.tensors.is_tensor(leaf):
                return leaf
            made = framework.eager.cast(leaf, dtype)
            if not framework.eager.is_computed(leaf):
                given.append(made)
            return made

        converted = mapped(args, cast), mapped(kwargs, cast)
        run.begin_with(given)
        return converted

    def _start(self, framework: Framework) -> None:
        if framework.programs is not None and self._dtype is not None:
            raise UsageError(
                f"the script calls models of {framework.name}, whose precision is the program's own: record it as it "
                "is, and compare the models themselves in float64 with align_models"
            )
        self._run = (ModelRun if framework.programs is None else ValueRun)(framework, {}, {}, self._options)
        self._run.__enter__()

    def _adopt(self, framework: Framework, run: ModelRun, module: Any) -> None:
        name = variable_name(module) or type(module).__name__
        if not _has_parameters(framework, module):
            self._adopt_function(framework, run, module, name)
            return
        if self._dtype is not None:
            framework.eager.convert(module, self._dtype)
        root = Root("", module, wish=self._unused(name))
        self._models.append(root)
        if len(self._models) > 1:
            # In the first step nothing is written yet, so the first model can still get its name too.
            for one in self._models if run.step_number == 0 else [root]:
                one.name = one.wish
        run.add_model(root)
        run.describe()

    def _adopt_function(self, framework: Framework, run: ModelRun, module: Any, name: str) -> None:
        """A loss function, an activation: often made for each call, so it is known by its name and class."""
        known = self._functions.get((name, type(module)))
        if known is not None:
            run.replace_module(known, module)
            return
        run.add_model(Root(self._unused(name), module, counts=False))
        node = run.node_of(module)
        if node is not None and not framework.eager.children(module):
            self._functions[name, type(module)] = node

    def _unused(self, name: str) -> str:
        taken = {root.wish for root in self._models} | {node.root.name for node in self._functions.values()}
        number = 2
        while name in taken:
            name = f"{name.rstrip('0123456789')}{number}"
            number += 1
        return name

    def _attach_optimizers(self, framework: Framework, run: ModelRun) -> None:
        ours = [optimizer for optimizer in self._optimizers if framework.eager.is_optimizer(optimizer)]
        for number in range(self._attached, len(ours)):
            if self._dtype is not None:
                framework.eager.convert_optimizer(ours[number], self._dtype)
            run.add_optimizer("optimizer" if len(ours) == 1 else f"optimizer{number}", ours[number])
        self._attached = len(ours)

    # the end

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        """Save what there is, whatever the script ended with."""
        if self._run is None:
            return
        for name in sorted(self._others):
            self._run.note(message("note.capture.other_framework", framework=name))
        if self._framework is not None and self._framework.name in self._too_early:
            option = Code(f"--framework {self._framework.name}")
            self._run.note(message("note.capture.too_early", option=option))
        if self._framework is not None:
            # What it ran is known in part then; the script is not to suffer for it.
            with suppress(Exception):
                whole = program_of(self._framework, self._program, self.files)
                self._run.know({FACT: {self._options.name: whole.to_dict()}})
        if self._refusal is not None and error is not self._refusal:
            # The script went on regardless.
            kind, error, trace = type(self._refusal), self._refusal, None
        ended_well = isinstance(error, SystemExit) and not error.code
        if error is None or ended_well:
            self._run.__exit__(None, None, None)
        else:
            self._run.__exit__(kind, error, trace)

    def recording(self) -> Recording:
        if self._refusal is not None:
            raise self._refusal
        if self._failure:
            raise CaptureError(f"nothing was recorded: {self._failure}. This is a bug in reprod_log; please report it.")
        if self._run is None:
            called = f" (it called models of {listed(sorted(self._others))})" if self._others else ""
            raise CaptureError(
                f"nothing was recorded: the script called no module of {self._chosen or watchable_names()}{called}. "
                "Its models must be called as modules (model(x)), in this process; what reprod_log itself runs does "
                "not count."
            )
        recording = self._run.recording
        if not recording.complete and not recording.entries and recording.notes:
            raise CaptureError(f"nothing was recorded, although the script finished: {recording.notes[-1]}")
        return recording


def _has_parameters(framework: Framework, module: Any) -> bool:
    modules = framework.eager
    if any(one.has_values and not one.counter for one in modules.own(module)):
        return True
    return any(_has_parameters(framework, child) for _, child in modules.children(module))


def variable_name(thing: Any) -> str:
    """What the running program calls `thing`: a variable or an attribute of `self` in one of its frames; '' if none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("reprod_log."):
            scopes = (frame.f_locals, vars(frame.f_locals["self"]) if _has_attributes(frame) else {}, frame.f_globals)
            for scope in scopes:
                for name, value in list(scope.items()):
                    if value is thing and name != "self" and not name.startswith("_"):
                        return str(name)
        frame = frame.f_back
    return ""


def _has_attributes(frame: FrameType) -> bool:
    return hasattr(frame.f_locals.get("self"), "__dict__")
