"""Programs in forks of one process that has loaded torch: its import is paid for once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_PROGRAM = """
import json, os, sys
import torch, torch._dynamo  # the first step of an optimizer loads it, which takes longer than torch
import reprod_log.cli
for module in sys.argv[1:]:
    __import__(module)
for number, (code, arguments, folder, environment) in enumerate(json.load(sys.stdin)):
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(environment)
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f".{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
        sys.argv = ["reprod", *arguments]
        exec(code, {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Command:
    """What is written behind `reprod`, where it runs, and what its environment has besides."""

    arguments: Sequence[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    code: str = "from reprod_log.cli import main; main()"
    """The program itself; `reprod` by default."""


def run_in_forks(*commands: Command, loaded: Sequence[str] = ()) -> list[subprocess.CompletedProcess[str]]:
    """The commands one after the other, as `subprocess.run` gives each back; `loaded` are modules to load besides."""
    given = json.dumps([[one.code, list(one.arguments), str(one.folder), one.environment] for one in commands])
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *loaded],
        input=given,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        # Whoever runs the tests in the background may have Ctrl-C ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        check=True,
    )
    found = []
    for number, (one, code) in enumerate(zip(commands, done.stdout.split(), strict=True)):
        texts = [(one.folder / f".{number}.{name}").read_text() for name in ("out", "err")]
        found.append(subprocess.CompletedProcess(list(one.arguments), int(code), *texts))
    return found


_CLIENT = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)])
    socket.send_fds(server, [request.encode()], [0, 1, 2])
    code = int(server.recv(16) or -9)
sys.exit(code if code >= 0 else 128 - code)
"""
_SERVER = """
import json, os, runpy, signal, socket, sys
import torch, torch._dynamo
import reprod_log.capture.script
address, python = sys.argv[1:]
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(address)
server.listen()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
while True:
    asked = server.accept()[0]
    if os.fork():
        asked.close()
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    server.close()
    request, streams, *_ = socket.recv_fds(asked, 1 << 20, 3)
    program = os.fork()
    if program:
        for stream in streams:
            os.close(stream)
        asked.send(str(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])).encode())
        os._exit(0)
    asked.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    (how, what, *arguments), folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable, sys.argv = python, [what, *arguments]
    sys.path.insert(0, folder)
    assert how == "-m", how
    runpy.run_module(what, run_name="__main__", alter_sys=True)
    sys.exit()
"""


@contextmanager
def python_with_torch(folder: Path) -> Iterator[Path]:
    """An interpreter for `python -m`: a program that runs what it is given in a fork of a process with torch loaded."""
    python, address = folder / "python", folder / "socket"
    python.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
    python.chmod(0o700)
    line = [sys.executable, "-c", _SERVER, str(address), str(python)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            yield python
        finally:
            server.kill()
