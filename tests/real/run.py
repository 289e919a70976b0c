"""Run `align_models` on models of public libraries, and print what it finds beside what is true.

.venv-real/bin/python tests/real/run.py [WORD …]            torchvision, timm, transformers, diffusers, paddle.vision
.venv-paddlenlp/bin/python tests/real/run.py [WORD …]       paddlenlp
… --half scored      the models nobody looks into: only totals are printed
… --page             docs/real_models.md from the outcomes of earlier runs

`make test-real` makes both environments and runs all of it. Outcomes are kept in build/real-*.json; a run of some
cases replaces theirs.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from real.cases import LIBRARIES, PADDLENLP, Case, all_cases
from real.libraries import paddlenlp, transformers
from real.outcome import Outcome, outcome, totals, write_kept
from real.page import write_page


def run(name: str) -> Outcome:
    """One case in this process; an error is an outcome too."""
    from reprod_log import align_models

    case = next(one for one in all_cases() if one.name == name)
    start = time.process_time()
    try:
        pair = case.build()
        found = align_models(pair.reference, pair.candidate, pair.inputs, **pair.options)
    except Exception as error:
        return outcome(case, type(error).__name__, f"{error}"[:700], [], *_cost(start))
    first = found.verdict.first_divergence
    place = "" if first is None else str(first.key)
    causes = [
        f"{one.confidence}: {one.sentences()[0]} [{', '.join(map(str, one.keys[:2]))}]"
        for one in found.findings
        if one.kind == "cause"
    ]
    return outcome(case, str(found.verdict.status), place, causes, *_cost(start))


def _cost(start: float) -> tuple[float, int]:
    """Processor seconds of the case, and the peak of its process in megabytes."""
    return time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def load(here: str) -> None:
    """Import what takes longest, once for all cases."""
    warnings.simplefilter("ignore")
    import paddle  # noqa: F401  before whatever else links to the same libraries
    import torch

    import reprod_log.alignment.models  # noqa: F401

    torch.set_num_threads(1)
    transformers()
    if here == PADDLENLP:
        paddlenlp()


def apart(case: Case) -> Outcome:
    """The case in a process of its own: a crash is one outcome, and memory is that of one case."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        future = pool.submit(run, case.name)
        died = future.exception()
        return future.result() if died is None else outcome(case, "died", repr(died), [], 0.0, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only cases whose names have one of these")
    parser.add_argument("--half", choices=("development", "scored"))
    parser.add_argument("--page", action="store_true", help="run nothing; write the page from the outcomes kept")
    chosen = parser.parse_args()
    if chosen.page:
        write_page()
        return 0
    if chosen.half == "scored" and chosen.words:
        parser.error("single cases of the scored half are not shown; run all of it")
    here = PADDLENLP if find_spec("paddlenlp") else LIBRARIES
    load(here)
    outcomes = []
    for case in all_cases():
        if case.environment != here or chosen.half not in (None, case.half):
            continue
        if chosen.words and (case.half == "scored" or not any(word in case.name for word in chosen.words)):
            continue
        one = apart(case)
        outcomes.append(one)
        write_kept(here, one)
        if case.half == "development":
            print(one.line(), flush=True)
    for half, lines in totals(outcomes).items():
        print(half, *lines, sep="\n  ")
    return 0 if all(one.right for one in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
