"""Size: the memory that `align_models` takes for each parameter, for growing models and numbers of steps.

    python benchmarks/size.py [--widths 256 512 1024] [--steps 1 2 4] [--folder FOLDER] [--stages]
    python benchmarks/size.py --published resnet50 bert-base vit-b gpt2
    python benchmarks/size.py --decoder 2048 18 32000 --folder FOLDER [--wrong 9]

A transformer of torch against the same of paddle, two AdamW steps and more, each case in a process of its own. Private
memory is what the process alone holds (RssAnon) above what it held before the call, sampled every 5 ms: pages of the
spool's files, which the system may take back at any time, are no part of it. `--stages` prints the peak of every stage.
The second form runs models of published sizes. The third runs forward and loss of a decoder (width, depth, words: a
billion parameters here) that is never in memory whole: blocks of bfloat16 checkpoints, which it writes to the folder
and removes. `--wrong` plants another epsilon in a norm of that block of the candidate.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from results import versions, write_section
from timing import machine, table

BEFORE = {1: 368, 2: 554, 4: 975}
"""Bytes per parameter before there was a spool, 3.4 million parameters; 4 steps by interpolation between 2 and 5."""


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


def transformers(width: int, depth: int = 4, words: int = 2000, form: str = "words") -> tuple[Any, Any, Any]:
    """The same transformer in torch and paddle, and a batch of 4 x 16 words or of two images."""
    import numpy as np
    import paddle
    import torch

    torch.manual_seed(0)
    paddle.seed(0)
    ours, theirs = (transformer(library, width, depth, words, form) for library in (torch, paddle))
    rng = np.random.default_rng(0)
    if form == "images":
        return ours, theirs, rng.standard_normal((2, 3, 224, 224)).astype(np.float32)
    return ours, theirs, rng.integers(0, words, (4, 16))


def transformer(library: Any, width: int, depth: int, words: int, form: str) -> Any:
    """A transformer with a head, of the layers of either framework.

    "words" reads words, "causal" has positions, looks back only and shares the embedding with its head (GPT-2),
    "images" reads patches of 16 x 16 behind a learned token (ViT).
    """
    nn, softmax = library.nn, library.nn.functional.softmax
    module = nn.Module if hasattr(nn, "Module") else nn.Layer
    heads, places = max(width // 64, 1), 1024 if form == "causal" else 197

    class Block(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.wide, self.narrow, self.act = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()

        def forward(self, x: Any) -> Any:
            normed = self.norm1(x)
            q, k, v = (self.split(one(normed)) for one in (self.query, self.key, self.value))
            scores = (q * (width // heads) ** -0.5) @ k.swapaxes(-1, -2)
            if form == "causal":
                scores = scores + library.triu(library.full_like(scores, -1e9), 1)
            together = (softmax(scores, -1) @ v).swapaxes(1, 2).reshape([x.shape[0], x.shape[1], width])
            x = x + self.out(together)
            return x + self.narrow(self.act(self.wide(self.norm2(x))))

        def split(self, x: Any) -> Any:
            return x.reshape([x.shape[0], x.shape[1], heads, width // heads]).swapaxes(1, 2)

    class Transformer(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            blocks = [Block() for _ in range(depth)]
            self.blocks = nn.ModuleList(blocks) if hasattr(nn, "ModuleList") else nn.LayerList(blocks)
            self.norm = nn.LayerNorm(width)
            if form == "images":
                conv = nn.Conv2d if hasattr(nn, "Conv2d") else nn.Conv2D
                self.patches, self.token = conv(3, width, 16, 16), nn.Embedding(1, width)
            else:
                self.embedding = nn.Embedding(words, width)
            if form != "words":
                self.positions = nn.Embedding(places, width)
            if form != "causal":
                self.head = nn.Linear(width, words)

        def forward(self, x: Any) -> Any:
            if form == "images":
                x = self.patches(x).flatten(2).swapaxes(1, 2)
                x = library.concat([self.token.weight.expand([x.shape[0], 1, width]), x], 1)
            else:
                x = self.embedding(x)
            if form != "words":
                x = x + self.positions(library.arange(x.shape[1]))
            for block in self.blocks:
                x = block(x)
            x = self.norm(x)
            if form == "causal":
                return x[:, -1] @ self.embedding.weight.swapaxes(0, 1)
            return self.head(x[:, 0] if form == "images" else x.mean(1))

    return Transformer()


def resnets() -> tuple[Any, Any, Any]:
    """ResNet-50 in torch and paddle with norms in evaluation mode, and a batch of two small images."""
    import numpy as np
    import paddle
    import torch

    torch.manual_seed(0)
    paddle.seed(0)
    ours = resnet50(torch.nn, torch.nn.Module, torch.nn.Conv2d, torch.nn.BatchNorm2d, {"bias": False})
    theirs = resnet50(paddle.nn, paddle.nn.Layer, paddle.nn.Conv2D, paddle.nn.BatchNorm2D, {"bias_attr": False})
    for model in (ours, theirs):
        model.eval()
    return ours, theirs, np.random.default_rng(0).standard_normal((2, 3, 64, 64)).astype(np.float32)


def resnet50(nn: Any, module: Any, conv: Any, norm: Any, bare: dict[str, bool]) -> Any:
    """The widths, depths and strides of ResNet-50, of the layers of either framework."""

    def normed(inside: int, outside: int, size: int, stride: int = 1) -> Any:
        return nn.Sequential(conv(inside, outside, size, stride, size // 2, **bare), norm(outside))

    class Block(module):  # type: ignore[misc]
        def __init__(self, inside: int, width: int, stride: int) -> None:
            super().__init__()
            self.first, self.second = normed(inside, width, 1), normed(width, width, 3, stride)
            self.third, self.relu = normed(width, 4 * width, 1), nn.ReLU()
            self.shortcut = normed(inside, 4 * width, 1, stride) if inside != 4 * width else nn.Identity()

        def forward(self, x: Any) -> Any:
            return self.relu(self.third(self.relu(self.second(self.relu(self.first(x))))) + self.shortcut(x))

    class ResNet(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.relu = normed(3, 64, 7, 2), nn.ReLU()
            blocks, inside = [], 64
            for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
                for place in range(depth):
                    blocks.append(Block(inside, width, stride if place == 0 else 1))
                    inside = 4 * width
            self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inside, 1000)

        def forward(self, x: Any) -> Any:
            return self.head(self.blocks(self.relu(self.stem(x))).mean([2, 3]))

    return ResNet()


def decoder(library: Any, width: int, depth: int, words: int, wrong: int | None = None) -> dict[str, Any]:
    """Functions that make the blocks of a decoder, of the layers of either framework."""
    nn, heads = library.nn, max(width // 64, 1)
    module, eps = (nn.Module, "eps") if hasattr(nn, "Module") else (nn.Layer, "epsilon")

    class Block(module):  # type: ignore[misc]
        def __init__(self, place: int) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(width, **{eps: 1e-3 if place == wrong else 1e-5})
            self.norm2 = nn.LayerNorm(width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.wide, self.narrow, self.act = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()

        def forward(self, x: Any) -> Any:
            normed = self.norm1(x)
            q, k, v = (self.split(one(normed)) for one in (self.query, self.key, self.value))
            scores = (q * (width // heads) ** -0.5) @ k.swapaxes(-1, -2)
            scores = scores + library.triu(library.full_like(scores, -1e9), 1)
            together = (nn.functional.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(list(x.shape))
            x = x + self.out(together)
            return x + self.narrow(self.act(self.wide(self.norm2(x))))

        def split(self, x: Any) -> Any:
            return x.reshape([x.shape[0], x.shape[1], heads, width // heads]).swapaxes(1, 2)

    class Head(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.words = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, x: Any) -> Any:
            return self.words(self.norm(x)).flatten(0, 1)

    blocks = {f"blocks.{place}": partial(Block, place) for place in range(depth)}
    return {"embedding": lambda: nn.Embedding(words, width), **blocks, "head": Head}


def checkpoints(parts: dict[str, Any], folder: Path) -> tuple[list[Path], list[Path], int]:
    """The weights of torch's blocks as files of both frameworks, a file for each block, and how many there are."""
    import ml_dtypes
    import torch

    from reprod_log.recording.safetensors import write_tensors

    torch.manual_seed(0)
    files: tuple[list[Path], list[Path]] = [], []
    parameters = 0
    for name, make in parts.items():
        block = make()
        linear = {f"{path}.weight" for path, one in block.named_modules() if isinstance(one, torch.nn.Linear)}
        state = {key: one.numpy().astype(ml_dtypes.bfloat16) for key, one in block.state_dict().items()}
        parameters += sum(one.size for one in state.values())
        for place, written in enumerate(files):
            written.append(folder / f"{place}-{name}.safetensors")
            with written[-1].open("wb") as file:
                turned = {key: one.T.copy() if place and key in linear else one for key, one in state.items()}
                write_tensors(file, {f"{name}.{key}": one for key, one in turned.items()}, {})
    return *files, parameters


def decoder_measured(width: int, depth: int, words: int, wrong: int | None, folder: str) -> Measured:
    """One alignment of two decoders in blocks, each side with the weights of its own files."""
    import numpy as np
    import paddle
    import torch

    from reprod_log import Blocks, align_models

    torch.set_num_threads(1)
    ours, theirs = decoder(torch, width, depth, words), decoder(paddle, width, depth, words, wrong)
    tokens = np.random.default_rng(0).integers(0, words, (1, 32))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        here, there, parameters = checkpoints(ours, Path(place))
        sampler = Sampler()
        sampler.start()
        started = time.process_time(), time.time()
        alignment = align_models(
            Blocks(ours, here),
            Blocks(theirs, there),
            tokens,
            targets=np.roll(tokens, -1).reshape(-1),
            loss=(torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy),
            transfer=False,
            quick=True,
            spool=folder,
            threads=1,
            progress=lambda what, done, total: what == "blocks" and print(f"block {done} of {total}", file=sys.stderr),
        )
    sampler.over.set()
    sampler.join()
    seconds = time.process_time() - started[0]
    print(alignment, f"{time.time() - started[1]:.0f} s by the clock", sep="\n", file=sys.stderr)
    judged = len(alignment.verdict.judgements)
    return Measured(parameters, max(sampler.peaks.values()), 0, seconds, alignment.verdict.status.name, judged)


def published(name: str) -> tuple[Any, Any, Any]:
    """A model of a published size."""
    if name == "resnet50":
        return resnets()
    known = {"bert-base": (30522, "words"), "gpt2": (50257, "causal"), "vit-b": (1000, "images")}
    if name in known:
        return transformers(768, 12, *known[name])
    raise SystemExit(f"no published size {name!r}; known are resnet50, {', '.join(known)}")


def measured(model: str, steps: int, folder: str | None, stages: bool) -> Measured:
    """One case in this process."""
    import numpy as np
    import paddle
    import torch

    from reprod_log import align_models
    from reprod_log.recording import spool as spools

    torch.set_num_threads(1)
    ours, theirs, batch = transformers(int(model)) if model.isdecimal() else published(model)
    targets = np.random.default_rng(1).integers(0, 1000, len(batch))
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
        (batch,),
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


def in_process(model: str, steps: int, folder: str | None, stages: bool) -> Measured:
    """One case in a process of its own."""
    command = [sys.executable, __file__, "--case", model, str(steps)]
    command += (["--folder", folder] if folder else []) + (["--stages"] if stages else [])
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(**json.loads(answer.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--folder")
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--published", nargs="+")
    parser.add_argument("--decoder", type=int, nargs=3, metavar=("WIDTH", "DEPTH", "WORDS"))
    parser.add_argument("--wrong", type=int)
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(asdict(measured(given.case[0], int(given.case[1]), given.folder, given.stages))))
        return
    if given.decoder:
        one = decoder_measured(*given.decoder, given.wrong, given.folder or tempfile.gettempdir())
        row = [
            f"{one.parameters / 1e6:.0f} M",
            f"{given.decoder[0]} wide, {given.decoder[1]} deep, {given.decoder[2]} words",
            "none" if given.wrong is None else f"eps in blocks.{given.wrong}",
            f"{one.private / one.parameters:.1f}",
            f"{one.private / 1e9:.2f} GB",
            f"{one.seconds:.0f}",
            one.verdict,
        ]
        print(*row, sep="  ")
        heads = ["parameters", "decoder", "mistake", "private", "private, all", "CPU s", "verdict"]
        text = f"{versions('torch', 'paddlepaddle', 'numpy', 'reprod_log')}; {machine()}.\n\nBytes per parameter.\n\n"
        write_section(
            "Size, blocks" if given.wrong is None else "Size, blocks with a mistake", text + table(heads, [row])
        )
        return
    rows = []
    models = [str(width) for width in given.widths] if given.published is None else given.published
    for model in models:
        for steps in given.steps if given.published is None else [2]:
            one = in_process(model, steps, given.folder, given.stages)
            row = [
                *([model] if given.published else []),
                f"{one.parameters / 1e6:.1f} M",
                str(steps),
                str(BEFORE.get(steps, "")),
                f"{one.private / one.parameters:.0f}",
                f"{one.spooled / one.parameters:.0f}",
                f"{one.private / 1e9:.2f} GB",
                f"{one.seconds:.0f}",
                one.verdict,
            ]
            print(*row, sep="  ", flush=True)
            rows.append(row)
    heads = [
        *(["model"] if given.published else []),
        "parameters",
        "steps",
        "before",
        "private",
        "in files",
        "private, all",
        "CPU s",
        "verdict",
    ]
    text = f"{versions('torch', 'paddlepaddle', 'numpy', 'reprod_log')}; {machine()}.\n\nBytes per parameter.\n\n"
    write_section("Size, published models" if given.published else "Size", text + table(heads, rows))


if __name__ == "__main__":
    main()
