"""reprod bisect: which commit, or which release of a package, first changed what a program computes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.alignment import Alignment, AlignOptions, align_with
from reprod_log.cli import ALIGNED, NOT_ALIGNED
from reprod_log.cli.ending import give, tell, tell_next, tell_note, tell_written
from reprod_log.cli.groups import Judging
from reprod_log.cli.options import AsJson, Language
from reprod_log.cli.scripts import BothPasses, Script, ScriptCommand, ScriptFile
from reprod_log.cli.versions import Commits, Releases, first_change
from reprod_log.errors import ReprodLogError, UsageError
from reprod_log.messages import Foreign, Message, Name, Names, message
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.view import entry_in_words, first_in_words
from reprod_log.verdict import Status

NAME = "bisect"
Command = ScriptCommand


def run(
    context: typer.Context,
    good: Annotated[str, typer.Argument(metavar="GOOD", help="The commit or release that is right.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="A later one that differs.")],
    script: ScriptFile,
    *,
    package: Annotated[
        str | None, typer.Option("--package", metavar="NAME", help="Search releases of this package, not commits.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the recordings and the answer go.")
    ] = Path("reprod_bisect"),
    float64: BothPasses = True,
    judging: Judging,
    language: Language = "en",
    json: AsJson = None,
) -> int:
    """Find the commit, or the release of a package, that first changed what SCRIPT computes, and where.

    Put options before SCRIPT. Each commit is checked out into a separate folder, so files that the script reads must be
    in the repository or be given by an absolute path.
    """
    program = Script(script, tuple(context.args), float64, language=language)
    versions = Commits.between(good, bad, script) if package is None else Releases.between(package, good, bad)
    folder.mkdir(parents=True, exist_ok=True)
    search = _Search(program, versions, folder, judging.options())
    if search.same_at_the_end():
        tell(message("bisect.none"))
        give(lambda: {"first_change": None})
        tell_next("reprod", "baseline", "record", "baseline", script, *context.args)
        return ALIGNED
    before, after = first_change(len(versions.names), search.same)
    saved = search.found[after].save(folder / "first_change.json")
    titles = [versions.title(name) for name in versions.names[: after + 1]]
    tell(message("bisect.found", version=Name(titles[after]), first=search.first(after) or ""))
    for one in search.found[after].findings:
        if one.kind == "cause":
            tell(message("bisect.cause", cause=one.cause))
    if after - before > 1:
        tell(message("bisect.between", versions=Names(titles[before + 1 : after])))
    give(lambda: {"last_same": versions.names[before], "first_change": versions.names[after], "alignment": str(saved)})
    tell_written(saved)
    tell_next("reprod", "report", saved, "report.html")
    return NOT_ALIGNED


class _Search:
    """Records versions as they are asked for, and holds each against the first."""

    def __init__(self, script: Script, versions: Commits | Releases, folder: Path, options: AlignOptions) -> None:
        self._script, self._versions, self._folder, self._options = script, versions, folder, options
        self.found: dict[int, Alignment] = {}
        self._reference = self._recorded(0)
        tell(message("bisect.begin", versions=len(versions.names), good=self._title(0)))

    def same_at_the_end(self) -> bool:
        """Whether the last version computes the same as the first."""
        last = len(self._versions.names) - 1
        found = self.same(last)
        if found is None:
            raise self._unusable(last)
        return found

    def same(self, place: int) -> bool | None:
        """Whether this version computes the same as the first; None if that cannot be known."""
        try:
            alignment = align_with(self._reference, self._recorded(place), self._options)
        except ReprodLogError as error:
            tell(message("bisect.unusable", why=Foreign(error)))
            return None
        self.found[place] = alignment
        if alignment.passed:
            tell(message("bisect.same", version=self._title(place)))
            return True
        first = self.first(place)
        if first is not None and alignment.status is not Status.NOTHING:
            tell(message("bisect.differs", version=self._title(place), first=first))
            return False
        screen = FirstScreen(alignment)
        tell(message("bisect.undecided", version=self._title(place), headline=screen.headline))
        for doubt in screen.doubts:
            tell_note(doubt.cause)
        return None

    def first(self, place: int) -> Message | None:
        """Where a version first differs; if it only has other layers, the first entry without a partner."""
        found = self.found[place]
        alone = next((one.key for one in found.verdict.judgements if not one.status.passed), None)
        return first_in_words(found) or (None if alone is None else entry_in_words(alone))

    def _title(self, place: int) -> Name:
        return Name(self._versions.title(self._versions.names[place]))

    def _recorded(self, place: int) -> Path:
        name = self._versions.names[place]
        # A dot would begin a suffix, which names a format.
        output = self._folder / f"{place:03d}-{name[:12].replace('.', '_')}"
        if self._versions.record(name, self._script, output) != ALIGNED:
            raise self._unusable(place)
        return output

    def _unusable(self, place: int) -> UsageError:
        return UsageError(
            f"{self._script.path} could not be recorded or judged with {self._title(place)}; the reason is above"
        )
