"""reprod ranks: the processes of one parallel run against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.alignment import AlignOptions
from reprod_log.alignment.ranks import compare_ranks_with
from reprod_log.cli.answer import Output, answer, byte_progress
from reprod_log.cli.options import (
    Accept,
    AllowIncomplete,
    AllowUnmatched,
    AllRows,
    Dims,
    EqualNan,
    Full,
    Language,
    Limits,
    MeshSizes,
    ModuleTree,
    Reports,
    Threads,
    Trust,
)
from reprod_log.ranks import load_ranks
from reprod_log.ranks.opening import read_dims, read_mesh

NAME = "ranks"


def run(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that watch(save=…) wrote to.")],
    dims: Dims = [],  # noqa: B006  # typer's way of saying 'none given'
    mesh: MeshSizes = None,
    limit: Limits = [],  # noqa: B006
    allow_unmatched: AllowUnmatched = [],  # noqa: B006
    accept: Accept = [],  # noqa: B006
    allow_incomplete: AllowIncomplete = False,
    equal_nan: EqualNan = False,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Save the alignment as JSON.")] = None,
    report: Reports = [],  # noqa: B006
    full: Full = False,
    language: Language = "en",
    tree: ModuleTree = False,
    all_rows: AllRows = False,
    trust: Trust = False,
    threads: Threads = None,
) -> int:
    """Compare the ranks of a parallel run with each other: replicas must be equal, reduced gradients the mean."""
    output = Output(json, report, full, language, tree, all_rows)
    ranks = load_ranks(folder, mesh=read_mesh(mesh), trust=trust)
    with byte_progress("comparing") as progress:
        options = AlignOptions.of(
            dims=read_dims(dims),
            limits=limit,
            accept=accept,
            allow_incomplete=allow_incomplete,
            allow_unmatched=allow_unmatched,
            equal_nan=equal_nan,
            progress=progress,
            threads=threads,
        )
        alignment = compare_ranks_with(ranks, options)
    return answer(alignment, output)
