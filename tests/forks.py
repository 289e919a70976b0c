"""Several `reprod` commands, each in a fork of one process that has loaded torch: its import is paid for once."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PROGRAM = """
import json, os, sys
import torch, torch._dynamo  # the first step of an optimizer loads it, which takes longer than torch
from reprod_log.cli import main
for number, (arguments, folder, environment) in enumerate(json.load(sys.stdin)):
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(environment)
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f".{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
        sys.argv = ["reprod", *arguments]
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Command:
    """What is written behind `reprod`, where it runs, and what its environment has besides."""

    arguments: Sequence[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)


def run_reprod(*commands: Command) -> list[subprocess.CompletedProcess[str]]:
    """The commands one after the other, as `subprocess.run` gives each back."""
    given = json.dumps([[list(one.arguments), str(one.folder), one.environment] for one in commands])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], input=given, env=environment, capture_output=True, text=True, check=True
    )
    found = []
    for number, (one, code) in enumerate(zip(commands, done.stdout.split(), strict=True)):
        texts = [(one.folder / f".{number}.{name}").read_text() for name in ("out", "err")]
        found.append(subprocess.CompletedProcess(list(one.arguments), int(code), *texts))
    return found
