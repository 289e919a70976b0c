"""Key: what an entry is, in words that a person can read and a program can take apart.

step0/forward/encoder.0.linear#0:output          layer output, first call of step 0
step3/gradient/fc.weight:raw                      a parameter's gradient before clipping
float64@step0/forward/encoder.0.linear#0:output   the same output in the float64 pass
isolated@step0/gradient/fc.weight:raw of fc       the same parameter's gradient when the layer `fc` ran alone
loss_0                                            a classic name: no structure, kept as it is
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

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

OF_MODULES = ("forward", "backward")
"""Phases of what modules take and give."""
OF_TENSORS = ("gradient", "clip", "update", "parameter", "buffer", "optimizer")
"""Phases of weights, buffers and what is kept for them."""
# Numbers as we print them and no others, so that a key that parses prints as the same text again.
_STRUCTURED = re.compile(
    r"(?:(?P<run>[A-Za-z0-9_.+-]+)@)?"
    r"step(?P<step>0|[1-9][0-9]{0,17})/(?P<phase>" + "|".join(PHASES) + r")/"
    r"(?P<path>.*?)(?:#(?P<call>0|[1-9][0-9]{0,17}))?(?::(?P<role>[^:#/]+))?",
    re.DOTALL,
)


@dataclass(frozen=True, init=False, eq=False)
class Key:
    """The identity of an entry. `phase` is empty for a classic name, which is then all in `path`.

    Two keys are equal when they print the same text, and a key equals that text: `judgement.key == "step0/loss/loss"`.
    Inside the package keys stay keys; text is parsed where it comes in (files, the command line, the user's calls).
    """

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
    region: str | None = None
    """The part of the model that ran alone when a gradient or buffer was recorded ('' is the whole model)."""

    def __init__(
        self,
        path: str,
        phase: str = "",
        step: int | None = None,
        call: int | None = None,
        role: str = "",
        run: str = "",
        region: str | None = None,
    ) -> None:
        # As for Entry, of which each has one: see there.
        values = self.__dict__
        values["path"], values["phase"], values["step"] = path, phase, step
        values["call"], values["role"], values["run"], values["region"] = call, role, run, region

    def __str__(self) -> str:
        if not self.phase:
            return self.path
        text: str | None = self.__dict__.get("_text")
        if text is None:
            prefix = f"{self.run}@" if self.run else ""
            call = "" if self.call is None else f"#{self.call}"
            role = f":{self.printed_role}" if self.role or self.region is not None else ""
            text = self.__dict__["_text"] = f"{prefix}step{self.step or 0}/{self.phase}/{self.path}{call}{role}"
        return text

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, (Key, str)) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def printed_role(self) -> str:
        """The role as a key's text has it: with the region, if there is one."""
        if self.region is None:
            return self.role
        region = _QUOTED if self.region == _WHOLE else self.region or _WHOLE
        return f"{self.role} of {region}" if self.role else f"of {region}"

    @property
    def layer_alone(self) -> str:
        """The layer that ran alone when an entry of an isolated run was recorded."""
        return self.path if self.phase in ("forward", "backward") else self.region or ""

    @staticmethod
    def parse(text: str) -> Key:
        """The key that prints as `text`; anything that is not of our form is a classic name."""
        return _parsed(text)

    @staticmethod
    def of(key: Key | str) -> Key:
        """The key itself, or the one that the text means."""
        return key if isinstance(key, Key) else _parsed(key)

    def in_run(self, run: str) -> Key:
        """The same entry of another pass."""
        return Key(self.path, self.phase, self.step, self.call, self.role, run, self.region)


_WHOLE, _QUOTED = "model", "'model'"
"""The whole model as a region, and a child that has this very name."""
_REGIONS = ("gradient", "buffer")
"""Phases in which the role also names what ran alone. In the others that is the path."""


# Every part of a comparison asks for the same keys again.
@lru_cache(maxsize=1 << 16)
def _parsed(text: str) -> Key:
    found = _STRUCTURED.fullmatch(text)
    if found is None:
        return Key(path=text)
    run, step, phase, path, call, role = found.groups()
    region = None
    if run and role and phase in _REGIONS and run.startswith("isolated"):
        before, of, region = f" {role}".partition(" of ")
        role, region = (before[1:], {_WHOLE: "", _QUOTED: _WHOLE}.get(region, region)) if of else (role, None)
    key = Key(path, phase, int(step), None if call is None else int(call), role or "", run or "", region)
    # It prints as the text it was read from, so it need not be put together again.
    key.__dict__["_text"] = text
    return key


class SeenKeys:
    """Which keys were there already, in as much memory for a thousand steps as for ten.

    A training has the same keys at every step, or at every tenth: of each key without its step only the regular
    sequences of its steps are kept.
    """

    def __init__(self) -> None:
        self._steps: dict[tuple[object, ...], list[range]] = {}

    def add(self, key: Key) -> bool:
        """Remember the key; False when it was there."""
        step = -1 if key.step is None else key.step
        name = (key.path, key.phase, key.call, key.role, key.run, key.region)
        found = self._steps.setdefault(name, [])
        if any(step in one for one in found):
            return False
        last = found[-1] if found else None
        if last is not None and len(last) == 1 and step > last[0]:
            found[-1] = range(last[0], step + 1, step - last[0])
        elif last is not None and step == last[-1] + last.step:
            found[-1] = range(last[0], step + 1, last.step)
        else:
            found.append(range(step, step + 1))
        return True
