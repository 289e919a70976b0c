"""reprod compare: two recordings, one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from reprod_log.alignment import align_with
from reprod_log.cli.answer import answered
from reprod_log.cli.groups import Judging, Output
from reprod_log.cli.options import (
    Candidate,
    Counts,
    Dims,
    MeshSizes,
    Reference,
    Renames,
    Threads,
    Trust,
    cluster_executor,
    rename_map,
)
from reprod_log.errors import UsageError
from reprod_log.ranks.opening import read_dims, read_mesh
from reprod_log.recording import Array

NAME = "compare"


def run(
    reference: Reference,
    candidate: Candidate,
    *,
    rename: Renames = [],  # noqa: B006  # typer's way of saying 'none given'
    judging: Judging,
    counts: Counts = None,
    dims: Dims = [],  # noqa: B006
    mesh: MeshSizes = None,
    output: Output,
    trust: Trust = False,
    threads: Threads = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Measure on the Dask cluster with this scheduler."),
    ] = None,
) -> int:
    """Compare two recordings: files (.npy, .npz, .safetensors), folders, or URLs of them (s3://, http:// …).

    The parts of several ranks in one folder are joined first: as data-parallel, or as --dims declares.
    """
    with cluster_executor(dask) as executor:
        options = judging.options(
            rename=rename_map(rename),
            counts=None if counts is None else _mask(counts),
            dims=read_dims(dims),
            mesh=read_mesh(mesh),
            trust=trust,
            threads=threads,
            executor=executor,
            # Nobody will ask for the pictures of an alignment that is not kept.
            elements=bool(output.json or output.report),
        )
        return answered(lambda: align_with(reference, candidate, options), output)


def _mask(path: Path) -> Array:
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a mask: {error}. Save one with numpy.save") from error
    if not isinstance(found, np.ndarray):
        raise UsageError(f"{path} holds several arrays; a mask is one, saved with numpy.save")
    return found
