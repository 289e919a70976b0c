"""Plan: the steps of a reproduction in order, each with its two sides.

A plan is a Python file that has `plan`, a Plan or a function that gives one for the Options of the command:

    def plan(options: Options) -> Plan:
        return Plan((
            Step("forward", torch_model, paddle_model, {"inputs": images}),
            Step("lr", torch_schedule, paddle_schedule, {"steps": 90}),
        ))

Sides are functions without parameters. They import their framework themselves, so that each can run in a process of its
own while a third one, which imports neither, compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from reprod_log.errors import UsageError, listed
from reprod_log.steps import GUIDE_ORDER, subject_named
from reprod_log.steps.fake_data import FakeData
from reprod_log.steps.python_file import python_file, users_own
from reprod_log.steps.subject import ACTIONS, Action

ORDERS: Mapping[str, tuple[str, ...]] = {
    "guides": GUIDE_ORDER,
    # The reproduction that numbers its folders step1 to step5.
    "alexnet-prod": ("forward", "metric", "loss", "backward", "training"),
}

SideName = Literal["reference", "candidate"]
SIDES: tuple[SideName, SideName] = ("reference", "candidate")


@dataclass(frozen=True)
class Options:
    """What the command was asked for; a plan makes of it what it can."""

    full: bool = False
    """The real size instead of the small one."""
    as_published: bool = False
    """With the mistake of the published reproduction."""
    folder: Path = Path("reprod_output")
    """Where results go; the place for fake data too."""


@dataclass(frozen=True)
class Step:
    """One subject with what each side gives for it and the keywords of its `run`."""

    subject: str
    reference: Callable[[], Any]
    """Gives what the subject's `record` takes, or a Recording."""
    candidate: Callable[[], Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """By default the subject's; needed when a subject comes twice."""
    process: Literal["", "reference", "candidate"] = ""
    """The process both sides run in, when they are of one framework; '' each in its own."""

    def __post_init__(self) -> None:
        subject = subject_named(self.subject)
        known = dict.fromkeys(name for action in ACTIONS for name in subject.keywords(action))
        unknown = sorted(set(self.arguments) - set(known))
        if unknown:
            raise UsageError(
                f"step {self.title!r}: {self.subject} has no keyword {listed(unknown)}; it takes {listed(known, 20)}"
            )

    @property
    def title(self) -> str:
        return self.name or self.subject

    def side(self, side: SideName) -> Callable[[], Any]:
        return self.reference if side == "reference" else self.candidate

    def arguments_for(self, action: Action) -> dict[str, Any]:
        """Those of the arguments that the subject's `record`, `compare` or `run` takes."""
        known = subject_named(self.subject).keywords(action)
        return {name: value for name, value in self.arguments.items() if name in known}


@dataclass(frozen=True)
class Plan:
    """Steps in the order in which they are done."""

    steps: tuple[Step, ...]
    title: str = ""
    apart: bool = True
    """Each side in a process of its own; False: both live in one, where layers can also be run alone."""
    data: FakeData | None = None
    """What both sides are fed; its hash goes into every recording."""

    def __post_init__(self) -> None:
        if not self.steps:
            raise UsageError("a plan without steps would compare nothing")
        names = [step.title for step in self.steps]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"steps of a plan need different names; {listed(twice)} is used twice: Step(…, name=…)")

    def ordered(self, order: str | Sequence[str]) -> Plan:
        """The same steps in the order of the name ('guides', 'alexnet-prod') or of the subjects given; others last."""
        if isinstance(order, str):
            if order not in ORDERS:
                raise UsageError(f"no order is called {order!r}; known are {listed(ORDERS)}")
            order = ORDERS[order]
        places = {subject: place for place, subject in enumerate(order)}
        last = {subject: len(places) + place for place, subject in enumerate(GUIDE_ORDER)}
        return replace(
            self, steps=tuple(sorted(self.steps, key=lambda step: places.get(step.subject, last[step.subject])))
        )

    def only(self, titles: Iterable[str]) -> Plan:
        """The plan with these steps alone, in its own order; all of them when none is named."""
        chosen = {self.step(title).title for title in titles}
        return replace(self, steps=tuple(step for step in self.steps if step.title in chosen)) if chosen else self

    def step(self, title: str) -> Step:
        """The step of this name."""
        for step in self.steps:
            if step.title == title:
                return step
        raise UsageError(f"the plan has no step {title!r}; it has {listed([step.title for step in self.steps], 20)}")


@contextmanager
def plan_at(path: str | Path, options: Options) -> Iterator[Plan]:
    """The plan of a file; while it lasts, modules beside the file can be imported."""
    with python_file(path, wanted="reprod plan takes a Python file with a plan") as module:
        where = Path(path).resolve()
        with users_own(where):
            found = getattr(module, "plan", None)
            found = found(options) if callable(found) else found
        if not isinstance(found, Plan):
            raise UsageError(f"{where} has no plan: define `plan = Plan(…)` or a function plan(options) that gives one")
        yield found
