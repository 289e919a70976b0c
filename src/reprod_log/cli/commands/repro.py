"""reprod repro: a small script with the divergent layer, its weights and its input, in both frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.alignment import Alignment
from reprod_log.cli.ending import give, tell, tell_next
from reprod_log.cli.options import AsJson, Language
from reprod_log.diagnose.repro import write_repro
from reprod_log.errors import UsageError
from reprod_log.messages import Name, message
from reprod_log.recording.stores import load

NAME = "repro"


def run(
    alignment: Annotated[Path, typer.Argument(metavar="ALIGNMENT", help="A saved alignment (JSON).")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the script and its data.")],
    layer: Annotated[
        str, typer.Option("--layer", metavar="LAYER", help="By default the layer that diverges first.")
    ] = "",
    reference: Annotated[
        Path | None, typer.Option("--reference", metavar="REC", help="The reference's recording, if it has moved.")
    ] = None,
    candidate: Annotated[
        Path | None, typer.Option("--candidate", metavar="REC", help="The candidate's recording, if it has moved.")
    ] = None,
    language: Language = "en",
    json: AsJson = None,
) -> int:
    """Write a script that runs the divergent layer alone in both frameworks."""
    found = Alignment.load(alignment)
    recordings = []
    for side, source, moved in (
        ("reference", found.reference.source, reference),
        ("candidate", found.candidate.source, candidate),
    ):
        if moved is None and not source:
            raise UsageError(
                f"the {side} was not saved, so its weights and inputs are lost; save the recordings "
                f"(watch(model, save=…)) and compare them, or give --{side}"
            )
        recordings.append(load(moved or Path(source)))
    script = write_repro(recordings[0], recordings[1], layer=layer or _divergent(found), folder=output)
    tell(message("repro.written", path=Name(script)))
    give(lambda: {"written": [str(script)]})
    tell_next("python", script)
    return 0


def _divergent(alignment: Alignment) -> str:
    first = alignment.first_divergence
    if first is None:
        raise UsageError("nothing diverges in this alignment; name a layer with --layer")
    key = first.key
    if key.phase not in ("forward", "backward"):
        raise UsageError(f"the first divergence, {str(key)!r}, is not the output of a layer; name one with --layer")
    return key.path
