"""Determinism: make a run repeatable, put everything back afterwards, and say what stands in the way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprod_log.frameworks import watchable
from reprod_log.frameworks.contract import Framework, Switch


@contextmanager
def deterministic(seed: int = 0) -> Iterator[None]:
    """Inside the block random numbers start from `seed` and every switch that makes runs repeatable is set.

    It holds for Python, numpy and each framework that is loaded. Afterwards seeds, random states and switches are as
    they were. What can only be set before a program starts is not touched; `determinism_report` names it.
    """
    with ExitStack() as undo:
        undo.callback(random.setstate, random.getstate())
        undo.callback(np.random.set_state, np.random.get_state())
        random.seed(seed)
        np.random.seed(seed % 2**32)
        for framework in watchable():
            process = framework.eager.process
            undo.callback(process.set_random_state, process.random_state())
            for switch in process.switches():
                if switch.write is not None and switch.read() not in switch.wanted:
                    undo.callback(switch.write, switch.read())
                    switch.write(switch.wanted[0])
            process.seed(seed)
        yield


@dataclass(frozen=True)
class Condition:
    """One thing that decides whether a run can be repeated."""

    framework: str
    name: str
    value: Any
    wanted: tuple[Any, ...]
    why: str

    @property
    def met(self) -> bool:
        return self.value in self.wanted


def determinism_report() -> tuple[Condition, ...]:
    """How this process stands: every switch of every loaded framework, with the values that repeatable runs want."""
    return tuple(_condition(one, switch) for one in watchable() for switch in one.eager.process.switches())


def _condition(framework: Framework, switch: Switch) -> Condition:
    return Condition(framework.name, switch.name, switch.read(), switch.wanted, switch.why)
