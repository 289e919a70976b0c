"""reprod ranks: the processes of one parallel run against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.alignment.ranks import compare_ranks_with
from reprod_log.cli.answer import answered
from reprod_log.cli.groups import Judging, Output
from reprod_log.cli.options import Dims, MeshSizes, Threads, Trust
from reprod_log.ranks import load_ranks
from reprod_log.ranks.opening import read_dims, read_mesh

NAME = "ranks"


def run(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that watch(save=…) wrote to.")],
    *,
    dims: Dims = [],  # noqa: B006  # typer's way of saying 'none given'
    mesh: MeshSizes = None,
    judging: Judging,
    output: Output,
    trust: Trust = False,
    threads: Threads = None,
) -> int:
    """Compare the ranks of a parallel run with each other: replicas must be equal, reduced gradients their mean."""
    ranks = load_ranks(folder, mesh=read_mesh(mesh), trust=trust)
    options = judging.options(dims=read_dims(dims), threads=threads)
    return answered(lambda: compare_ranks_with(ranks, options), output)
