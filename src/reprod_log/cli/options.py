"""Options that several commands share, so that they read and behave the same everywhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reprod_log.cli.ending import begin_if_asked, only_stdout, speak
from reprod_log.errors import MissingPackage, UsageError
from reprod_log.messages import known_languages

_SCHEDULER_TIMEOUT = "10s"

Limits = Annotated[
    list[str],
    typer.Option(
        "--limit",
        metavar="[KEYS=]METRIC:VALUE",
        help="Fixed limit, e.g. mean_abs:1e-6 or 'loss_*=max_rel:1e-5'; may be given several times.",
    ),
]
Renames = Annotated[
    list[str],
    typer.Option("--rename", metavar="OLD=NEW", help="OLD in the reference is NEW in the candidate."),
]
AllowUnmatched = Annotated[
    list[str],
    typer.Option("--allow-unmatched", metavar="PATTERN", help="Keys that may be missing on one side."),
]
Accept = Annotated[
    list[str],
    typer.Option(
        "--accept", metavar="PATTERN", help="Keys whose difference is known and accepted, e.g. '*running_var*'."
    ),
]
AllowIncomplete = Annotated[
    bool, typer.Option("--allow-incomplete", help="Let an incomplete recording pass on what it contains.")
]
AllowUnproven = Annotated[
    bool, typer.Option("--allow-unproven", help="Accept a pass that proves nothing; the doubts are still shown.")
]
Dims = Annotated[
    list[str],
    typer.Option(
        "--dims",
        metavar="PATTERN=DIMS",
        help="How ranks split a tensor, e.g. 'fc.weight=o[tp] i': the marked axis is split over them. May be given "
        "several times.",
    ),
]
MeshSizes = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        metavar="AXIS=SIZE,…",
        help="The axes of the mesh of ranks, outermost first, e.g. dp=2,tp=2; for ranks recorded without "
        "watch(mesh=…).",
    ),
]
EqualNan = Annotated[bool, typer.Option("--equal-nan", help="Treat NaN at the same position on both sides as equal.")]
Counts = Annotated[
    Path | None,
    typer.Option(
        "--counts",
        metavar="FILE",
        help="A mask (.npy) over the first axes of tensors, true at the positions that count; padding is not compared.",
    ),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Allow classic files to run the code they contain; only for files you made yourself."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="Measure on N threads; by default one per core.")
]
SaveAs = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        callback=begin_if_asked,
        help="Save the alignment as JSON. With -, print the answer as JSON to standard output, and nothing else there.",
    ),
]
AsJson = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="-",
        callback=only_stdout,
        help="Print the answer as JSON to standard output, and nothing else there.",
    ),
]
SinceFile = Annotated[
    Path | None,
    typer.Option(
        "--since",
        metavar="FILE",
        help="Show what changed since this saved alignment; by default since the one that --json replaces.",
    ),
]
Reports = Annotated[
    list[Path],
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write a report; the suffix sets the format: .html, .md, .json, .xml, .txt, .problems. May be given "
        "several times.",
    ),
]
OverviewReports = Annotated[
    list[Path], typer.Option("--report", metavar="FILE", help="Write a report of all steps: .html or .md.")
]
if TYPE_CHECKING:
    _Languages = str
else:
    _Languages = Literal[known_languages()]
Language = Annotated[
    _Languages, typer.Option("--language", callback=speak, help="Language of the output and of reports.")
]


def recorded(path: Path) -> Path:
    """The callback of arguments that are recordings: a script has to be recorded first."""
    if path.suffix == ".py":
        command = shlex.join(["reprod", "run", "--float64", "-o", path.stem, str(path)])
        raise UsageError(f"{path} is a script, not a recording. Record it first: {command}")
    return path


Reference = Annotated[Path, typer.Argument(metavar="REF", callback=recorded, help="The reference recording.")]
Candidate = Annotated[Path, typer.Argument(metavar="CAND", callback=recorded, help="The candidate recording.")]
ModuleTree = Annotated[
    bool, typer.Option("--tree", help="Show the modules as a tree, with their statuses, instead of the entries.")
]
AllRows = Annotated[
    bool,
    typer.Option("--all", help="Show every entry, on the screen and in reports, not only those that do not pass."),
]


def rename_map(pairs: list[str]) -> dict[str, str]:
    """OLD=NEW texts as a map."""
    found: dict[str, str] = {}
    for text in pairs:
        old, equals, new = text.partition("=")
        if not equals or not old:
            raise UsageError(f"cannot read --rename {text!r}: write OLD=NEW, e.g. --rename fc=linear")
        found[old] = new
    return found


@contextmanager
def cluster_executor(address: str | None) -> Iterator[Executor | None]:
    """An executor whose workers are those of the cluster at `address`; None without an address."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_host_port
    except ImportError as error:
        raise MissingPackage(f"--dask needs Dask ({error}): pip install 'reprod_log[dask]'") from error
    try:
        if "://" not in address:
            # A client of an invalid address is left half made, and prints a warning when it is deleted.
            parse_host_port(address)
        client = Client(address, timeout=_SCHEDULER_TIMEOUT, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}: {error}). Start one with "
            "`dask scheduler` and workers with `dask worker`, and give the address it prints, e.g. tcp://host:8786"
        ) from error
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise UsageError(f"the Dask cluster at {address} has no workers; start some with `dask worker {address}`")
        yield client.get_executor(pure=False)
    finally:
        client.close()
