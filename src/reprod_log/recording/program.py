"""Program: what one pass of a recording ran. Passes of one recording must be of one program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reprod_log.errors import RecordingError, UsageError, listed
from reprod_log.messages import Message, Names, Parts, message
from reprod_log.recording.plain import Plain
from reprod_log.recording.recording import Recording

FACT = "passes"
"""Where a provenance keeps the program of each pass, by the name of the pass."""
ONE_PRECISION = "one_precision"
"""The fact that a program of this framework cannot be recorded in another precision than its own."""


@dataclass(frozen=True)
class Program(Plain):
    """A script with everything that decides what it computes. Contents and values are kept as hashes."""

    script: str = ""
    """The content of the script."""
    arguments: tuple[str, ...] = ()
    framework: str = ""
    """Its name and version."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """The content of each module of the user's own that was imported, by its name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the script or its framework reads; '' for one that is not set."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Switches of the framework, and the settings of layers and optimizers, under dotted names."""

    def differences(self, other: Program) -> dict[str, tuple[Any, Any]]:
        """What differs, by its name, with both values; what only one of them recorded does not count."""
        found: dict[str, tuple[Any, Any]] = {}
        for name in ("script", "framework"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours and theirs and ours != theirs:
                found[name] = ours, theirs
        if self.script and other.script and self.arguments != other.arguments:
            found["arguments"] = " ".join(self.arguments), " ".join(other.arguments)
        for kind in ("modules", "environment", "settings"):
            ours, theirs = getattr(self, kind), getattr(other, kind)
            word = kind.removesuffix("s") if kind == "modules" else kind
            found |= {
                f"{word} {name}": (ours[name], theirs[name])
                for name in ours
                if name in theirs and ours[name] != theirs[name]
            }
        return found


def programs_of(recording: Recording) -> dict[str, Program]:
    """The program of each pass, as far as it was recorded."""
    known = recording.provenance.extra.get(FACT, {})
    if not isinstance(known, Mapping):
        return {}
    try:
        return {str(run): Program.from_dict(one) for run, one in known.items() if isinstance(one, Mapping)}
    except TypeError as error:
        raise RecordingError(f"cannot read what ran in {recording.source or 'a recording'} ({error})") from error


def known_program(recording: Recording, run: str) -> Program | None:
    """The program of a pass with the settings of its layers and optimizers, if it was recorded."""
    found = programs_of(recording).get(run)
    return None if found is None else replace(found, settings={**found.settings, **settings_of(recording)})


def differing_passes(recording: Recording) -> tuple[str, ...]:
    """What differs between the programs of the passes of a recording, by its name."""
    first, *others = list(programs_of(recording).values()) or [Program()]
    return tuple(dict.fromkeys(name for other in others for name in first.differences(other)))


def unknown_passes(recording: Recording) -> tuple[str, ...]:
    """The passes whose program was not recorded, in a recording that has it for others."""
    known = programs_of(recording)
    return tuple(run for run in recording.runs if known and run not in known)


def of_one_program(recording: Recording) -> Recording:
    """The recording, all of whose passes were made by one run of one program."""
    known = programs_of(recording).get("")
    return recording if known is None else _with_programs(recording, dict.fromkeys(recording.runs, known))


def join_passes(plain: Recording, *passes: Recording) -> Recording:
    """The recording `plain` with further passes of the same program, for example one made with `watch(run="float64")`.

    Passes of another program are refused with UsageError: the difference of two programs would count as rounding. Of a
    pass that is incomplete nothing is taken, and the recording notes it.
    """
    whole = plain
    for one in passes:
        _check_same(whole, one)
        if one.complete:
            kept = tuple(entry for entry in whole.entries if entry.key.run not in one.runs)
            whole = replace(
                whole, entries=(*kept, *one.entries), notes=tuple(dict.fromkeys((*whole.notes, *one.notes)))
            )
            whole = _with_programs(whole, {**programs_of(plain), **programs_of(whole), **programs_of(one)})
        else:
            why = Parts(note for note in one.notes[-1:] if isinstance(note, Message))
            whole = replace(
                whole, notes=(*whole.notes, message("note.recording.pass_left_out", runs=Names(one.runs), why=why))
            )
    return whole


def _check_same(plain: Recording, other: Recording) -> None:
    ours = known_program(plain, "")
    if not plain.of_run("") or not other.runs or "" in other.runs:
        raise UsageError("join_passes takes the plain recording first, then passes that have a name (watch(run=…))")
    for run in other.runs:
        theirs = known_program(other, run)
        differing = () if ours is None or theirs is None else tuple(ours.differences(theirs))
        if differing:
            raise UsageError(
                f"the {run} pass is not of the same program as the plain pass: {listed(differing)} differ. A "
                "difference of two programs would count as rounding. Record both passes anew with the same program."
            )


def _with_programs(recording: Recording, programs: Mapping[str, Program]) -> Recording:
    facts = {run: one.to_dict() for run, one in programs.items()}
    origin = recording.provenance
    return replace(recording, provenance=replace(origin, extra={**origin.extra, FACT: facts}))


_OF_A_PASS = ("dtype", "lr", "learning_rate")
"""Settings that another precision changes, or that the numbers themselves are held against."""


def settings_of(recording: Recording) -> dict[str, Any]:
    """The settings of layers and optimizers under dotted names, without what a pass in another precision changes."""
    found = {
        f"{module.path or module.type}.{name}": value
        for module in recording.modules
        for name, value in module.settings.items()
    }
    optimizers = recording.provenance.extra.get("optimizers")
    for name, one in optimizers.items() if isinstance(optimizers, Mapping) else ():
        found |= {f"{name}.{setting}": value for setting, value in one.items()} if isinstance(one, Mapping) else {}
    return {
        name: value
        for name, value in found.items()
        if not name.lower().endswith(_OF_A_PASS) and is_plain(value) and not _is_dtype(value)
    }


def is_plain(value: Any) -> bool:
    """Whether it is one number, a flag or text, which can be held against another."""
    return value is None or isinstance(value, (bool, int, float, str))


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and value.rpartition(".")[2] in ("float32", "float64")
