"""reprod record: run a model that is a file on inputs from a file, and record every value of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from reprod_log.capture.eager import runner_of
from reprod_log.cli.ending import give, tell, tell_compare
from reprod_log.cli.options import AsJson, Language
from reprod_log.errors import UsageError
from reprod_log.frameworks.side import Scope, Side
from reprod_log.messages import Name, message
from reprod_log.recording import Array
from reprod_log.recording.stores import save

NAME = "record"


def run(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model file, a graph.")],
    *,
    inputs: Annotated[Path, typer.Option(metavar="FILE", help="The batch: .npz with arrays by input name, or .npy.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="REC", help="The recording: a folder or file.")],
    float64: Annotated[bool, typer.Option("--float64", help="Record a float64 pass as well.")] = False,
    language: Language = "en",
    json: AsJson = None,
) -> int:
    """Record every value that a model file computes."""
    side, batches = Side(str(model)), [(_batch(inputs), None)]
    runner = runner_of(side.framework)
    recording = runner.run(side, batches, Scope())
    if float64:
        wide = runner.run(side, batches, Scope(run="float64", dtype="float64"))
        recording = replace(recording, entries=(*recording.entries, *wide.entries))
    save(recording, output)
    facts = message("entries.count", count=len(recording))
    tell(message("recording.title", path=Name(output), facts=facts))
    give(lambda: {"recording": str(output), "entries": len(recording), "complete": recording.complete})
    tell_compare(output)
    return 0


def _batch(path: Path) -> dict[str, Array] | tuple[Array, ...]:
    if path.suffix not in (".npz", ".npy"):
        raise UsageError(
            f"{path} is neither .npz nor .npy: save the inputs with numpy.savez({str(path)!r}, name=array)"
        )
    try:
        found = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return (found,) if isinstance(found, np.ndarray) else dict(found)
