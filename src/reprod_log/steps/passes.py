"""Passes: a program recorded as it runs and again in float64, so that two files can be judged by rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from reprod_log.errors import ReprodLogError
from reprod_log.live.program import Program
from reprod_log.live.runs import run_program
from reprod_log.record import Entry, Recording

FLOAT64 = "float64"
Batches = Sequence[tuple[Any, Any]]


def record_passes(
    program: Program,
    batches: Batches,
    *,
    float64: bool = True,
    phases: Sequence[str] | None = None,
    detailed: int | None = None,
    brief: Sequence[str] = ("loss", "lr", "metric"),
) -> Recording:
    """The program's plain run, with its float64 run beside it.

    Of the first `detailed` steps (all by default) the `phases` are kept, layer outputs and their gradients only of
    the first, and of the later steps those in `brief`: all of a large model is more than a disk should hold.
    """
    return with_float64(
        lambda dtype: _run(
            program, batches, run=dtype or "", dtype=dtype, phases=phases, detailed=detailed, brief=brief
        ),
        float64=float64,
    )


def with_float64(make: Callable[[str | None], Recording], *, float64: bool = True) -> Recording:
    """What `make` gives in the program's own precision (None), with its entries in float64 beside it if asked for."""
    main = make(None)
    if not float64:
        return main
    try:
        wide = make(FLOAT64)
    except ReprodLogError:
        raise
    except Exception as error:  # a kernel without float64 may raise anything; its word is the note
        return replace(main, notes=(*main.notes, f"could not be run in float64: {type(error).__name__}: {error}"))
    return replace(main, entries=(*main.entries, *wide.entries))


def _run(
    program: Program,
    batches: Batches,
    *,
    run: str,
    dtype: str | None,
    phases: Sequence[str] | None,
    detailed: int | None,
    brief: Sequence[str],
) -> Recording:
    if detailed is None:
        return run_program(program, batches, run=run, dtype=dtype, phases=phases)
    first = run_program(program, batches[:detailed], run=run, dtype=dtype, phases=phases)
    entries = [entry for entry in first.entries if not (_step(entry) and entry.key.phase in ("forward", "backward"))]
    if detailed < len(batches):
        # Both start alike and repeat each other bit for bit, so the second continues the first.
        rest = run_program(program, batches, run=run, dtype=dtype, phases=brief)
        entries += [entry for entry in rest.entries if _step(entry) >= detailed]
    return replace(first, entries=tuple(entries))


def _step(entry: Entry) -> int:
    return entry.key.step or 0
