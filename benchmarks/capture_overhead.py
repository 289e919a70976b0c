"""How much longer a training step takes while it is recorded, by reprod_log and by its peers, in the same run.

    python benchmarks/capture_overhead.py [--rounds 5] [--steps 4]

Each tool has a process of its own; all wait while one works. A round runs every mode of every tool once, in turn, and
the fastest step of a mode is held against the fastest plain step of the same process in the same round, some seconds
apart; the median over the rounds counts. So neither a short nor a long disturbance of the machine is taken for a cost.
CPU time is what the process itself used (all of its threads; torch has one); wall time includes
waiting for the disk and for other processes. Writes the section "Recording" of RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from capture_models import MODELS
from capture_peers import PACKAGES, installed, peers_python
from capture_tools import TOOLS
from results import versions, write_section

HERE = Path(__file__).parent
GOALS = {"summary, hooked": 1.10, "sketch, hooked": 1.10, "full, hooked": 1.30}
Times = dict[str, float]
Rounds = list[Times]


class Worker:
    """A process that times one tool."""

    def __init__(self, tool: str, python: str) -> None:
        self.tool = tool
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
        self._process = subprocess.Popen(
            [python, str(HERE / "capture_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._answer()

    def measure(self, model: str, mode: str, steps: int) -> Times:
        assert self._process.stdin is not None
        question = {"tool": self.tool, "model": model, "mode": mode, "steps": steps}
        print(json.dumps(question), file=self._process.stdin, flush=True)
        times: Times = json.loads(self._answer())
        return times

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker of {self.tool} has ended with {self._process.wait()}")
        return line

    def end(self) -> None:
        self._process.communicate()


def ratio(times: Rounds, base: Rounds, name: str) -> float:
    """How many times as long as the base, by the median of the rounds."""
    return median(one[name] / other[name] for one, other in zip(times, base, strict=True))


def measured(tools: Mapping[str, str], *, rounds: int, steps: int) -> dict[tuple[str, str, str], Rounds]:
    """The times of every round by tool, model and mode; `tools` names the interpreter of each."""
    found: dict[tuple[str, str, str], Rounds] = {}
    for model in MODELS:
        # New processes for each model: some peers keep what they saw first.
        workers = [Worker(tool, python) for tool, python in tools.items()]
        for number in range(rounds):
            for worker in workers:
                for mode in TOOLS[worker.tool]:
                    times = worker.measure(model, mode, steps)
                    found.setdefault((worker.tool, model, mode), []).append(times)
            print(f"{model}: round {number + 1} of {rounds}", file=sys.stderr)
        for worker in workers:
            worker.end()
    return found


def rows(found: Mapping[tuple[str, str, str], Rounds]) -> list[list[str]]:
    """A row for each mode of each tool: ratios to that tool's own plain step, and bytes on disk."""
    table = []
    for tool in dict.fromkeys(tool for tool, _, _ in found):
        first, *modes = TOOLS[tool]
        for mode in modes:
            cells = [f"{mode} (to the forward pass)" if first == "forward" else mode]
            for model in MODELS:
                base, times = found[tool, model, first], found[tool, model, mode]
                size = f"{_bytes(times) / 1e6:.2f}" if _bytes(times) else "–"
                cells += [f"{ratio(times, base, 'cpu'):.2f}", f"{ratio(times, base, 'wall'):.2f}", size]
            cells.append(f"≤ {GOALS[mode]:.2f}" if mode in GOALS else "")
            table.append(cells)
    return table


def report(found: Mapping[tuple[str, str, str], Rounds], peers: Mapping[str, str], options: Any) -> str:
    """The section for RESULTS.md."""
    head = ["", *(f"{model}: {what}" for model in MODELS for what in ("CPU", "wall", "MB a step")), "goal"]
    lines = [head, ["---"] * len(head), *rows(found)]
    fastest = {model: min(one["cpu"] for one in found["reprod_log", model, "plain"]) for model in MODELS}
    plain = ", ".join(f"{model} {seconds * 1000:.0f} ms" for model, seconds in fastest.items())
    disk = ", ".join(
        f"{model} {_disk(found, model, 'hooked'):.2%} (hooked), {_disk(found, model, 'everything'):.2%} (everything)"
        for model in MODELS
    )
    names = ", ".join(f"{PACKAGES[name]} {version or 'not installed'}" for name, version in peers.items())
    return f"""
A recorded training step as a ratio to the plain one. "hooked": data, outputs of all modules, loss, gradients of outputs
and parameters, as tools that hook modules record them; "everything": also parameters, updates, buffers and
optimizer state. msprobe hooks at module level (L0) and records inputs as well; TorchLens follows the forward pass only,
in memory.

{versions("torch", "numpy", "reprod_log")}, {names}. One thread, load {os.getloadavg()[0]:.1f} at the end,
median of {options.rounds} rounds of {options.steps} steps. Plain step (CPU): {plain}.

{chr(10).join(f"| {' | '.join(line)} |" for line in lines)}

On disk a sketch takes of the full recording: {disk}; the goal is 1 %.
"""


def _disk(found: Mapping[tuple[str, str, str], Rounds], model: str, what: str) -> float:
    sketch, full = (_bytes(found["reprod_log", model, f"{detail}, {what}"]) for detail in ("sketch", "full"))
    return sketch / full


def _bytes(times: Rounds) -> float:
    """Those of the first round, where every tool began with an empty folder."""
    return times[0]["bytes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--no-peers", action="store_true", help="only reprod_log and np.save; writes no section")
    options = parser.parse_args()
    tools = dict.fromkeys(("reprod_log", "np.save"), sys.executable)
    peers: dict[str, str] = {}
    if not options.no_peers:
        python = peers_python()
        peers = {name: installed(name, python) for name in PACKAGES}
        tools |= {tool: python for tool in TOOLS if peers.get(tool.partition(" ")[0])}
    text = report(measured(tools, rounds=options.rounds, steps=options.steps), peers, options)
    print(text)
    if not options.no_peers:
        write_section("Recording", text)


if __name__ == "__main__":
    main()
