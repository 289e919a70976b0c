"""Evidence: the numbers that speak about one entry, beside what rounding alone does to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reprod_log.measure.measurement import Measurement
from reprod_log.recording import Key
from reprod_log.verdict.status import Basis


@dataclass(frozen=True)
class FloorEvidence:
    """The numbers that speak about one entry in one mode. All are kept, so that it can be judged again."""

    key: Key
    """The reference's key, without the mark of the float64 run."""
    mode: str
    noise: Measurement | None = None
    """The reference in its own precision against itself in float64 (or its worst repeat against itself)."""
    float64: Measurement | None = None
    """The candidate against the reference, both in float64."""
    float32: Measurement | None = None
    """The candidate in its own precision against the reference in float64 (or in its own, when there is no float64)."""
    reduction: int = 1
    """How many terms were summed into each element of a one-dimensional gradient or a batch statistic."""
    basis: Basis = Basis.NONE
    constant: float = 0.0
    """Relative error that a constant kept in float32 makes in every precision (see kept_constants)."""

    @property
    def in_float64(self) -> bool:
        """Whether the noise was measured against the reference's own float64 run."""
        return self.noise is not None and self.basis in (Basis.BOTH_FLOAT64, Basis.REFERENCE_FLOAT64)

    def to_dict(self) -> dict[str, Any]:
        data = {**asdict(self), "key": str(self.key), "basis": str(self.basis)}
        for name in ("noise", "float64", "float32"):
            found = getattr(self, name)
            data[name] = None if found is None else found.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FloorEvidence:
        values = {**data, "key": Key.parse(data["key"]), "basis": Basis(data["basis"])}
        for name in ("noise", "float64", "float32"):
            if values.get(name) is not None:
                values[name] = Measurement.from_dict(values[name])
        return cls(**values)
