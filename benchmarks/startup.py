"""How long it takes to start: import, the command's help, and a comparison of two small files.

    python benchmarks/startup.py [--rounds 7]

Every command runs once per round in a new process; the best of all rounds counts. What matters is the difference to
`import numpy` in the same run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from results import versions, write_section
from timing import Timed, best_of_rounds, machine, table

from reprod_log import Recording

NUMPY = "import numpy"


def report(found: dict[str, Timed], rounds: int) -> str:
    """The section in Markdown."""
    base = found[NUMPY]
    rows = [
        [
            name,
            f"{one.seconds:.2f} s",
            f"{one.processor:.2f} s",
            "" if name == NUMPY else f"{one.processor - base.processor:+.2f} s",
        ]
        for name, one in found.items()
    ]
    return f"""{versions("numpy", "typer", "rich", "reprod_log")}; {machine()}; best of {rounds} new processes each.

{table(["", "time", "processor time", "beside numpy"], rows)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arrays = {f"entry_{i}": np.random.default_rng(i).normal(size=(64, 64)) for i in range(100)}
        paths = [str(Path(folder) / name) for name in ("a.npy", "b.npy")]
        for path in paths:
            Recording.from_arrays(arrays).save(path)
        python = [sys.executable, "-c"]
        reprod = [sys.executable, "-m", "reprod_log"]
        found = best_of_rounds(
            {
                NUMPY: {"command": [*python, NUMPY]},
                "import reprod_log": {"command": [*python, "import reprod_log"]},
                "from reprod_log import align": {"command": [*python, "from reprod_log import align"]},
                "import typer, rich.console": {"command": [*python, "import typer, rich.console"]},
                "reprod --help": {"command": [*reprod, "--help"]},
                "reprod compare, 2 × 100 entries": {"command": [*reprod, "compare", *paths]},
            },
            options.rounds,
        )
    text = report(found, options.rounds)
    print(text)
    write_section("Start-up", text)


if __name__ == "__main__":
    main()
