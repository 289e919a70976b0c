"""Passes: a program recorded as it runs and again in float64, so that two files can be judged by rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from reprod_log.errors import ReprodLogError
from reprod_log.experiments.program import Program
from reprod_log.experiments.runs import run_in_part
from reprod_log.recording import Recording

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


def _run(program: Program, batches: Batches, *, detailed: int | None, **options: Any) -> Recording:
    found = run_in_part(program, batches, detailed=detailed, **options)
    if detailed is None:
        return found
    kept = [one for one in found.entries if not (one.key.step and one.key.phase in ("forward", "backward"))]
    return replace(found, entries=tuple(kept))


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
