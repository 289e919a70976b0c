"""Alignment: the verdict with everything behind it, as a value and as a JSON file.

In the file each row has a line, so that two saved alignments can be compared with `diff`. docs/formats.md describes it.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from reprod_log.diagnose import Case, Finding, diagnose_again
from reprod_log.errors import NotAligned, UnreadableFile, readable_size
from reprod_log.measure.comparison import Compared, Comparison
from reprod_log.measure.picture import Picture
from reprod_log.messages import Message
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.saved_map import map_from_dict, map_to_dict
from reprod_log.recording import Key
from reprod_log.recording.files import replacing
from reprod_log.recording.plain import Plain, from_plain
from reprod_log.recording.recording import Source
from reprod_log.verdict import (
    CalibratedPolicy,
    Judgement,
    NoiseFloor,
    Policy,
    Status,
    Verdict,
    verdict_of,
)

SCHEMA = "reprod_log alignment"
SCHEMA_VERSION = 2
"""1: sentences as English text alone; 2: with the ids and arguments that they are made from beside them."""
_NONFINITE = "nonfinite"
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
_GZIP, _MOST_TIMES, _MOST_PLAIN = b"\x1f\x8b", 200, 1 << 26
"""A packed file may grow 200-fold, or to 64 MB; a saved alignment shrinks to a seventh."""
_TEXT, _NOTEBOOK = "reprod_log.report.formats.text", "reprod_log.report.notebook"
"""What shows an alignment, looked up when one is shown: reports are made of alignments, so this room imports none."""


_MOST_EARLIER = 200


@dataclass(frozen=True)
class Earlier(Plain):
    """How an alignment came out that a later one of the same two sides has replaced."""

    time: str
    """When its candidate was recorded."""
    status: Status
    passing: int
    total: int


@dataclass(frozen=True)
class Alignment:
    """Verdict, measurements, findings, provenance and policy: the only input of reports."""

    reference: Source
    candidate: Source
    comparison: Comparison
    policy: Policy | CalibratedPolicy
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    floor: NoiseFloor | None = None
    """What rounding alone does, when the recordings tell."""
    weight_map: WeightMap | None = None
    """From which weights of the reference each of the candidate's comes, when live models agree under it."""
    pictures: Mapping[Key, Picture] = field(default_factory=dict, compare=False, repr=False)
    """Tensors to look at, by the reference's key: of what does not pass, as far as there is room. Not saved."""
    history: tuple[Earlier, ...] = field(default=(), compare=False)
    """How earlier alignments of the same two sides came out, the oldest first."""
    since: tuple[Message, ...] = field(default=(), compare=False)
    """What changed since the last of them, the summary first."""

    def __post_init__(self) -> None:
        # Here, so that no way of making an alignment passes with a doubt in it.
        if self.doubts and not self.policy.allow_unproven:
            object.__setattr__(self, "verdict", self.verdict.unless_passed(Status.UNPROVEN))

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """Why a pass would prove nothing."""
        return tuple(one for one in self.findings if one.kind == "doubt")

    @property
    def passed(self) -> bool:
        """True only if something was compared, everything passed, nothing was left over, and there is no doubt."""
        return self.verdict.passed

    @property
    def status(self) -> Status:
        return self.verdict.status

    @property
    def first_divergence(self) -> Judgement | None:
        """The earliest entry in execution order that failed."""
        return self.verdict.first_divergence

    @property
    def case(self) -> Case:
        """What hypotheses see of it; without the recordings, which an alignment does not hold."""
        return Case(self.reference, self.candidate, self.comparison, self.policy, self.verdict, self.floor)

    def row(self, key: Key | str) -> Compared | None:
        """What was measured for `key`; None for unmatched keys."""
        return next((row for row in self.comparison.rows if row.key == key), None)

    def raise_if_failed(self) -> None:
        """Raise NotAligned with the first screen of the report as its text, unless this passed."""
        if not self.passed:
            raise NotAligned(_rendered(self, _TEXT))

    @property
    def _complete(self) -> bool:
        return self.reference.complete and self.candidate.complete

    def judged_by(self, policy: Policy | CalibratedPolicy) -> Alignment:
        """The same measurements under another policy."""
        verdict = verdict_of(self.comparison, policy, self.floor, self._complete)
        findings = diagnose_again(replace(self.case, policy=policy, verdict=verdict), self.findings)
        return replace(self, policy=policy, verdict=verdict, findings=findings, since=())

    def after(self, before: Alignment, changes: Iterable[Message]) -> Alignment:
        """The same, with how `before` and those before it came out, and what changed since."""
        passing = sum(one.status.passed for one in before.verdict.judgements)
        time = before.candidate.provenance.time
        earlier = Earlier(time, before.status, passing, len(before.verdict.judgements))
        return replace(self, history=(*before.history, earlier)[-_MOST_EARLIER:], since=tuple(changes))

    @property
    def trend(self) -> tuple[int, ...]:
        """How many entries did not pass in earlier alignments of the same two sides, and how many do not now."""
        failing = sum(not one.status.passed for one in self.verdict.judgements)
        return (*(one.total - one.passing for one in self.history), failing)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values. The verdict is written for readers; reading back judges again."""
        return {
            "schema": SCHEMA,
            "version": SCHEMA_VERSION,
            "status": str(self.status),
            "passed": self.passed,
            "first_divergence": str(self.first_divergence.key) if self.first_divergence else None,
            "reference": self.reference.to_dict(),
            "candidate": self.candidate.to_dict(),
            "policy": self.policy.to_dict(),
            "judgements": [one.to_dict() for one in self.verdict.judgements],
            "allowed_unmatched": [str(key) for key in self.verdict.allowed],
            "findings": [finding.to_dict() for finding in self.findings],
            "comparison": self.comparison.to_dict(),
            "floor": None if self.floor is None else self.floor.to_dict(),
            "weight_map": None if self.weight_map is None else map_to_dict(self.weight_map),
            "history": [one.to_dict() for one in self.history],
            "since": [one.to_dict() for one in self.since],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, source: str = "saved alignment") -> Alignment:
        """The alignment that `to_dict` described, judged again by its own policy."""
        if data.get("schema") != SCHEMA:
            raise UnreadableFile(
                f"{source} is not a saved alignment: its schema is {data.get('schema')!r} and not {SCHEMA!r}. "
                "`reprod compare REF CAND --json FILE` makes one."
            )
        if not isinstance(data.get("version"), int) or data["version"] > SCHEMA_VERSION:
            raise UnreadableFile(
                f"{source} has schema version {data.get('version')!r}, this reprod_log reads up to {SCHEMA_VERSION}"
            )
        try:
            comparison = Comparison.from_dict(data["comparison"])
            calibrated = data["policy"]["name"] == CalibratedPolicy.name
            policy = CalibratedPolicy.from_dict(data["policy"]) if calibrated else Policy.from_dict(data["policy"])
            floor = NoiseFloor.from_dict(data["floor"]) if data.get("floor") is not None else None
            reference, candidate = Source.from_dict(data["reference"]), Source.from_dict(data["candidate"])
            findings = tuple(Finding.from_dict(one) for one in data["findings"])
            # Files of earlier versions have none.
            weights = map_from_dict(data["weight_map"]) if data.get("weight_map") is not None else None
            for finding in findings:
                from_plain(Finding, finding)
            verdict = verdict_of(comparison, policy, floor, reference.complete and candidate.complete)
            history = tuple(Earlier.from_dict(one) for one in data.get("history", ()))
            since = tuple(map(Message.from_dict, data.get("since", ())))
            parts = reference, candidate, comparison, policy, verdict, findings, floor, weights
            found = cls(*parts, history=history, since=since)
            if found.passed and not Status(data["status"]).passed:
                raise ValueError(
                    f"its numbers pass and its status is {data['status']}: a part was changed or is missing"
                )
            return found
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UnreadableFile(
                f"{source} is damaged ({what}): it is not as an alignment was saved. Save it again, with --json of "
                "reprod compare or with Alignment.save"
            ) from error

    def to_json(self) -> str:
        """All of it as the text of a JSON file."""
        return _laid_out(self.to_dict(), depth=2) + "\n"

    def save(self, path: str | Path) -> Path:
        """Write it as JSON, to be read back with `Alignment.load`; packed if its name ends in .gz."""
        path = Path(path)
        content = self.to_json().encode("utf-8", "surrogatepass")
        with replacing(path) as file:
            # Without the time of day, so that equal alignments are equal files.
            file.write(gzip.compress(content, 6, mtime=0) if path.suffix == ".gz" else content)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Alignment:
        """The alignment saved at `path`."""
        return cls.from_dict(_content(path), source=str(path))

    def __str__(self) -> str:
        return _rendered(self, _TEXT)

    def _repr_html_(self) -> str:
        return _rendered(self, _NOTEBOOK)


def _rendered(alignment: Alignment, by: str) -> str:
    text: str = import_module(by).render(alignment)
    return text


def _content(path: str | Path) -> dict[str, Any]:
    """What `to_json` wrote, as plain values."""
    if Path(path).is_dir():
        raise UnreadableFile(
            f"{path} is a folder, and a saved alignment is a JSON file: `reprod compare REF CAND --json FILE` makes "
            "one. For a recording use `reprod show`, for a folder of logs `reprod check`."
        )
    try:
        content = json.loads(_unpacked(Path(path).read_bytes()), object_hook=_decoded)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFile(f"cannot read {path}: {getattr(error, 'strerror', '') or error}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(
            f"{path} is not a saved alignment: it is not valid JSON ({error}). `reprod compare REF CAND --json FILE` "
            "makes one."
        ) from error
    if not isinstance(content, dict):
        raise UnreadableFile(f"{path} is not a saved alignment: it holds a {type(content).__name__}")
    return content


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    most = max(_MOST_PLAIN, _MOST_TIMES * len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise ValueError(f"it unpacks to more than {readable_size(most)}")
    return found


def _laid_out(value: Any, *, depth: int, indent: str = "") -> str:
    """Objects of the first levels field by field, lists in them item by item, everything deeper in one line."""
    inner = indent + " "
    if isinstance(value, dict) and value and depth:
        fields = (f"{_line(str(name))}: {_laid_out(one, depth=depth - 1, indent=inner)}" for name, one in value.items())
        return "{\n" + ",\n".join(inner + field for field in fields) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join(inner + _line(one) for one in value) + f"\n{indent}]"
    return _line(value)


def _line(value: Any) -> str:
    try:
        text = _ENCODER.encode(value)
    except ValueError:
        text = _ENCODER.encode(_encoded(value))
    # A lone surrogate (a key that is not text) cannot be written as UTF-8; JSON's own escape can hold it.
    return text if text.isascii() else "".join(c if not 0xD800 <= ord(c) < 0xE000 else f"\\u{ord(c):04x}" for c in text)


def _encoded(value: Any) -> Any:
    """JSON has no NaN and no infinity, so they are written as {"nonfinite": "nan"}."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_NONFINITE: str(value)}
    if isinstance(value, dict):
        return {str(name): _encoded(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(one) for one in value]
    return value


def _decoded(value: dict[str, Any]) -> Any:
    if set(value) == {_NONFINITE} and value[_NONFINITE] in ("nan", "inf", "-inf"):
        return float(value[_NONFINITE])
    return value
