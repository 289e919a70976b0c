"""Processes: one per side of a plan, asked for recordings and answered in order."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

from reprod_log.steps.plan import Options, SideName

_LAST_LINES = 3
_PATIENCE = 10.0


class SideProcess:
    """A running `side_process`. Requests may be sent ahead; answers come in the same order."""

    def __init__(self, plan: Path, options: Options, log: Path) -> None:
        given = json.dumps(
            {"full": options.full, "as_published": options.as_published, "folder": str(options.folder.resolve())}
        )
        self.log = log
        self._waiting: deque[tuple[str, SideName]] = deque()
        self._answers: dict[tuple[str, SideName], str] = {}
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "reprod_log.steps.side_process", str(plan), given],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="utf-8",
            )

    def ask(self, step: str, side: SideName, path: Path) -> None:
        """Have one side of a step recorded at `path`."""
        assert self._process.stdin is not None
        self._waiting.append((step, side))
        request = json.dumps({"step": step, "side": side, "path": str(path.resolve())})
        # When it has ended, `problem` tells why.
        with suppress(BrokenPipeError):
            print(request, file=self._process.stdin, flush=True)

    def problem(self, step: str, side: SideName) -> str:
        """Wait until that recording lies at its path; what went wrong, or ''."""
        assert self._process.stdout is not None
        while (step, side) not in self._answers:
            line = self._process.stdout.readline()
            if not line:
                return self._end()
            self._answers[self._waiting.popleft()] = str(json.loads(line)["problem"])
        return self._answers[step, side]

    def _end(self) -> str:
        code = self._process.wait()
        said = [line.strip() for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
        last = " | ".join(said[-_LAST_LINES:])
        return f"its process ended with code {code}: {last or 'it said nothing'} (all of it in {self.log})"

    def close(self) -> None:
        """Let it end, or end it."""
        for stream in (self._process.stdin, self._process.stdout):
            # What was still to be sent may have no reader any more.
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        try:
            self._process.wait(timeout=0 if self._waiting else _PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
