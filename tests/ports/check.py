"""Prove the tables: python tests/ports/check.py [--only WORD] [--seeds N].

Correct and exchanged pairs must be the same function under their converters, mistakes and wrong statements must not be.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ports.exchanged import port_of
from ports.planting import plant
from ports.port import Formulation, Port, State
from ports.selfcheck import Check, check
from ports.tables import all_exchanged, all_mistakes, all_ports, all_stated, half

DIFFERENT = 1e-5
"""A mistake must change an output, the loss, a gradient or an update by more than this, relatively."""

Task = tuple[str, str, str, Callable[[], bool]]


def crossed(formulation: Formulation, one: str, other: str) -> Formulation:
    """The formulation, loaded by a hand that exchanged two weights."""

    def convert(w: State) -> State:
        made = formulation.convert(w)
        return {**made, one: made[other], other: made[one]}

    return replace(formulation, convert=convert)


def straight(port: Port, crossing: tuple[tuple[str, str], ...]) -> Formulation:
    """The exchanged formulation loaded by the names instead."""
    formulation = port.formulations[0]
    (_, first), (_, second) = crossing

    def convert(w: State) -> State:
        made = formulation.convert(w)
        swap = {first: second, second: first}
        parts = {name: name.split(".") for name in made}
        return {".".join(swap.get(part, part) for part in split): made[name] for name, split in parts.items()}

    return replace(formulation, convert=convert)


def same_function(port: Port, formulation: Formulation, seed: int) -> bool:
    return check(port, formulation, seed).passes(port.tolerance)


def another_function(port: Port, formulation: Formulation, seed: int) -> bool:
    found: Check = check(port, formulation, seed)
    given = (found.outputs, found.loss, found.weights, found.trained)
    return any(one > DIFFERENT for one in given if one is not None)


def tasks(seeds: int) -> Iterator[Task]:
    """(table, half, name, whether it is as it should be)."""
    ports = all_ports()
    for port in ports.values():
        for one in port.formulations:
            for seed in port.seeds[:seeds]:
                name = f"{port.name}/{one.name} seed {seed}"
                yield "correct", half(port.name), name, lambda p=port, f=one, s=seed: same_function(p, f, s)
    for row in all_exchanged().values():
        port = port_of(row)
        where, wrong = half(row.name), straight(port, row.crossing)
        for seed in port.seeds[:seeds]:
            good = port.formulations[0]
            yield "exchanged", where, f"{row.name} seed {seed}", lambda p=port, f=good, s=seed: same_function(p, f, s)
            name = f"{row.name} by name, seed {seed}"
            yield "exchanged", where, name, lambda p=port, f=wrong, s=seed: another_function(p, f, s)
    for row in all_mistakes().values():
        port = ports[row.port]
        yield (
            "mistakes",
            half(row.port),
            row.name,
            lambda p=port, m=row: another_function(p, plant(m, p).formulation, 0),
        )
    for row in all_stated().values():
        port, one = ports[row.port], ports[row.port].formulation(row.formulation)
        if row.crossed is not None:
            wrong = crossed(one, *row.crossed)
            yield "stated", half(row.port), row.name, lambda p=port, f=wrong: another_function(p, f, 0)
        else:
            yield "stated", half(row.port), row.name, lambda p=port, f=one: same_function(p, f, 0)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    counts: dict[tuple[str, str], list[int]] = {}
    start = time.perf_counter()
    for table, where, name, proof in tasks(options.seeds):
        if options.only not in name:
            continue
        try:
            good, why = proof(), "is not as it should be"
        except Exception:  # the list must show it and go on
            good, why = False, traceback.format_exc(limit=-3)
        counts.setdefault((table, where), [0, 0])[not good] += 1
        if not good:
            print(f"{table} {name}: {why}")
    for (table, where), (good, bad) in sorted(counts.items()):
        print(f"{table}, {where}: {good} proven, {bad} not")
    print(f"{time.perf_counter() - start:.0f} s")
    return 1 if any(bad for _, bad in counts.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
