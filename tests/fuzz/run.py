"""Fuzzes every reader, one after the other, and says how many inputs each was given (`make fuzz`).

    python tests/fuzz/run.py --runs 100000            so many inputs for each target
    python tests/fuzz/run.py --seconds 60 npz folder  so long for each of these

Inputs that reach new code are kept in --grown (made smaller with --merge); an input that breaks a reader is put into
tests/fuzz/corpus/<target>/ as broke-…, where `make test` reads it from then on, and the run ends with an error.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
_DONE = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
LONGEST_INPUT = 16384
HANGING_SECONDS = 300


def fuzz(target: str, *, runs: int, seconds: int, grown: Path) -> tuple[int, int]:
    """How many inputs the target was given, and the exit code."""
    found = grown / target
    found.mkdir(parents=True, exist_ok=True)
    limits = [f"-runs={runs}"] * (runs > 0) + [f"-max_total_time={seconds}"] * (seconds > 0)
    command = [
        sys.executable, "-m", "fuzz.one_target", target, *limits,
        f"-max_len={LONGEST_INPUT}", f"-timeout={HANGING_SECONDS}", "-rss_limit_mb=3000", "-print_final_stats=1",
        f"-dict={HERE / 'words.dict'}", f"-artifact_prefix={CORPUS / target}/broke-", str(found), str(CORPUS / target),
    ]  # fmt: skip
    paths = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    answer = subprocess.run(
        command, cwd=HERE.parent, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    counts = [int(number) for number in _DONE.findall(answer.stderr)]
    if answer.returncode:
        print(answer.stdout[-3000:], answer.stderr[-600:], sep="\n")
    return (counts[-1] if counts else 0), answer.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--grown", type=Path, default=HERE.parent.parent / "build" / "fuzz")
    options = parser.parse_args()
    if not (options.runs or options.seconds):
        options.seconds = 60
    names = options.targets or sorted(path.name for path in CORPUS.iterdir() if path.is_dir())
    total, broken = 0, []
    for name in names:
        start = time.monotonic()
        count, code = fuzz(name, runs=options.runs, seconds=options.seconds, grown=options.grown)
        total += count
        spent = time.monotonic() - start
        print(f"{name:12} {count:>10,} inputs {spent:7.0f} s {'BROKE' if code else 'ok'}", flush=True)
        broken += [name] * bool(code)
    print(f"{'in all':12} {total:>10,} inputs; broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
