"""A pytest plugin that tries mutants: tests are collected once, and each mutant is tried in a process forked there.

First each test runs without a mutant, in a process of its own too, because what one test has left in a cache another
does not call any more: which functions it calls, and how long it takes. A mutant is then shown to the tests that call
its function: first the one that last noticed a fault there, then the nearest, as many as take MUTANTS_SECONDS together.
The first that fails ends it. No test ever runs in the parent, so nothing that one mutant did reaches the next.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test  # type: ignore[import-not-found, unused-ignore]
from mutmut.state import state  # type: ignore[import-not-found, unused-ignore]
from planting import Mutant, mutants_of

# A mutant may loop for ever, wait for ever, or ask for all the memory there is.
_SECONDS, _TIMES, _WAIT, _MEMORY = 3.0, 3.0, 60, 6 << 30


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Try what the file MUTANTS_WANTED names, and write every fate to results.jsonl as soon as it is known."""
    exec(os.environ["MUTANTS_ONCE"])
    place = Path.cwd()
    wanted = set(Path(os.environ["MUTANTS_WANTED"]).read_text().splitlines())
    calls: dict[str, list[str]] = {}
    seconds: dict[str, float] = {}
    for item in session.items:
        seen = json.loads(_answer(partial(_observe, item)))
        if seen["failed"]:
            raise pytest.UsageError(f"it fails without any mutant: {item.nodeid}")
        calls[item.nodeid], seconds[item.nodeid] = seen["calls"], seen["seconds"]
    # Slower ones will never be shown a mutant.
    quick = [item for item in session.items if seconds[item.nodeid] < float(os.environ["MUTANTS_SECONDS"])]
    answer = _answer(lambda: _try("", quick), limit=_SECONDS + _TIMES * sum(seconds.values()))
    if answer != "survived":
        raise pytest.UsageError(f"without any mutant one is seen: {answer}")
    items = {item.nodeid: item for item in session.items}
    callers: dict[str, list[str]] = {}
    for test, functions in calls.items():
        for function in functions:
            callers.setdefault(function, []).append(test)
    for tests in callers.values():
        tests[:] = _nearest(tests, calls, seconds)

    def hunt(mutant: Mutant) -> dict[str, str]:
        tests = callers.get(mutant.name.rpartition("__mutmut_")[0], [])
        if not tests:
            return {"fate": "no tests", "by": ""}
        shown, left = [], float(os.environ["MUTANTS_SECONDS"])
        for test in tests:
            left -= seconds[test]
            if left > 0 or not shown:
                shown.append(test)
        limit = _SECONDS + _TIMES * sum(seconds[test] for test in shown)
        answer = _answer(lambda: _try(mutant.name, [items[test] for test in shown]), limit=limit)
        fate, _, by = answer.partition(" ")
        if fate == "killed":
            tests.remove(by)
            tests.insert(0, by)
        return {"fate": fate or "died", "by": by}

    with (place / "results.jsonl").open("a") as results:
        for mutant in mutants_of(place):
            if mutant.name in wanted:
                started = time.monotonic()
                row = {"name": mutant.name, **hunt(mutant), "seconds": round(time.monotonic() - started, 3)}
                results.write(json.dumps(row) + "\n")
                results.flush()
    return True


def _nearest(tests: list[str], calls: Mapping[str, list[str]], seconds: Mapping[str, float]) -> list[str]:
    """Those first that call few functions besides, and of these the quickest; two cases of each test before a third of
    any: cases of one test see much the same."""
    rounds: Counter[str] = Counter()
    ordered = []
    for test in sorted(tests, key=lambda test: (len(calls[test]), seconds[test])):
        name = test.partition("[")[0]
        ordered.append((rounds[name] // 2, test))
        rounds[name] += 1
    return [test for _, test in sorted(ordered, key=itemgetter(0))]


def _answer(work: Callable[[], str], *, limit: float | None = None) -> str:
    """What the work says in a forked process; nothing when that crashed or was ended because it took too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            if limit is not None:
                for timer, sent, seconds in (
                    (signal.ITIMER_PROF, signal.SIGPROF, limit),
                    (signal.ITIMER_REAL, signal.SIGALRM, max(_WAIT, 3 * limit)),
                ):
                    signal.signal(sent, signal.SIG_DFL)
                    signal.setitimer(timer, seconds)
                resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            answer = work().encode()
        except BaseException as error:
            answer = f"broken {error!r}".encode()
        try:
            while answer:
                answer = answer[os.write(writing, answer) :]
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said.decode()


def _try(mutant: str, items: list[pytest.Item]) -> str:
    """Show a mutant to the tests, and say which of them noticed it."""
    set_mutant_under_test(mutant)
    for item in items:
        if _fails(item):
            return f"killed {item.nodeid}"
    return "survived"


def _observe(item: pytest.Item) -> str:
    """Run a test as it is: which functions it calls, and how long it takes."""
    set_mutant_under_test("stats")
    started = time.process_time()
    failed = _fails(item)
    return json.dumps({"calls": sorted(state()._stats), "seconds": time.process_time() - started, "failed": failed})


def _fails(item: pytest.Item) -> bool:
    """Whether a test fails, its set-up and what comes after it included."""
    before = item.session.testsfailed
    # With no next test everything it set up is taken down again, so that tests may come in any order.
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    return item.session.testsfailed > before
