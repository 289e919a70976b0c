"""reprod mcp: the commands as tools of the Model Context Protocol, for programs that port models."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from reprod_log.errors import MissingPackage
from reprod_log.version import __version__

NAME = "mcp"
_LOOP = (
    "Proves that a ported neural network computes the same thing, or finds where it first differs and why. "
    "Record both scripts (run), compare the recordings, read `causes` (cause, code, made_at), change the candidate at "
    "that line, record and compare again until `passed`. The first argument is always the side that is right."
)


def run() -> int:
    """Serve run, compare, zoom, repro, map, plan and report as tools, over standard input and output."""
    tools_server().run("stdio")
    return 0


def tools_server() -> Any:
    """The server with all tools; each gives the document that its command prints with --json -."""
    try:
        # An extra: no other command needs it.
        from mcp.server import MCPServer
    except ImportError as error:
        raise MissingPackage("reprod mcp requires the package mcp: pip install 'reprod_log[mcp]'") from error
    server = MCPServer("reprod_log", instructions=_LOOP, version=__version__)
    for tool in (run_script, compare, zoom, repro, map_weights, plan, report):
        server.add_tool(tool, structured_output=False)
    return server


def run_script(script: str, output: str, arguments: list[str] | None = None, folder: str = ".") -> str:
    """Record what a script's models do, twice: as it is and in float64. `output` is the folder of the recording."""
    return _answer(folder, "run", "--float64", "-o", output, script, *(arguments or []))


def compare(
    reference: str,
    candidate: str,
    limits: list[str] | None = None,
    rename: list[str] | None = None,
    report: str = "",
    folder: str = ".",
) -> str:
    """Compare two recordings: verdict, first divergence, causes with source lines, code to write and what to do."""
    options = [part for one in limits or [] for part in ("--limit", one)]
    options += [part for one in rename or [] for part in ("--rename", one)]
    return _answer(folder, "compare", reference, candidate, *options, *(["--report", report] if report else []))


def zoom(reference: str, candidate: str, output: str, folder: str = ".") -> str:
    """Run both recorded scripts again, recording the first diverging place in full, and compare it."""
    return _answer(folder, "zoom", reference, candidate, "-o", output, "--yes")


def repro(saved: str, output: str, layer: str = "", folder: str = ".") -> str:
    """Write a script that runs the divergent layer of a saved alignment alone in both frameworks."""
    return _answer(folder, "repro", saved, "-o", output, *(["--layer", layer] if layer else []))


def map_weights(reference: str, candidate: str, inputs: str, output: str = "", folder: str = ".") -> str:
    """Find from which weights each of the candidate's comes. Models are FILE.py:FUNCTION; `output` a converter."""
    return _answer(folder, "map", reference, candidate, "--inputs", inputs, *(["-o", output] if output else []))


def plan(file: str, output: str = "reprod_output", folder: str = ".") -> str:
    """Run all steps of a reproduction and compare them."""
    return _answer(folder, "plan", file, "--output", output)


def report(saved: str, outputs: list[str], folder: str = ".") -> str:
    """Write a saved alignment as .html, .md, .xml or .txt."""
    return _answer(folder, "report", saved, *outputs)


def _answer(folder: str, command: str, *arguments: str) -> str:
    """What the command prints. In a process of its own: the protocol owns this one's standard output."""
    # Before the arguments: those of `run` end with the script's own.
    line = [sys.executable, "-m", "reprod_log", command, "--json", "-", *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.stdout.strip() or json.dumps({"exit_code": done.returncode, "error": done.stderr.strip()[-2000:]})
