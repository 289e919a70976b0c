"""reprod serve: a local page over a folder of alignments and recordings, live while they grow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reprod_log.cli.ending import tell, tell_next
from reprod_log.cli.options import Language
from reprod_log.messages import Code, Name, message
from reprod_log.report.serve import serving
from reprod_log.report.serve.server import new_token

NAME = "serve"


def run(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with saved alignments and recordings.")],
    host: Annotated[
        str,
        typer.Option("--host", metavar="HOST", help="Address to listen on; other machines need the printed token."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="PORT", help="Port to listen on; 0 picks a free one.")
    ] = 8642,
    token: Annotated[str, typer.Option("--token", metavar="TOKEN", help="Access token; a new one by default.")] = "",
    language: Language = "en",
) -> int:
    """Serve a page that lists what is in DIR, opens reports, and follows recordings while a program trains."""
    with serving(folder, host=host, port=port, token=token or new_token()) as server:
        tell(message("serve.address", folder=Name(folder), address=Code(server.address)))
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            tell(message("serve.stopped"))
            tell_next("reprod", "site", folder)
    return 0
