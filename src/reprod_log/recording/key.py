"""Key: what an entry is, in words that a person can read and a program can take apart.

step0/forward/encoder.0.linear#0:output          layer output, first call of step 0
step3/gradient/fc.weight:raw                      a parameter's gradient before clipping
float64@step0/forward/encoder.0.linear#0:output   the same output in the float64 pass
loss_0                                            a classic name: no structure, kept as it is
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

PHASES = (
    "data",
    "forward",
    "loss",
    "backward",
    "gradient",
    "clip",
    "lr",
    "update",
    "parameter",
    "buffer",
    "optimizer",
    "metric",
)
"""In execution order, so that "first divergence" means first in time."""

# Numbers as we print them and no others, so that a key that parses prints as the same text again.
_STRUCTURED = re.compile(
    r"(?:(?P<run>[A-Za-z0-9_.+-]+)@)?"
    r"step(?P<step>0|[1-9][0-9]{0,17})/(?P<phase>" + "|".join(PHASES) + r")/"
    r"(?P<path>.*?)(?:#(?P<call>0|[1-9][0-9]{0,17}))?(?::(?P<role>[^:#/]+))?",
    re.DOTALL,
)


@dataclass(frozen=True, init=False)
class Key:
    """The identity of an entry. `phase` is empty for a classic name, which is then all in `path`."""

    path: str
    """Module or parameter path (`encoder.0.linear`), or the whole classic name."""
    phase: str = ""
    step: int | None = None
    call: int | None = None
    """Which call of the module within the step, for modules that run several times."""
    role: str = ""
    """output, output.1, input.mask, raw, clipped, exp_avg …"""
    run: str = ""
    """The pass of the same program this came from: '' (as the user runs it), float64, isolated …"""

    def __init__(
        self,
        path: str,
        phase: str = "",
        step: int | None = None,
        call: int | None = None,
        role: str = "",
        run: str = "",
    ) -> None:
        # As for Entry, of which each has one: see there.
        values = self.__dict__
        values["path"], values["phase"], values["step"] = path, phase, step
        values["call"], values["role"], values["run"] = call, role, run

    def __str__(self) -> str:
        if not self.phase:
            return self.path
        return self._text

    @cached_property
    def _text(self) -> str:
        prefix = f"{self.run}@" if self.run else ""
        call = "" if self.call is None else f"#{self.call}"
        role = f":{self.role}" if self.role else ""
        return f"{prefix}step{self.step or 0}/{self.phase}/{self.path}{call}{role}"

    @staticmethod
    def parse(text: str) -> Key:
        """The key that prints as `text`; anything that is not of our form is a classic name."""
        return _parsed(text)

    def in_run(self, run: str) -> Key:
        """The same entry of another pass."""
        return replace(self, run=run)


# Every part of a comparison asks for the same keys again.
@lru_cache(maxsize=1 << 16)
def _parsed(text: str) -> Key:
    found = _STRUCTURED.fullmatch(text)
    if found is None:
        return Key(path=text)
    run, step, phase, path, call, role = found.groups()
    key = Key(path, phase, int(step), None if call is None else int(call), role or "", run or "")
    # It prints as the text it was read from, so nobody needs to put that together again.
    key.__dict__["_text"] = text
    return key
