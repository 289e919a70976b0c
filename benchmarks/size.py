"""Size: the memory that `align_models` takes for each parameter, for growing models and numbers of steps.

    python benchmarks/size.py [--widths 256 512 1024] [--steps 1 2 4] [--folder FOLDER] [--stages]
    python benchmarks/size.py --published resnet50 bert-base

A transformer of torch against the same of paddle, two AdamW steps and more, each case in a process of its own. Private
memory is what the process alone holds (RssAnon) above what it held before the call, sampled every 5 ms: pages of the
spool's files, which the system may take back at any time, are no part of it. `--stages` prints the peak of every stage.
The second form runs models of published sizes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from results import versions, write_section
from timing import machine, table

BEFORE = {1: 368, 2: 554, 4: 975}
"""Bytes per parameter before there was a spool, 3.4 million parameters; 4 steps between measured 553 (2) and 1,185 (5)."""


@dataclass
class Measured:
    """One call of align_models."""

    parameters: int
    private: int
    """Bytes above the start, at the peak."""
    spooled: int
    seconds: float
    verdict: str
    entries: int


class Sampler(threading.Thread):
    """Keeps the largest private memory of this process, by stage."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.start_bytes, self.peaks, self.stage = private_bytes(), {"": 0}, ""
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.005):
            now = private_bytes() - self.start_bytes
            self.peaks[self.stage] = max(self.peaks.get(self.stage, 0), now)


def private_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise SystemExit("this benchmark reads /proc/self/status, which this system does not have")


def transformers(width: int) -> tuple[Any, Any, Any]:
    """The same encoder in torch and paddle, and a batch of 4 x 16 words."""
    import numpy as np
    import paddle
    import paddle.nn as pn
    from capture_models import Transformer

    class Port(pn.Layer):
        def __init__(self, depth: int = 4, words: int = 2000) -> None:
            super().__init__()
            self.embedding = pn.Embedding(words, width)
            layer = pn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0)
            self.encoder = pn.TransformerEncoder(layer, depth)
            self.head = pn.Linear(width, words)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.encoder(self.embedding(tokens)).mean(1))

    paddle.seed(0)
    return Transformer(width), Port(), np.random.default_rng(0).integers(0, 2000, (4, 16))


def measured(width: int, steps: int, folder: str | None, stages: bool) -> Measured:
    """One case in this process."""
    import numpy as np
    import paddle
    import torch

    from reprod_log import align_models
    from reprod_log.recording import spool as spools

    torch.set_num_threads(1)
    ours, theirs, tokens = transformers(width)
    targets = np.random.default_rng(1).integers(0, 2000, 4)
    written: list[Any] = []
    begin = spools.Spool.__init__

    def begun(self: Any, *args: Any) -> None:
        begin(self, *args)
        written.append(self)

    spools.Spool.__init__ = begun  # type: ignore[method-assign]
    sampler = Sampler()
    sampler.start()
    started = time.process_time()

    def progress(what: str, done: int, total: int) -> None:
        sampler.stage = f"{done} {what}"

    alignment = align_models(
        ours,
        theirs,
        (tokens,),
        targets=targets,
        loss=(torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy),
        optimizer=(
            lambda model: torch.optim.AdamW(model.parameters(), 1e-3),
            lambda model: paddle.optimizer.AdamW(1e-3, parameters=model.parameters()),
        ),
        steps=steps,
        spool=folder,
        progress=progress,
        threads=1,
    )
    seconds = time.process_time() - started
    sampler.over.set()
    sampler.join()
    parameters = sum(one.numel() for one in ours.parameters())
    if stages:
        for stage, peak in sampler.peaks.items():
            print(f"{peak / parameters:8.1f}  {stage}", file=sys.stderr)
    return Measured(
        parameters,
        max(sampler.peaks.values()),
        sum(one.written for one in written),
        seconds,
        alignment.verdict.status.name,
        len(alignment.verdict.judgements),
    )


def in_process(width: int, steps: int, folder: str | None, stages: bool) -> Measured:
    """One case in a process of its own."""
    command = [sys.executable, __file__, "--case", str(width), str(steps)]
    command += (["--folder", folder] if folder else []) + (["--stages"] if stages else [])
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(**json.loads(answer.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--folder")
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--case", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(asdict(measured(*given.case, given.folder, given.stages))))
        return
    rows = []
    for width in given.widths:
        for steps in given.steps:
            one = in_process(width, steps, given.folder, given.stages)
            row = [
                f"{one.parameters / 1e6:.1f} M",
                str(steps),
                str(BEFORE.get(steps, "")),
                f"{one.private / one.parameters:.0f}",
                f"{one.spooled / one.parameters:.0f}",
                f"{one.seconds:.0f}",
                one.verdict,
            ]
            print(*row, sep="  ", flush=True)
            rows.append(row)
    heads = ["parameters", "steps", "before", "private", "in files", "CPU s", "verdict"]
    text = f"{versions('torch', 'paddlepaddle', 'numpy', 'reprod_log')}; {machine()}.\n\nBytes per parameter.\n\n"
    write_section("Size", text + table(heads, rows))


if __name__ == "__main__":
    main()
