"""Run the zoo: every planted mistake and every healthy port; print the table and, if asked, write it.

python tests/zoo/run.py [--only WORD] [--half development] [--every N] [--seeds N] [--jobs 2] [--pairs]
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from zoo.healthy import all_healthy
from zoo.mistakes import all_mistakes
from zoo.pairs import all_pairs

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "zoo.md"


def work(folder: str, name: str, seed: int, keep: Path | None):
    """One trial in a process of its own."""
    warnings.filterwarnings("ignore")
    from zoo.outcome import run

    try:
        trial = all_healthy()[name].make(seed) if folder == "healthy" else _planted(folder)[name].planted(seed)
        return folder, run(trial, name, seed, keep)
    except Exception:  # the table must show it and go on
        return folder, f"{name} (seed {seed}): {traceback.format_exc()}"


def _planted(folder: str):
    return all_pairs() if folder == "pairs" else all_mistakes()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--half", choices=("development", "scored"), help="mistakes of one half; of the scored half, totals"
    )
    parser.add_argument("--every", type=int, default=1, help="only every so many of the mistakes: a sample")
    parser.add_argument("--seeds", type=int, default=1, help="seeds per mistake")
    parser.add_argument("--healthy-seeds", type=int, default=10, help="at most so many seeds per correct port")
    parser.add_argument("--write", type=Path, help="docs/zoo.md when everything is run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-healthy", action="store_true")
    parser.add_argument("--pairs", action="store_true", help="only pairs of mistakes: how often both are named")
    parser.add_argument("--keep", type=Path, help="a folder for the alignments")
    options = parser.parse_args()
    from zoo.table import halves, of_pairs, summary

    tasks = list(_tasks(options))
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    outcomes, errors = {"mistakes": [], "healthy": [], "pairs": []}, []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(work, *task, options.keep) for task in tasks]
        for done, future in enumerate(as_completed(waiting), 1):
            folder, outcome = future.result()
            if isinstance(outcome, str):
                errors.append(outcome)
                print(outcome, flush=True)
                continue
            outcomes[folder].append(outcome)
            told = "" if options.half == "scored" else f"{outcome.first['V'] or 'passes'} {outcome.causes[:3]}"
            print(f"{done}/{len(tasks)} {folder} {outcome.name} seed {outcome.seed}: {told} {outcome.seconds:.1f} s",
                  flush=True)  # fmt: skip
    if options.pairs:
        print(of_pairs(outcomes["pairs"], all_pairs()))
        return 1 if errors else 0
    if options.half:
        # Nobody is to look into the scored half, so its table has totals only.
        print("\n".join(halves(outcomes["mistakes"], all_mistakes())))
        return 1 if errors else 0
    text = summary(outcomes["mistakes"], outcomes["healthy"], all_mistakes(), errors)
    print(text)
    everything = not options.only and not options.no_healthy and options.every == 1
    target = options.write or (_PAGE if everything else None)
    if target is not None:
        target.write_text(text)
    return 1 if errors else 0


def _tasks(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    folder = "pairs" if options.pairs else "mistakes"
    chosen = [
        name for name, one in _planted(folder).items() if options.only in name and options.half in (None, one.half)
    ][:: options.every]
    yield from ((folder, name, seed) for name in chosen for seed in range(options.seeds))
    if not options.no_healthy and not options.pairs and not options.half:
        for name, one in all_healthy().items():
            if options.only in name:
                yield from (("healthy", name, seed) for seed in one.seeds[: options.healthy_seeds])


if __name__ == "__main__":
    raise SystemExit(main())
