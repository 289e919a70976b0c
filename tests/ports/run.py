"""Run the ports through `align_models` and print how many pass, are told, found and placed.

python tests/ports/run.py [--half development|scored] [--table correct] [--only WORD] [--seeds N] [--jobs 1]

The tables are split by the ports' names. The development half prints every case. Of the scored half only totals are
printed and written, so that nobody fits the tool to it; `--reveal` shows it all the same, and uses it up.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ports.outcome import BROKEN, FAILED, PASSED, REFUSED, TABLES, Case, Outcome, run
from ports.tables import HALVES, all_exchanged, all_mistakes, all_ports, all_stated

_ROOT = Path(__file__).resolve().parents[2]
_SHARE = 60


def cases(seeds: int, slow: bool = False) -> Iterator[Case]:
    """All of it; of the mistakes and statements one seed."""
    ports = {name: port for name, port in all_ports().items() if slow or not port.slow}
    for port in ports.values():
        for one in port.formulations:
            for seed in port.seeds[:seeds]:
                yield Case("correct", port.name, one.name, seed)
                if port.swap:
                    yield Case("correct", port.name, one.name, seed, swapped=True)
    for name in all_exchanged():
        yield from (Case("exchanged", name, seed=seed) for seed in range(min(seeds, 3)))
    yield from (Case("mistakes", name) for name, row in all_mistakes().items() if row.port in ports)
    yield from (Case("stated", name) for name, row in all_stated().items() if row.port in ports)


def totals(outcomes: list[Outcome]) -> dict[str, dict[str, int]]:
    """By table: how many of each result and grade."""
    made = {}
    for table in TABLES:
        own = [one for one in outcomes if one.case.table == table]
        if own:
            counts = Counter(one.result for one in own) + Counter(grade for one in own for grade in one.grades)
            made[table] = {"cases": len(own), **{name: counts[name] for name in _COLUMNS[table]}}
            if table == "exchanged":
                made[table] |= _informative(own)
    return made


_COLUMNS = {
    "correct": (PASSED, FAILED, REFUSED, BROKEN, "causes named"),
    "exchanged": ("told", "shown", "silent", "unnamed", REFUSED, BROKEN),
    "mistakes": ("found", "placed", "enclosing", REFUSED, BROKEN),
    "stated": ("right", "wrong", REFUSED, BROKEN),
}


def _informative(outcomes: list[Outcome]) -> dict[str, int]:
    own = [one for one in outcomes if all_exchanged()[one.case.name].informative]
    told = sum("told" in one.grades for one in own)
    return {"with informative names": len(own), "of these told": told}


def run_all(chosen: list[Case], jobs: int) -> Iterator[Outcome]:
    """The outcomes as they come; a process that dies takes no more than a share of the cases with it."""
    for start in range(0, len(chosen), _SHARE):
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            waiting = {pool.submit(run, case): case for case in chosen[start : start + _SHARE]}
            for future in as_completed(waiting):
                died = future.exception()
                yield future.result() if died is None else Outcome(waiting[future], BROKEN, (), repr(died))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES, default="development")
    parser.add_argument("--table", choices=TABLES, help="one table instead of all")
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--seeds", type=int, default=3, help="at most so many seeds per pair")
    parser.add_argument("--slow", action="store_true", help="also the ports that take minutes")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", type=Path, help="where the outcomes go (build/ports-HALF.json)")
    parser.add_argument("--reveal", action="store_true", help="show the cases of the scored half")
    options = parser.parse_args()
    shown = options.half == "development" or options.reveal
    if options.only and not shown:
        parser.error("--only would show single cases of the scored half; run all of it, or give --reveal")
    chosen = [
        case
        for case in cases(options.seeds, options.slow)
        if case.half == options.half and options.table in (None, case.table) and options.only in str(case)
    ]
    outcomes: list[Outcome] = []
    for one in run_all(chosen, options.jobs):
        outcomes.append(one)
        print(f"{len(outcomes)}/{len(chosen)} {line(one) if shown else ''}", flush=True)
    counts = totals(outcomes)
    for table, row in counts.items():
        print(f"{table}: " + ", ".join(f"{number} {name}" for name, number in row.items()))
    seconds = sum(one.seconds for one in outcomes)
    print(f"{len(outcomes)} cases, {seconds:.0f} s, {seconds / max(len(outcomes), 1):.1f} s each")
    target = options.write or _ROOT / "build" / f"ports-{options.half}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record(options.half, outcomes, shown), indent=1, ensure_ascii=False) + "\n")
    return 1 if any(one.result == BROKEN for one in outcomes) else 0


def record(half: str, outcomes: list[Outcome], shown: bool) -> dict[str, Any]:
    """What is written: totals, and the cases if they may be seen."""
    return {
        "half": half,
        "totals": totals(outcomes),
        "seconds": sum(one.seconds for one in outcomes),
        "outcomes": [one.to_dict() for one in outcomes] if shown else [],
    }


def line(outcome: Outcome) -> str:
    said = ", ".join(outcome.grades)
    first = outcome.first.replace("\n", " ")[:160]
    text = f"{outcome.case}: {outcome.result}{f' ({said})' if said else ''} {first}"
    return "\n    ".join([f"{text} {outcome.seconds:.1f} s", *outcome.causes[:2]])


if __name__ == "__main__":
    raise SystemExit(main())
