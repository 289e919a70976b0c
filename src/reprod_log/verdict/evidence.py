"""FloorEvidence: what was measured of one entry, from the passes in which a program was recorded.

A program may be recorded in several passes (runs) of itself. A run's name is its mode and, for float64, the dtype:

    ''                  the program as the user runs it           'float64'            the same in float64
    'isolated'          every layer alone, on the reference's input   'isolated.float64'
    'injected'          the reference's gradients before every update 'injected.float64'
    'emulated'          the reference in the candidate's narrower type    'isolated.emulated'
    'declared', 'fitted'   a quantised candidate with the reference's weights, rounding as its layers declare, and in
                        ranges that fit the values: 'isolated.declared', 'isolated.fitted'
    'repeat', 'perturbed1' …   the reference again, unchanged or with inputs moved by one unit in the last place
"""

from __future__ import annotations

from dataclasses import dataclass

from reprod_log.measure.measurement import Measurement
from reprod_log.recording import Key
from reprod_log.recording.plain import Plain
from reprod_log.verdict.status import Basis

FLOAT64 = "float64"
EMULATED = "emulated"
DECLARED, FITTED = "declared", "fitted"
NARROW = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Floating types narrower than float32, with the rounding of one operation relative to the value."""
EPS = 2.0**-24
"""Half a unit in the last place of float32, relative to the value: the rounding of one operation."""
_ROUNDING = NARROW | {"float8": 2.0**-4}
_MARGIN = 8.0
"""Rounding of a narrow type is not exactly that of float32 made larger."""

Series = tuple[str, str, str, str | None]


def share_of_float32(dtype: str) -> float:
    """What part of the rounding of a pass in this type float32 would have.

    Float64 passes of both sides agree as well when the plain pass of the reference is in a narrow type, so its coarse
    rounding is no tolerance for them.
    """
    rounding = next((size for name, size in _ROUNDING.items() if dtype.startswith(name)), 0.0)
    return min(1.0, _MARGIN * EPS / rounding) if rounding else 1.0


@dataclass(frozen=True)
class FloorEvidence(Plain):
    """What was measured of one entry in one mode. All numbers are kept, so that it can be judged again."""

    key: Key
    """The reference's key, without the mark of the float64 run."""
    mode: str
    noise: Measurement | None = None
    """The reference in its own precision against itself in float64 (or its worst repeat against itself)."""
    float64: Measurement | None = None
    """The candidate against the reference, both in float64."""
    float32: Measurement | None = None
    """The candidate in its own precision against the reference in float64 (or in its own, when there is no float64)."""
    emulated: Measurement | None = None
    """The reference in the candidate's type, where that is narrower than float32, against itself in float64; for a
    quantised candidate, rounding in ranges that fit."""
    declared: Measurement | None = None
    """A quantised candidate as it runs against the rounding that it declares."""
    reduction: int = 1
    """How many terms were summed into each element of a one-dimensional gradient or a batch statistic."""
    basis: Basis = Basis.NONE
    constant: float = 0.0
    """Relative error that a constant kept in float32 makes in every precision (`KeptConstants`)."""
    flips: int | None = None
    """Elements of a layer's output whose sign differs between the passes; None where they were not compared."""

    @property
    def in_float64(self) -> bool:
        """Whether the noise was measured against the reference's own float64 run."""
        return self.noise is not None and self.basis in (Basis.BOTH_FLOAT64, Basis.REFERENCE_FLOAT64)

    @property
    def series(self) -> Series:
        """What names the same tensor over the steps."""
        return self.key.phase, self.key.path, self.key.role, self.key.region
