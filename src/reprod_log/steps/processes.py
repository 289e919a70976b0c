"""Processes: a plan is run with both sides in one process, or each in its own, and every step is compared and saved.

    python -m reprod_log.steps.processes PLAN OPTIONS

is the process of one side. It reads one JSON object per line ({"step": …, "side": …, "path": …}) and answers each with
one ({"problem": …}, '' when the recording lies at the path). What the plan's own code prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from reprod_log.alignment import Alignment
from reprod_log.errors import interrupted, result_of
from reprod_log.messages import Foreign, Name, Parts, message
from reprod_log.progress import Progress, shown, stage
from reprod_log.recording import Recording
from reprod_log.recording.files import replacing
from reprod_log.steps import subject_named
from reprod_log.steps.overview import Overview, StepResult, without_posing
from reprod_log.steps.plan import SIDES, Options, Plan, SideName, Step, plan_at

_LAST_LINES = 3
_PATIENCE = 10.0


def run_plan(
    path: str | Path,
    options: Options,
    *,
    only: Iterable[str] = (),
    stop: bool = False,
    together: bool = False,
    allow_unproven: bool = False,
    progress: bool | Progress | None = None,
) -> Overview:
    """Do every step of the plan at `path`; save alignments, recordings and the table below `options.folder`.

    only       names of the steps to do; all by default
    stop       skip the steps after the first that does not pass
    together   both sides live in this process, even if the plan keeps them apart
    allow_unproven   a step whose pass proves nothing may pass
    progress   as of `align`: shown on a terminal and in a notebook, or a function
    Ctrl-C ends the step that runs and skips the others; it leaves with the overview as `result`.
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
        interruption: KeyboardInterrupt | None = None
        with shown(progress), stage(message("progress.plan"), len(plan.steps)) as report:
            for step in plan.steps:
                subject = subject_named(step.subject)
                if interruption or (stop and results and not results[-1].passed):
                    results.append(StepResult(step.title, subject, None, None, skipped=True))
                    continue
                report(len(results), message("progress.plan.step", what=Name(step.title)))
                try:
                    found = do(step)
                except KeyboardInterrupt as stopping:
                    interruption, problem = stopping, message("stopped")
                    found = StepResult(step.title, subject, None, None, result_of(stopping, Alignment), problem)
                results.append(_saved(found, options.folder, allow_unproven and interruption is None))
        for place, one in enumerate(without_posing(results)):
            if one is not results[place]:
                results[place] = _saved(one, options.folder, allow_unproven)
        overview = Overview("plan", plan.title or Path(path).resolve().parent.name, options.folder, tuple(results))
    with replacing(options.folder / "plan.json") as file:
        file.write(json.dumps(overview.to_dict(), indent=1, ensure_ascii=False).encode())
    if interruption:
        raise interrupted(result=overview) from None
    return overview


def _saved(result: StepResult, folder: Path, allow_unproven: bool) -> StepResult:
    """The result as it counts, its alignment saved."""
    found = result.allowing_unproven() if allow_unproven else result
    if found.alignment is not None:
        found.alignment.save(folder / found.name / "alignment.json")
    return found


def _together(step: Step) -> StepResult:
    """Both sides in this process."""
    subject = subject_named(step.subject)
    try:
        alignment = subject.run(step.reference(), step.candidate(), **step.arguments_for("run"))
    except Exception as error:  # whatever the plan's code raises is this step's problem, not the end of the plan
        problem = message("text", text=Foreign(f"{type(error).__name__}: {error}"))
        return StepResult(step.title, subject, None, None, problem=problem)
    return StepResult(step.title, subject, None, None, alignment)


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
        subject = subject_named(step.subject)
        paths = {side: _place(self._folder, step, side) for side in SIDES}
        problems = {side: self._processes[step.process or side].problem(step.title, side) for side in SIDES}
        alignment: Alignment | None = None
        found = Parts(
            message("remark.side", side=message(side), note=Foreign(text)) for side, text in problems.items() if text
        )
        problem = message("reason.several", reasons=found) if found else None
        if problem is None:
            arguments = step.arguments_for("compare")
            alignment = subject.compare(paths["reference"], paths["candidate"], **arguments)
        return StepResult(step.title, subject, paths["reference"], paths["candidate"], alignment, problem)


def _place(folder: Path, step: Step, side: SideName) -> Path:
    return folder / step.title / f"{side}.safetensors"


class SideProcess:
    """A running process of one side. Requests may be sent ahead; answers come in the same order."""

    def __init__(self, plan: Path, options: Options, log: Path) -> None:
        given = json.dumps(
            {"full": options.full, "as_published": options.as_published, "folder": str(options.folder.resolve())}
        )
        self.log = log
        self._waiting: deque[tuple[str, SideName]] = deque()
        self._answers: dict[tuple[str, SideName], str] = {}
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "reprod_log.steps.processes", str(plan), given],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="utf-8",
            )

    def ask(self, step: str, side: SideName, path: Path) -> None:
        """Have one side of a step recorded at `path`."""
        assert self._process.stdin is not None
        self._waiting.append((step, side))
        request = json.dumps({"step": step, "side": side, "path": str(path.resolve())})
        # When it has ended, `problem` gives the reason.
        with suppress(BrokenPipeError):
            print(request, file=self._process.stdin, flush=True)

    def problem(self, step: str, side: SideName) -> str:
        """Wait until that recording lies at its path; what went wrong, or ''."""
        assert self._process.stdout is not None
        while (step, side) not in self._answers:
            line = self._process.stdout.readline()
            if not line:
                return self._end()
            self._answers[self._waiting.popleft()] = str(json.loads(line)["problem"])
        return self._answers[step, side]

    def _end(self) -> str:
        code = self._process.wait()
        lines = [line.strip() for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
        last = " | ".join(lines[-_LAST_LINES:])
        return f"its process ended with code {code}: {last or 'no output'} (see {self.log})"

    def close(self) -> None:
        """Let it end, or end it."""
        for stream in (self._process.stdin, self._process.stdout):
            # What was still to be sent may have no reader any more.
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        try:
            self._process.wait(timeout=0 if self._waiting else _PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def record_side(plan: Plan, title: str, side: SideName) -> Recording:
    """What one side gives for a step, with the hash of the plan's data in it."""
    step = plan.step(title)
    made = step.side(side)()
    if not isinstance(made, Recording):
        made = subject_named(step.subject).record(made, **step.arguments_for("record"))
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
                # The process that asked has ended; nobody reads the answers to requests sent ahead.
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
