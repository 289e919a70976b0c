"""run_plan: every step of a plan, both sides in one process or each in its own, compared and saved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.recording.files import replacing
from reprod_log.steps import subject_module
from reprod_log.steps.plan import SIDES, Options, Plan, SideName, Step, plan_at
from reprod_log.steps.processes import SideProcess
from reprod_log.steps.result import StepResult


@dataclass(frozen=True)
class PlanResult:
    """All steps of a plan, in its order."""

    title: str
    folder: Path
    steps: tuple[StepResult, ...]

    @property
    def passed(self) -> bool:
        return bool(self.steps) and all(step.passed for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """The table as plain values; the alignments lie beside it."""
        return {
            "title": self.title,
            "passed": self.passed,
            "steps": [
                {
                    "name": step.name,
                    "subject": "" if step.subject is None else step.subject.name,
                    "status": "SKIPPED" if step.skipped else str(step.status),
                    "passed": step.passed,
                    "problem": step.problem,
                    "alignment": "" if step.alignment is None else f"{step.name}/alignment.json",
                }
                for step in self.steps
            ],
        }


def run_plan(
    path: str | Path,
    options: Options,
    *,
    only: Iterable[str] = (),
    stop: bool = False,
    together: bool = False,
    tell: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> PlanResult:
    """Do every step of the plan at `path`; save alignments, recordings and the table below `options.folder`.

    only       names of the steps to do; all by default
    stop       leave out what comes after the first step that does not pass
    together   both sides live in this process, whatever the plan says
    tell       hears which step is being done, how many are done, and how many there are
    """
    options.folder.mkdir(parents=True, exist_ok=True)
    with plan_at(path, options) as whole, ExitStack() as processes:
        plan = whole.only(only)
        apart = plan.apart and not together
        do = _Apart(plan, Path(path), options, processes, ahead=not stop).result if apart else _together
        for step in plan.steps:
            # What an earlier run left must not pass for this one's.
            (options.folder / step.title / "alignment.json").unlink(missing_ok=True)
        results: list[StepResult] = []
        for step in plan.steps:
            if stop and results and not results[-1].passed:
                results.append(StepResult(step.title, subject_module(step.subject).SUBJECT, None, None, skipped=True))
                continue
            tell(step.title, len(results), len(plan.steps))
            results.append(do(step))
            alignment = results[-1].alignment
            if alignment is not None:
                alignment.save(options.folder / step.title / "alignment.json")
        found = PlanResult(plan.title or Path(path).resolve().parent.name, options.folder, tuple(results))
    with replacing(options.folder / "plan.json") as file:
        file.write(json.dumps(found.to_dict(), indent=1, ensure_ascii=False).encode())
    return found


def _together(step: Step) -> StepResult:
    """Both sides in this process."""
    module = subject_module(step.subject)
    try:
        alignment = module.run(step.reference(), step.candidate(), **step.arguments_for(module.run))
    except Exception as error:  # whatever the plan's code raises is this step's problem, not the end of the plan
        return StepResult(step.title, module.SUBJECT, None, None, problem=f"{type(error).__name__}: {error}")
    return StepResult(step.title, module.SUBJECT, None, None, alignment)


class _Apart:
    """Each side in a process of its own; this one compares what they wrote and imports neither framework."""

    def __init__(self, plan: Plan, path: Path, options: Options, stack: ExitStack, *, ahead: bool) -> None:
        self._folder = options.folder
        self._processes: dict[str, SideProcess] = {}
        for side in SIDES:
            process = SideProcess(path.resolve(), options, options.folder / f"{side}.log")
            stack.callback(process.close)
            self._processes[side] = process
        self._asked: set[str] = set()
        if ahead:
            # Recording goes on while earlier steps are compared.
            for step in plan.steps:
                self._ask(step)

    def _ask(self, step: Step) -> None:
        if step.title in self._asked:
            return
        self._asked.add(step.title)
        for side in SIDES:
            self._processes[step.process or side].ask(step.title, side, _place(self._folder, step, side))

    def result(self, step: Step) -> StepResult:
        self._ask(step)
        module = subject_module(step.subject)
        paths = {side: _place(self._folder, step, side) for side in SIDES}
        problems = {side: self._processes[step.process or side].problem(step.title, side) for side in SIDES}
        alignment: Alignment | None = None
        problem = "; ".join(f"{side}: {said}" for side, said in problems.items() if said)
        if not problem:
            arguments = step.arguments_for(module.compare)
            alignment = module.compare(paths["reference"], paths["candidate"], **arguments)
        return StepResult(step.title, module.SUBJECT, paths["reference"], paths["candidate"], alignment, problem)


def _place(folder: Path, step: Step, side: SideName) -> Path:
    return folder / step.title / f"{side}.safetensors"
