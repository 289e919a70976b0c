"""An independent, slow measurement in exact rational arithmetic, against which the fast ones are tested.

It shares no code and no formula with the package: every value is a Fraction, every statistic is computed as its
definition reads, and only the final result is rounded to float.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

BITS = 200  # of a square root


@dataclass(frozen=True)
class Number:
    """One element: finite with an exact real and imaginary part, or what kind of non-finite it is."""

    re: Fraction
    im: Fraction
    nan: bool = False
    inf: tuple[Any, Any] | None = None
    parts: tuple[Any, Any] = ("nan", Fraction(0))
    """Of a NaN: what its real and its imaginary part are. Two are the same if both parts are."""

    @property
    def finite(self) -> bool:
        return not self.nan and self.inf is None

    @property
    def magnitude(self) -> Fraction:
        return abs(self.re) if self.im == 0 else root(self.re**2 + self.im**2)


def root(value: Fraction) -> Fraction:
    """The square root, exact to BITS bits."""
    if value == 0:
        return Fraction(0)
    shift = max(0, BITS - (value.numerator.bit_length() - value.denominator.bit_length())) // 2 + 1
    scaled = value * Fraction(4) ** shift
    return Fraction(math.isqrt(scaled.numerator // scaled.denominator)) / Fraction(2) ** shift


def rounded(value: Fraction) -> float:
    """The nearest float64, infinite beyond its range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def number(value: Any) -> Number:
    """The exact value of a numpy element."""
    zero = Fraction(0)
    if isinstance(value, (bool, np.bool_)):
        return Number(Fraction(int(value)), zero)
    if isinstance(value, np.integer) or "int" in type(value).__name__:
        return Number(Fraction(int(value)), zero)
    if isinstance(value, np.complexfloating) or "complex" in type(value).__name__:
        value = value if isinstance(value, np.clongdouble) else np.complex128(value)
        re, im = number(value.real), number(value.imag)
        if re.nan or im.nan:
            return Number(zero, zero, nan=True, parts=tuple(_part(p) for p in (re, im)))
        if not (re.finite and im.finite):
            # Complex infinities are the same if both of their parts are.
            return Number(zero, zero, inf=tuple(p.inf or p.re for p in (re, im)))
        return Number(re.re, im.re)
    if not isinstance(value, np.longdouble):
        value = float(value)
    if value != value:
        return Number(zero, zero, nan=True)
    if value in (math.inf, -math.inf):
        return Number(zero, zero, inf=(float(value), None))
    return Number(Fraction(*value.as_integer_ratio()), zero)


def _part(part: Number) -> Any:
    return "nan" if part.nan else part.inf[0] if part.inf else part.re


def _normal(inf: tuple[Any, Any]) -> tuple[Any, Any]:
    """A real infinity is a complex one with imaginary part 0."""
    parts = tuple(0 if p in (None, Fraction(0)) else p for p in inf)
    return tuple(p[0] if isinstance(p, tuple) else p for p in parts)


def side(values: Sequence[Number], *, is_complex: bool) -> dict[str, float]:
    """min, max, mean, std, rms, abs_max of the finite values, and the counts of the others."""
    finite = [v.magnitude if is_complex else v.re for v in values if v.finite]
    counts = {"nan": sum(v.nan for v in values), "inf": sum(v.inf is not None for v in values)}
    if not finite:
        return {**dict.fromkeys(("min", "max", "mean", "std", "rms", "abs_max"), math.nan), **counts}
    n = len(finite)
    mean = sum(finite, Fraction(0)) / n
    return {
        "min": rounded(min(finite)),
        "max": rounded(max(finite)),
        "mean": rounded(mean),
        "std": rounded(root(sum(((v - mean) ** 2 for v in finite), Fraction(0)) / n)),
        "rms": rounded(root(sum((v**2 for v in finite), Fraction(0)) / n)),
        "abs_max": rounded(max(map(abs, finite))),
        **counts,
    }


def measure(reference: np.ndarray, candidate: np.ndarray, *, limit: float | None = None) -> dict[str, Any]:
    """Every statistic by its definition, as a dictionary."""
    a = [number(reference[i]) for i in np.ndindex(reference.shape)]
    b = [number(candidate[i]) for i in np.ndindex(candidate.shape)]
    both_finite = [(x, y) for x, y in zip(a, b, strict=True) if x.finite and y.finite]
    is_equal_inf = [
        x.inf is not None and y.inf is not None and _normal(x.inf) == _normal(y.inf) for x, y in zip(a, b, strict=True)
    ]
    nan_both = sum(x.nan and y.nan and x.parts == y.parts for x, y in zip(a, b, strict=True))
    comparable = len(both_finite) + sum(is_equal_inf)
    zero = Fraction(0)
    differences: list[Fraction | None] = []
    for x, y, inf in zip(a, b, is_equal_inf, strict=True):
        if x.finite and y.finite:
            differences.append(root((x.re - y.re) ** 2 + (x.im - y.im) ** 2) if x.im or y.im else abs(x.re - y.re))
        else:
            differences.append(zero if inf else None)
    known = [d for d in differences if d is not None]
    result: dict[str, Any] = {
        "count": len(a),
        "nan_both": nan_both,
        "nonfinite_mismatched": len(a) - comparable - nan_both,
        "differing": sum(d != 0 for d in known),
        "beyond_limit": None if limit is None else sum(rounded(d) > limit for d in known),
        "octaves": tuple(sorted(Counter(octave(d) for d in known if d).items())),
    }
    is_complex = any("complex" in array.dtype.name for array in (reference, candidate))
    result["reference"] = side(a, is_complex="complex" in reference.dtype.name or is_complex)
    result["candidate"] = side(b, is_complex="complex" in candidate.dtype.name or is_complex)
    if not known:
        nothing = 0.0 if not a else math.nan
        names = ("max_abs", "mean_abs", "min_abs", "rmse", "max_rel", "mean_rel", "rel_l2", "cosine_distance")
        return {**result, **dict.fromkeys(names, nothing), "worst": None}
    n = len(known)
    relative = [_relative(d, x.magnitude) for d, x in zip(differences, a, strict=True) if d is not None]
    squares = sum((d**2 for d in known), zero)
    norm_a = root(sum((x.re**2 + x.im**2 for x, _ in both_finite), zero))
    norm_b = root(sum((y.re**2 + y.im**2 for _, y in both_finite), zero))
    inner = sum((x.re * y.re + x.im * y.im for x, y in both_finite), zero)
    rounded_differences = [-1.0 if d is None else rounded(d) for d in differences]
    at = rounded_differences.index(max(rounded_differences))
    return {
        **result,
        "max_abs": rounded(max(known)),
        "mean_abs": rounded(sum(known, zero) / n),
        "min_abs": rounded(min(known)),
        "rmse": rounded(root(squares / n)),
        "max_rel": math.inf if None in relative else rounded(max(relative)),
        "mean_rel": math.inf if None in relative else rounded(sum(relative, zero) / n),
        "rel_l2": 0.0 if squares == 0 else math.inf if norm_a == 0 else rounded(root(squares) / norm_a),
        "cosine_distance": (
            0.0 if norm_a == norm_b == 0 else 1.0 if 0 in (norm_a, norm_b) else rounded(1 - inner / (norm_a * norm_b))
        ),
        "worst": tuple(int(i) for i in np.unravel_index(at, reference.shape)),
    }


def _relative(difference: Fraction, reference: Fraction) -> Fraction | None:
    """|difference| / |reference|, None where that is infinite."""
    if difference == 0:
        return Fraction(0)
    return difference / reference if reference else None


def octave(value: Fraction) -> int:
    """e with 2^e <= value < 2^(e+1), of the value rounded to float64 (as it is where float64 ends)."""
    near = rounded(value)
    if 0 < near < math.inf:
        value = Fraction(near)
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if value >= Fraction(2) ** e else e - 1


# Mantissa bits and smallest normal exponent of the wide floating dtypes; narrow ones are simply listed.
FORMATS = {"float64": (52, -1022), "float32": (23, -126), "float16": (10, -14), "bfloat16": (7, -126)}


def ordinal(value: Fraction, dtype: np.dtype) -> int:
    """The number of the value when all values of the dtype are counted outwards from zero."""
    if dtype.name not in FORMATS:
        patterns = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
        return sorted({Fraction(v) for v in patterns.tolist() if math.isfinite(v)}).index(value)
    mantissa, lowest = FORMATS[dtype.name]
    size = abs(value)
    if size < Fraction(2) ** lowest:
        steps = size / Fraction(2) ** (lowest - mantissa)
    else:
        e = octave(size)
        steps = (e - lowest + size / Fraction(2) ** e) * 2**mantissa
    assert steps.denominator == 1, "the value does not belong to the dtype"
    return int(steps) if value >= 0 else -int(steps)


def ulp(reference: np.ndarray, candidate: np.ndarray, component: np.dtype) -> tuple[float, float]:
    """Largest and mean ULP distance over the comparable components; there must be at least one."""
    distances = []
    for i in np.ndindex(reference.shape):
        x, y = number(reference[i]), number(candidate[i])
        parts = 2 if "complex" in reference.dtype.name else 1
        if x.finite and y.finite:
            for part in ("re", "im")[:parts]:
                distances.append(abs(ordinal(getattr(x, part), component) - ordinal(getattr(y, part), component)))
        elif x.inf is not None and y.inf is not None and _normal(x.inf) == _normal(y.inf):
            distances.extend([0] * parts)
    return float(max(distances)), float(Fraction(sum(distances), len(distances)))
