"""The end of every command that has a verdict: it is shown, saved, reported, and becomes the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from reprod_log.alignment import Alignment
from reprod_log.cli import ALIGNED, INTERRUPTED, NOT_ALIGNED, NOT_PROVEN, NOTHING_COMPARED
from reprod_log.cli.ending import STDOUT, give, tell_next, tell_written, typed_again
from reprod_log.cli.groups import Output
from reprod_log.errors import ReprodLogError, result_of
from reprod_log.messages import words
from reprod_log.progress import shown
from reprod_log.report import write_report
from reprod_log.report.answer import answer_of
from reprod_log.report.github import announce
from reprod_log.report.since import since
from reprod_log.report.terminal import print_alignment, print_indented, terminal
from reprod_log.report.writing import plain
from reprod_log.verdict import Status


def answered(make: Callable[[], Alignment], output: Output) -> int:
    """Make the alignment and show it; after Ctrl-C, what there is of it. The exit code."""
    with shown(language=output.language):
        try:
            alignment = make()
        except KeyboardInterrupt as stop:
            partial = result_of(stop, Alignment)
            if partial is None:
                raise
            answer(partial, output)
            return INTERRUPTED
    return answer(alignment, output)


def answer(alignment: Alignment, output: Output) -> int:
    """Show an alignment, write the reports asked for, annotate the run on GitHub; the exit code."""
    show(alignment, output)
    alignment = _tell_since(alignment, output)
    saved = None if output.json in (None, STDOUT) else output.json
    if saved is not None:
        tell_written(alignment.save(saved))
    write_reports(alignment, output)
    give(lambda: answer_of(alignment))
    tell_next(*after_alignment(alignment, saved, reported=bool(output.report)))
    announce(alignment, sys.stdout)
    return exit_code(alignment)


def _tell_since(alignment: Alignment, output: Output) -> Alignment:
    """Tell what changed since the alignment that was asked for or is about to be replaced; with that in its history."""
    if output.since is not None:
        before, path = Alignment.load(output.since), output.since
    elif output.json not in (None, STDOUT) and output.json.is_file():
        try:
            before, path = Alignment.load(output.json), output.json
        except ReprodLogError:
            return alignment  # another file, which is replaced as always
        same = all(
            one.source == other.source
            for one, other in ((before.reference, alignment.reference), (before.candidate, alignment.candidate))
        )
        if not same:
            return alignment
    else:
        return alignment
    found = since(before, alignment, str(path))
    give(lambda: {"since": found.to_dict()})
    for place, line in enumerate(found.messages):
        print_indented(plain(words(output.language)(line)), 2 if place else 0, terminal(), "" if place else "bold")
    return alignment.after(before, found.messages)


def write_reports(alignment: Alignment, output: Output) -> None:
    """Write the reports and name each."""
    for path in output.report:
        tell_written(write_report(alignment, path, full=output.all_rows, language=output.language))


def after_alignment(alignment: Alignment, saved: Path | None, *, reported: bool, saving: bool = True) -> list[str]:
    """The command that takes an answer further: to what was not recorded, to its cause, to a report, or to the fix.

    `saved` is where the alignment is, `reported` whether a report of it was written just now, and `saving` whether the
    command that was typed can save one.
    """
    sides = [one.source for one in (alignment.reference, alignment.candidate)]
    recorded = all(source and not source.endswith(".py") for source in sides)
    first = alignment.first_divergence
    if alignment.status is Status.NOTHING and recorded:
        return ["reprod", "show", sides[1]]
    if recorded and first is not None and first.evidence.is_estimate:
        return ["reprod", "zoom", *sides, "-o", "zoom"]
    if first is not None and saved is None and saving:
        return typed_again("--json", "last.json", *([] if reported else ["--report", "report.html"]))
    if recorded and first is not None and saved is not None and first.key.phase in ("forward", "backward"):
        return ["reprod", "repro", str(saved), "-o", "repro"]
    if not reported:
        return (
            typed_again("--report", "report.html") if saved is None else ["reprod", "report", str(saved), "report.html"]
        )
    script = _script_of(alignment)
    if script and sides[0]:
        # Of a port that is not aligned, every change from now on; of one that is, what it computes, to keep it so.
        return ["reprod", *(("watch", sides[0]) if first is not None else ("baseline", "record", "baseline")), *script]
    return ["reprod", "serve", str(saved.parent)] if saved is not None else typed_again("--json", "last.json")


def _script_of(alignment: Alignment) -> list[str]:
    """The script that `reprod run` recorded as the candidate, with its arguments; [] if it is not known or gone."""
    known = alignment.candidate.provenance.extra.get("run")
    if not isinstance(known, dict) or not {"folder", "script", "args"} <= known.keys():
        return []
    path = Path(str(known["folder"]), str(known["script"]))
    if not path.is_file() or not isinstance(known["args"], list):
        return []
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return [str(here), *map(str, known["args"])]


def show(alignment: Alignment, output: Output) -> None:
    """Print the alignment, with its modules as a tree instead of the table if asked to."""
    print_alignment(alignment, terminal(), all_rows=output.all_rows, tree=output.tree, language=output.language)


def exit_code(alignment: Alignment) -> int:
    """0 aligned, 1 not aligned, 4 not proven, 5 nothing compared."""
    if alignment.status is Status.UNPROVEN:
        return NOT_PROVEN
    if alignment.status is Status.NOTHING:
        return NOTHING_COMPARED
    return ALIGNED if alignment.passed else NOT_ALIGNED
