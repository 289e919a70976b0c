"""reprod zoom: record the place where two runs first diverge again, in full, and compare it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Annotated, Any

import typer

from reprod_log.alignment import Alignment, AlignOptions, align_with
from reprod_log.cli.answer import answer, exit_code
from reprod_log.cli.ending import give, tell, tell_next, tell_note
from reprod_log.cli.groups import Judging, Output
from reprod_log.cli.options import Candidate, Reference, Renames, Trust, rename_map
from reprod_log.errors import RecordingError, UsageError
from reprod_log.messages import Code, Message, Name, Names, message, words
from reprod_log.recording import OF_MODULES, OF_TENSORS, Recording
from reprod_log.recording.stores import load
from reprod_log.report.answer import answer_of
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.view import first_in_words
from reprod_log.verdict import Status

NAME = "zoom"


@dataclass(frozen=True)
class Place:
    """A step, and the layers and phases of it on either side that are worth seeing in full."""

    step: int
    phases: tuple[str, ...]
    layers: Mapping[str, str]
    """The candidate's name for each layer or parameter of the reference; empty: the whole step."""

    @property
    def message(self) -> Message:
        """What is going to be recorded."""
        if self.layers:
            return message("zoom.layers", step=self.step, layers=Names(self.layers))
        return message("zoom.phases", step=self.step, phases=Names(self.phases))


def run(
    reference: Reference,
    candidate: Candidate,
    *,
    folder: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the new recordings go.")],
    places: Annotated[
        int, typer.Option(metavar="N", help="How many layers of the first diverging step to record.", min=1)
    ] = 1,
    rename: Renames = [],  # noqa: B006  # typer's way of saying 'none given'
    judging: Judging,
    output: Output,
    reference_run: Annotated[
        str, typer.Option(metavar="'SCRIPT ARGS'", help="The command for REF, if its recording does not contain it.")
    ] = "",
    candidate_run: Annotated[
        str, typer.Option(metavar="'SCRIPT ARGS'", help="The command for CAND, if its recording does not contain it.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Run the scripts without asking.")] = False,
    trust: Trust = False,
) -> int:
    """Find where two recordings first diverge, run both scripts again recording only that place in full, and compare.

    For recordings of `reprod run --detail sketch`, which are small but show where to look. The scripts, arguments and
    interpreters come from the recordings; they are shown before anything runs.
    """
    sides = load(reference, trust=trust), load(candidate, trust=trust)
    options = judging.options(rename=rename_map(rename))
    rough = align_with(*sides, options)
    if rough.passed or rough.status in (Status.UNPROVEN, Status.INCOMPLETE):
        tell(message("zoom.nothing", headline=FirstScreen(rough).headline))
        return _ended(rough, reference, candidate)
    place = first_place(rough, places)
    targets = folder / "reference", folder / "candidate"
    scripts = reference_run, candidate_run
    commands = [
        _command(side, place, target, script, is_reference=side is sides[0])
        for side, target, script in zip(sides, targets, scripts, strict=True)
    ]
    if (first := first_in_words(rough)) is not None:
        tell(message("zoom.first", entry=first))
    tell(place.message)
    for command, there in commands:
        tell(message("zoom.command", folder=Name(there), command=Code(shlex.join(command))), before="  ")
    if not yes and not typer.confirm(words(output.language).get("zoom.run")):
        return _ended(rough, reference, candidate)
    for (command, there), target in zip(commands, targets, strict=True):
        _run(command, there, target)
    return answer(_close_up(sides, targets, place, options), replace(output, all_rows=True))


def _ended(rough: Alignment, reference: Path | str, candidate: Path | str) -> int:
    """Nothing was recorded: what there is, as a report."""
    give(lambda: answer_of(rough))
    tell_next("reprod", "compare", reference, candidate, "--report", "report.html")
    return exit_code(rough)


def _close_up(
    sides: tuple[Recording, Recording], targets: tuple[Path, Path], place: Place, options: AlignOptions
) -> Alignment:
    """The new recordings compared, after a look at whether the runs repeated themselves."""
    fine = load(targets[0]), load(targets[1])
    for side, again, which in zip(sides, fine, ("reference", "candidate"), strict=True):
        _check_repeats(side, again, which)
    given = {old: new for old, new in options.rename.items() if _is_there(old, fine[0])}
    return align_with(*fine, replace(options, rename={**given, **_renames(place, fine[0])}))


def first_place(alignment: Alignment, places: int = 1) -> Place:
    """The first step with an entry that does not pass, and its first layers that have one."""
    partners = {row.key: row.candidate_key for row in alignment.comparison.rows}
    wrong = [one.key for one in alignment.verdict.judgements if not one.status.passed and one.key in partners]
    wrong = [key for key in wrong if key.phase and not key.run]
    if not wrong:
        raise UsageError(
            "nothing to zoom into: the entries that do not pass are unmatched, or the recordings have no steps and "
            "layers. `reprod compare` lists these entries."
        )
    step = min(key.step or 0 for key in wrong)
    here = [key for key in wrong if (key.step or 0) == step]
    if here[0].phase not in (*OF_MODULES, *OF_TENSORS) or not here[0].path:
        # A loss, a rate, a batch, the whole model: no layer to choose.
        return Place(step, tuple(dict.fromkeys(("data", "forward", "loss", here[0].phase))), {})
    layers: dict[str, str] = {}
    for key in here:
        partner = partners[key]
        if key.phase in (*OF_MODULES, *OF_TENSORS) and key.path and (len(layers) < places or key.path in layers):
            layers.setdefault(key.path, partner.path)
    return Place(step, ("data", "forward", "loss", "backward", "lr", *OF_TENSORS), layers)


def _command(side: Recording, place: Place, target: Path, given: str, *, is_reference: bool) -> tuple[list[str], str]:
    """What records the place in full on one side, and the folder to run it in."""
    which = "reference" if is_reference else "candidate"
    known: Any = side.provenance.extra.get("run")
    if given:
        script, *args = shlex.split(given)
        known = {"python": sys.executable, "folder": os.getcwd(), "script": script, "args": args}
    if not _is_sound(known):
        layers = list(place.layers if is_reference else place.layers.values())
        raise UsageError(
            f"{side.source} does not contain the command that made it; it was not made by `reprod run`. Give "
            f"--{which}-run 'SCRIPT ARGS', or record it yourself: watch(…, steps=[{place.step}], "
            f"layers={layers or None})."
        )
    if not shutil.which(known["python"]):
        raise UsageError(f"{known['python']}, which made {side.source}, is missing; give --{which}-run 'SCRIPT ARGS'")
    layers = list(place.layers if is_reference else place.layers.values())
    command = [known["python"], "-m", "reprod_log", "run", "-o", str(target.resolve()), "--step", str(place.step)]
    command += ["--phases", ",".join(place.phases), *(["--float64"] if "float64" in side.runs else [])]
    for layer in layers:
        command += ["--layers", escape(layer)]
    if known.get("framework"):
        command += ["--framework", known["framework"]]
    return [*command, known["script"], *known["args"]], known["folder"]


def _is_sound(known: Any) -> bool:
    return (
        isinstance(known, dict)
        and all(isinstance(known.get(name), str) for name in ("python", "folder", "script"))
        and isinstance(known.get("framework", ""), str)
        and isinstance(known.get("args"), list)
        and all(isinstance(one, str) for one in known["args"])
    )


def _run(command: list[str], folder: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # What the script prints, and what its recording would be good for, is not the answer to this command.
        done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise UsageError(f"cannot run {shlex.join(command)} in {folder}: {error.strerror or error}") from error
    if done.returncode or not target.exists():
        raise RecordingError(
            f"the run ended with {done.returncode}, so there is nothing to compare: {shlex.join(command)}. "
            "Its own message is above."
        )


def _check_repeats(before: Recording, again: Recording, which: str) -> None:
    """Print a note when a run did not repeat itself: then the new recording is of another run."""
    both = [(before[entry.key], entry) for entry in again if entry.key in before]
    moved = [str(entry.key) for known, entry in both if known.hash and entry.hash and known.hash != entry.hash]
    if moved:
        side = message(which)
        tell_note(
            message("zoom.not_repeated", side=side, moved=len(moved), total=len(both), keys=Names(moved)), err=True
        )


def _is_there(old: str, recording: Recording) -> bool:
    return any(str(e.key) == old or e.key.path == old or e.key.path.startswith(f"{old}.") for e in recording)


def _renames(place: Place, recording: Recording) -> dict[str, str]:
    """Names that the first comparison paired, for layers that the new recordings alone may not pair."""
    return {old: new for old, new in place.layers.items() if old != new and _is_there(old, recording)}
