"""reprod convert: a recording in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.cli.ending import give, tell, tell_next
from reprod_log.cli.options import AsJson, Language, Trust, recorded
from reprod_log.errors import UsageError
from reprod_log.messages import Name, message
from reprod_log.recording.stores import load, save

NAME = "convert"


def run(
    source: Annotated[Path, typer.Argument(metavar="SRC", callback=recorded, help="A recording: file or folder.")],
    target: Annotated[
        Path,
        typer.Argument(metavar="DST", help="Where to write it; .npy, .npz, .safetensors, or no suffix for a folder."),
    ],
    trust: Trust = False,
    language: Language = "en",
    json: AsJson = None,
) -> int:
    """Convert a recording to the format that DST's suffix sets."""
    if source.resolve() == target.resolve():
        raise UsageError(f"{source} and {target} are the same; give another name to write to")
    recording = load(source, trust=trust)
    written = save(recording, target)
    facts = message("entries.count", count=len(recording))
    tell(message("recording.title", path=Name(written), facts=facts))
    give(lambda: {"written": [str(written)], "entries": len(recording)})
    tell_next("reprod", "show", written)
    return 0
