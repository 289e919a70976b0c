"""reprod compare: two recordings, one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.alignment import AlignOptions, align_with
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
    Renames,
    Reports,
    Threads,
    Trust,
    cluster_executor,
    rename_map,
)
from reprod_log.ranks.opening import read_dims, read_mesh

NAME = "compare"


def run(
    reference: Annotated[Path, typer.Argument(metavar="REF", help="The reference recording.")],
    candidate: Annotated[Path, typer.Argument(metavar="CAND", help="The candidate recording.")],
    limit: Limits = [],  # noqa: B006  # typer's way of saying 'none given'
    rename: Renames = [],  # noqa: B006
    allow_unmatched: AllowUnmatched = [],  # noqa: B006
    accept: Accept = [],  # noqa: B006
    allow_incomplete: AllowIncomplete = False,
    equal_nan: EqualNan = False,
    dims: Dims = [],  # noqa: B006
    mesh: MeshSizes = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Save the alignment as JSON.")] = None,
    report: Reports = [],  # noqa: B006
    full: Full = False,
    language: Language = "en",
    tree: ModuleTree = False,
    all_rows: AllRows = False,
    trust: Trust = False,
    threads: Threads = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Measure on the Dask cluster whose scheduler is there."),
    ] = None,
) -> int:
    """Compare two recordings: files (.npy, .npz, .safetensors), folders, or URLs of them (s3://, http:// …).

    The parts of several ranks in one folder are joined first: as data-parallel, or as --dims declares.
    """
    output = Output(json, report, full, language, tree, all_rows)
    with cluster_executor(dask) as executor, byte_progress("comparing") as progress:
        options = AlignOptions.of(
            limits=limit,
            rename=rename_map(rename),
            allow_unmatched=allow_unmatched,
            accept=accept,
            allow_incomplete=allow_incomplete,
            equal_nan=equal_nan,
            dims=read_dims(dims),
            mesh=read_mesh(mesh),
            trust=trust,
            progress=progress,
            threads=threads,
            executor=executor,
            # Nobody will ask for the pictures of an alignment that is not kept.
            elements=bool(json or report),
        )
        alignment = align_with(reference, candidate, options)
    return answer(alignment, output)
