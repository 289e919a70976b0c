"""Policy: the limits a comparison is held to, fixed or calibrated, and what is deliberately let through."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from reprod_log.errors import UsageError, near_pattern
from reprod_log.measure.comparison import Comparison
from reprod_log.measure.metrics import metric
from reprod_log.messages import Message, message
from reprod_log.recording.plain import Plain


def patterns(given: str | Iterable[str], *, name: str) -> tuple[str, ...]:
    """The patterns one by one; a single text is one pattern, not its letters, one of which may be a star.

    `name` is what the caller calls them, for the message about something that is none.
    """
    found = (given,) if isinstance(given, str) else tuple(given)
    wrong = [one for one in found if not isinstance(one, str)]
    if wrong:
        raise UsageError(f"{name} takes patterns of keys such as '*running_var*', not {wrong[0]!r}")
    return found


ABSOLUTE = ("max_abs", "mean_abs")
"""Limits beyond which elements are counted; the first that is given."""
EXACT_KINDS = ("int", "uint", "bool", "str", "object")


@dataclass(frozen=True)
class Limit(Plain):
    """`metric` must not exceed `value`, for entries whose key and dtype match the patterns `keys` and `dtype`."""

    metric: str
    value: float
    keys: str = "*"
    dtype: str = "*"
    reason: Message | str = field(default="", compare=False)
    """Where the number comes from; text is the user's own, or from a file of the first edition."""

    def __post_init__(self) -> None:
        metric(self.metric)
        if not isinstance(self.value, (int, float)) or math.isnan(self.value) or self.value < 0:
            raise UsageError(f"a limit must be a number of at least 0, not {self.value!r} (for {self.metric})")

    @property
    def specificity(self) -> int:
        """3 when it names keys, 2 when it names a dtype, 1 a family of dtypes (`int*`), 0 when it is general."""
        if self.keys != "*":
            return 3
        return 0 if self.dtype == "*" else 1 if "*" in self.dtype else 2

    def fits(self, key: str, dtype: str) -> bool:
        # Most limits hold for all keys; a pattern takes longer to ask than a small tensor takes to measure.
        return (self.keys == "*" or fnmatchcase(key, self.keys)) and (
            self.dtype == "*" or fnmatchcase(dtype, self.dtype)
        )

    @classmethod
    def parse(cls, text: str) -> Limit:
        """The limit written as `mean_abs:1e-6`, `loss_*=mean_abs:1e-5` or `float16/max_abs:1e-2`."""
        keys, _, rest = text.rpartition("=")
        dtype, _, rest = rest.rpartition("/")
        name, colon, value = rest.partition(":")
        try:
            if not colon:
                raise ValueError
            number = float(value)
        except ValueError:
            raise UsageError(
                f"cannot read the limit {text!r}: write METRIC:VALUE, e.g. mean_abs:1e-6, "
                "or KEYS=METRIC:VALUE, e.g. 'loss_*=mean_abs:1e-5'"
            ) from None
        return cls(name, number, keys=keys or "*", dtype=dtype or "*", reason=message("reason.limit.given"))


def _ulp(count: int, dtype: str) -> Message:
    return message("reason.limit.ulp", count=count, dtype=dtype)


DEFAULT_LIMITS = (
    Limit("mean_abs", 1e-6, reason=message("reason.limit.guides.mean")),
    # Half precision is judged relative to the values: rounding of one operation is 2^-11 (float16) and 2^-9 (bfloat16)
    # of the value; a layer adds a few of them, so two and four ulp (2^-10, 2^-8) of the tensor's norm are allowed.
    Limit("rel_l2", 2 * 2.0**-10, dtype="float16", reason=_ulp(2, "float16")),
    Limit("rel_l2", 4 * 2.0**-8, dtype="bfloat16", reason=_ulp(4, "bfloat16")),
    # float8 has 3 (e4m3) or 2 (e5m2) bits: one ulp of the norm.
    Limit("rel_l2", 2.0**-3, dtype="float8_e4m3*", reason=_ulp(1, "float8 e4m3")),
    Limit("rel_l2", 2.0**-3, dtype="float8_e3m4*", reason=message("reason.limit.finer")),
    Limit("rel_l2", 2.0**-2, dtype="float8_e5m2*", reason=_ulp(1, "float8 e5m2")),
    Limit("rel_l2", 0.5, dtype="float8_e8m0*", reason=message("reason.limit.powers")),
    # Integers, flags and text carry no rounding.
    *(Limit("max_abs", 0.0, dtype=f"{kind}*", reason=message("reason.limit.exact")) for kind in EXACT_KINDS),
)
"""The most specific limits that fit an entry hold: those that name its key, else its dtype, else the general ones."""


def _is_replaced(default: Limit, own: Iterable[Limit]) -> bool:
    """Whether the user gave another limit for what this default covers: for its dtype, or for everything."""
    exact = default.dtype.rstrip("*") in EXACT_KINDS
    return any(
        limit.keys == "*" and (not exact if limit.dtype == "*" else fnmatchcase(default.dtype, limit.dtype))
        for limit in own
    )


def _check_shares(limits: Iterable[Limit]) -> None:
    """Raise where a share of the elements is limited, but not what they are to be beyond."""
    sized = {(limit.keys, limit.dtype) for limit in limits if limit.metric in ABSOLUTE}
    for limit in limits:
        if limit.metric == "share_beyond" and (limit.keys, limit.dtype) not in sized:
            text = f"share_beyond:{limit.value:g}"
            raise UsageError(
                f"{text} (for keys {limit.keys!r}, dtype {limit.dtype!r}) does not say beyond what: give the mean or "
                "largest difference as well, for the same keys and dtype, e.g. mean_abs:1e-3"
            )


@dataclass(frozen=True, kw_only=True)
class _Loosened(Plain):
    """What any policy may let through. Each of these is shown."""

    equal_nan: bool = False
    """Whether NaN on both sides at the same place counts as equal."""
    allow_unmatched: tuple[str, ...] = ()
    """Patterns of keys that may lack a partner."""
    accept: tuple[str, ...] = ()
    """Patterns of keys whose difference is known and accepted; they pass and are marked."""
    allow_incomplete: bool = False
    """Whether a recording that was cut short may pass with what it has."""
    allow_unproven: bool = False
    """Whether a pass that proves nothing may pass all the same; the doubts are shown."""

    def __post_init__(self) -> None:
        for name in ("allow_unmatched", "accept"):
            object.__setattr__(self, name, patterns(getattr(self, name), name=name))

    def allows_unmatched(self, key: str) -> bool:
        return any(fnmatchcase(key, pattern) for pattern in self.allow_unmatched)


@dataclass(frozen=True)
class Policy(_Loosened):
    """How measurements become statuses by fixed limits."""

    limits: tuple[Limit, ...] = DEFAULT_LIMITS
    name: str = "fixed limits"

    def __post_init__(self) -> None:
        super().__post_init__()
        given = (self.limits,) if isinstance(self.limits, (str, Limit)) else self.limits
        limits = tuple(Limit.parse(one) if isinstance(one, str) else one for one in given)
        object.__setattr__(self, "limits", limits)
        _check_shares(limits)

    @classmethod
    def fixed(
        cls,
        limits: str | Iterable[Limit | str] = (),
        *,
        equal_nan: bool = False,
        allow_unmatched: str | Iterable[str] = (),
        accept: str | Iterable[str] = (),
        allow_incomplete: bool = False,
        allow_unproven: bool = False,
    ) -> Policy:
        """The given limits, and the defaults for what they do not cover. Exact kinds stay exact unless named."""
        limits = (limits,) if isinstance(limits, str) else limits
        own = tuple(Limit.parse(limit) if isinstance(limit, str) else limit for limit in limits)
        return cls(
            limits=(*(one for one in DEFAULT_LIMITS if not _is_replaced(one, own)), *own),
            equal_nan=equal_nan,
            allow_unmatched=patterns(allow_unmatched, name="allow_unmatched"),
            accept=patterns(accept, name="accept"),
            allow_incomplete=allow_incomplete,
            allow_unproven=allow_unproven,
        )

    def limits_for(self, key: str, dtype: str) -> dict[str, Limit]:
        """The limit that holds for each metric: of the most specific ones that fit, the last."""
        # Nothing is more specific than a limit that names keys; what the others say depends on the dtype alone.
        own = {limit.metric: limit for limit in self._of_keys if limit.fits(key, dtype)}
        return own or self._of_dtype(dtype)

    @cached_property
    def _of_keys(self) -> tuple[Limit, ...]:
        return tuple(limit for limit in self.limits if limit.keys != "*")

    def _of_dtype(self, dtype: str) -> dict[str, Limit]:
        found = self._known.get(dtype)
        if found is None:
            fitting = [limit for limit in self.limits if limit.keys == "*" and limit.fits("", dtype)]
            level = max((limit.specificity for limit in fitting), default=0)
            found = {limit.metric: limit for limit in fitting if limit.specificity == level}
            self._known[dtype] = found
        return found

    @cached_property
    def _known(self) -> dict[str, dict[str, Limit]]:
        return {}


_MOST_FLOORS = 1e5
"""So many times the rounding of float32 is a hundredth of the values: a limit beyond it lets anything through."""


@dataclass(frozen=True)
class CalibratedPolicy(_Loosened):
    """How many noise floors an error may have. Beside each: the largest of correct ports / the smallest of defects."""

    isolated: float = 3.0
    """0.07 (1.83 in a survey of single operators) / 3.8."""
    free: float = 10.0
    """4.0 (all of it one framework's 1e-6 in gradient clipping; 0.08 without) / 112."""
    precision: float = 300.0
    """31 / 731."""
    without_float64: float = 30.0
    """The precision tier when the candidate cannot run in float64; kernels of low quality come near it."""
    suspect: float = 1e-7
    """Relative error in isolation, in float64, from which a passing layer is worth a look: another tiny constant."""
    noise_only: float = 0.05
    """A tensor whose own rounding is this share of it is rounding (true value 0) and not held to relative errors."""
    kink: float = 0.1
    """The largest share of a gradient that an activation on the other side of zero may move; 0.059 was seen."""
    lr: float = 1e-9
    """Learning rates are Python floats: they agree to this share of the largest rate, whatever the precision."""
    default: float = 300.0
    """Factor on the assumed floor when nothing was measured: weak, and reported as such."""
    name: str = "calibrated"

    def __post_init__(self) -> None:
        super().__post_init__()
        bounds = dict.fromkeys(("isolated", "free", "precision", "without_float64", "default"), _MOST_FLOORS)
        for name, most in {**bounds, **dict.fromkeys(("suspect", "noise_only", "kink", "lr"), 1.0)}.items():
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < most:
                raise UsageError(f"{name} of the calibrated policy must be from 0 to below {most:g}, not {value!r}")


@dataclass(frozen=True)
class UnusedPattern:
    """A pattern that fits no entry, the option that it was given to, and what it may have meant."""

    option: str
    pattern: str
    near: tuple[str, ...] = ()


def unused_patterns(comparison: Comparison, policy: Policy | CalibratedPolicy) -> tuple[UnusedPattern, ...]:
    """The patterns that were given and fit nothing in either recording."""
    compared = list(dict.fromkeys(str(row.key) for row in comparison.rows))
    alone = [str(one.key) for one in comparison.unmatched]
    theirs = [str(row.candidate_key) for row in comparison.rows]
    # A key that has its partner after all needs no leave to be alone: such a pattern is spelt right.
    everything = list(dict.fromkeys([*alone, *compared, *theirs]))
    found = [
        *_unused("--accept", policy.accept, [*compared, *alone]),
        *_unused("--allow-unmatched", policy.allow_unmatched, everything),
    ]
    if isinstance(policy, Policy):
        own = [limit for limit in policy.limits if limit not in DEFAULT_LIMITS]
        dtypes = list(
            dict.fromkeys(name for row in comparison.rows for name in (row.reference_dtype, row.candidate_dtype))
        )
        found += _unused("--limit", (limit.keys for limit in own), compared)
        found += _unused("--limit", (limit.dtype for limit in own), dtypes)
    return tuple(dict.fromkeys(found))


def _unused(option: str, patterns: Iterable[str], names: list[str]) -> list[UnusedPattern]:
    return [
        UnusedPattern(option, pattern, tuple(near_pattern(pattern, names)))
        for pattern in patterns
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in names)
    ]
