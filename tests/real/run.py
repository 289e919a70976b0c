"""Run `align_models` on models of public libraries, and print what it says beside what is true.

.venv-real/bin/python tests/real/run.py [WORD …]            torchvision, timm, transformers, diffusers, paddle.vision
.venv-paddlenlp/bin/python tests/real/run.py paddlenlp

`make test-real` makes both environments and runs all of it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from real.cases import LIBRARIES, PADDLENLP, SAME, Case, all_cases


@dataclass(frozen=True)
class Outcome:
    name: str
    truth: str
    verdict: str
    """The verdict, or the name of an error."""
    right: bool
    placed: bool
    named: bool
    first: str
    causes: list[str]
    seconds: float
    megabytes: int


def run(name: str) -> Outcome:
    """One case in this process; an error is an outcome too."""
    warnings.simplefilter("ignore")
    import paddle  # noqa: F401  before whatever else links to the same libraries
    import torch

    torch.set_num_threads(1)
    from reprod_log import align_models

    case = next(one for one in all_cases() if one.name == name)
    start = time.process_time()
    try:
        pair = case.build()
        found = align_models(pair.reference, pair.candidate, pair.inputs, **pair.options)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return _outcome(case, type(error).__name__, text[:700], [], start)
    first = found.verdict.first_divergence
    place = "" if first is None else str(first.key)
    causes = [
        f"{one.confidence}: {one.sentences()[0]} [{', '.join(map(str, one.keys[:2]))}]"
        for one in found.findings
        if one.kind == "cause"
    ]
    return _outcome(case, str(found.verdict.status), place, causes, start)


def _outcome(case: Case, verdict: str, first: str, causes: list[str], start: float) -> Outcome:
    right = (verdict in ("PASS", "SUSPECT") and not causes) if case.truth == SAME else verdict == "FAIL"
    return Outcome(
        case.name,
        case.truth,
        verdict,
        right,
        case.truth != SAME and right and case.place in first,
        case.truth != SAME and bool(causes) and case.cause in " ".join(causes),
        first,
        causes,
        time.process_time() - start,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def main() -> int:
    words = sys.argv[1:]
    here = PADDLENLP if find_spec("paddlenlp") else LIBRARIES
    chosen = [
        case
        for case in all_cases()
        if case.environment == here and (not words or any(word in case.name for word in words))
    ]
    outcomes = []
    for case in chosen:
        # A process of its own: a crash is one outcome, and memory is that of one case.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            future = pool.submit(run, case.name)
            died = future.exception()
            one = future.result() if died is None else _outcome(case, "died", repr(died), [], time.process_time())
        outcomes.append(one)
        mark = "ok   " if one.right else "WRONG"
        print(f"{mark} {one.name}: {one.verdict} {one.first[:300]} {one.seconds:.0f} s {one.megabytes} MB", flush=True)
        for cause in one.causes[:3]:
            print(f"        {cause[:300]}", flush=True)
    same = [one for one in outcomes if one.truth == SAME]
    wrong = [one for one in outcomes if one.truth != SAME]
    print(f"{sum(one.right for one in same)} of {len(same)} that are the same pass")
    found, placed, named = (sum(getattr(one, grade) for one in wrong) for grade in ("right", "placed", "named"))
    print(f"{found} of {len(wrong)} that differ are found, {placed} placed, {named} named")
    target = Path(__file__).resolve().parents[2] / "build" / f"real-{here}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps([asdict(one) for one in outcomes], indent=1, ensure_ascii=False) + "\n")
    return 0 if all(one.right for one in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
