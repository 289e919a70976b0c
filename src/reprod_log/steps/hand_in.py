"""A hand-in: one folder with the logs of all steps, as the guides ask for it; found, paired and judged as a whole."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reprod_log.alignment import align
from reprod_log.errors import RecordingError, UsageError
from reprod_log.frameworks.installed import FRAMEWORKS, USUAL_REFERENCE
from reprod_log.messages import Foreign, Names, message
from reprod_log.recording import npy
from reprod_log.recording.stores import load
from reprod_log.steps import SUBJECTS
from reprod_log.steps.overview import Overview, StepResult
from reprod_log.steps.subject import Subject

_SIDES = {
    **dict.fromkeys(("ref", "reference", "origin", "official", "benchmark"), "reference"),
    **dict.fromkeys(("cand", "candidate", "port"), "candidate"),
    **{
        word: "reference" if framework.name == USUAL_REFERENCE else "candidate"
        for framework in FRAMEWORKS
        for word in (framework.name, *framework.words)
    },
}
"""The side that a word in a file's name means."""
_ENGINES = {"training_engine": "reference", "inference_engine": "candidate"}
_MANIFEST = "manifest.json"
_HANDED_IN = ("data", "forward", "metric", "loss", "backward", "training")
"""Steps of which the guides ask for logs; the others are checked by reading."""
_SUFFIXES = frozenset({".npy", ".npz", ".safetensors"})
_LAST_LINE = re.compile(r"diff check (passed|failed)")


@dataclass(frozen=True)
class Found:
    """A log file whose name has the side and the step it belongs to."""

    path: Path
    side: str
    subject: str
    """Its name without the word for the side, folders included."""


def check_folder(
    folder: Path, *, limits: Iterable[str] = (), trust: bool = False, allow_unproven: bool = False
) -> Overview:
    """Find the pairs of logs below `folder` by their names; judge each by the limits of its step (or by `limits`)."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; reprod check takes the folder with the logs of all steps")
    if (folder / _MANIFEST).is_file():
        raise UsageError(
            f"{folder} is one recording and not a folder of logs: `reprod show {folder}` shows it, "
            f"`reprod compare {folder} OTHER` compares it"
        )
    limits = tuple(limits)
    sides: dict[str, dict[str, list[Path]]] = {}
    seen = list(_paths(folder))
    if any(folder.iterdir()) and not seen:
        kinds = ", ".join(sorted(_SUFFIXES))
        raise UsageError(f"{folder} is not a submission: it has files, but no log ({kinds}) and no recording")
    logs = _logs(folder, seen)
    for found in logs:
        sides.setdefault(found.subject, {}).setdefault(found.side, []).append(found.path)
    order = {subject.name: place for place, subject in enumerate(SUBJECTS)}
    steps = [_step(folder, name, paths, limits, trust) for name, paths in sides.items()]
    if allow_unproven:
        steps = [step.allowing_unproven() for step in steps]
    steps.sort(key=lambda step: (order.get(step.subject.name if step.subject else "", len(order)), step.name))
    present = {step.subject.name for step in steps if step.subject}
    used = {found.path for found in logs}
    return Overview(
        "hand_in",
        str(folder),
        folder,
        tuple(steps),
        absent=tuple(name for name in _HANDED_IN if name not in present) if steps else (),
        unused=tuple(str(path.relative_to(folder)) for path in seen if path not in used),
    )


def _paths(folder: Path) -> Iterator[Path]:
    """Every file that may be a log, and every folder that is a recording, whose shards are not logs of their own."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        if _MANIFEST in files:
            folders.clear()
            yield here
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (path for name in sorted(files) if (path := here / name).suffix in _SUFFIXES and path.is_file())


def _logs(folder: Path, seen: Iterable[Path]) -> list[Found]:
    """Every file with a side in its name. A plain array is the user's data, unless both sides have one of that name."""
    logs: list[Found] = []
    arrays: list[Found] = []
    for path in seen:
        side, subject = _side_of(path.relative_to(folder))
        if side:
            (arrays if _is_plain_array(path) else logs).append(Found(path, side, subject))
    sides: dict[str, set[str]] = {}
    for one in arrays:
        sides.setdefault(one.subject, set()).add(one.side)
    return sorted([*logs, *(one for one in arrays if len(sides[one.subject]) > 1)], key=lambda one: one.path)


def _is_plain_array(path: Path) -> bool:
    """Whether a `.npy` holds an array (fake data, weights) instead of a log; a broken file counts as a log."""
    if path.suffix != ".npy":
        return False
    with open(path, "rb") as file:
        head = file.read(256)
    return head.startswith(npy.MAGIC) and b"'descr'" in head and b"|O" not in head


def _side_of(path: Path) -> tuple[str, str]:
    """Which side a log belongs to by its own name (else by its folder's), and the name without that word."""
    parts = [*path.parent.parts, path.stem if path.suffix in _SUFFIXES else path.name]
    cleaned, sides = [], []
    for part in parts:
        side, rest = _strip_side(part)
        sides.append(side)
        cleaned.append(rest)
    side = next((one for one in reversed(sides) if one), "")
    # `ref.npz` and `cand.npz` have nothing but their sides in their names.
    return side, "/".join(part for part in cleaned if part) or "log"


def _strip_side(name: str) -> tuple[str, str]:
    for engine, side in _ENGINES.items():
        if engine in name:
            return side, name.replace(engine, "").strip("_-. ")
    words = re.split(r"([_\-. ])", name)
    side = ""
    kept = []
    for word in words:
        if word.lower() in _SIDES:
            side = _SIDES[word.lower()]
        else:
            kept.append(word)
    return side, re.sub(r"[_\-. ]{2,}", "_", "".join(kept)).strip("_-. ")


def _subject_of(name: str) -> Subject | None:
    """The step that a name means: the last word of the file's own name that a step knows, else of its folders'."""
    for part in reversed(name.split("/")):
        words = re.split(r"[_\-. ]", part.lower())
        # 'train_align' is training, 'bp_align' backward; 'step4' alone means nothing.
        for word in words:
            for subject in SUBJECTS:
                if word in subject.words:
                    return subject
    return None


def _step(folder: Path, name: str, paths: dict[str, list[Path]], limits: tuple[str, ...], trust: bool) -> StepResult:
    subject = _subject_of(name)
    references, candidates = paths.get("reference", []), paths.get("candidate", [])
    reference = references[0] if references else None
    candidate = candidates[0] if candidates else None
    published = _published(reference or candidate)
    if reference is None or candidate is None:
        missing = message("plan.no_log", side=message("candidate" if candidate is None else "reference"))
        return StepResult(name, subject, reference, candidate, problem=missing, published=published)
    if len(references) > 1 or len(candidates) > 1:
        several = references if len(references) > 1 else candidates
        names = Names(str(path.relative_to(folder)) for path in several)
        return StepResult(name, subject, reference, candidate, problem=message("plan.several_logs", names=names))
    try:
        sides = load(reference, trust=trust), load(candidate, trust=trust)
        alignment = subject.compare(*sides, limits=limits) if subject else align(*sides, limits=limits)
    except RecordingError as error:
        problem = message("text", text=Foreign(error))
        return StepResult(name, subject, reference, candidate, problem=problem, published=published)
    return StepResult(name, subject, reference, candidate, alignment, published=published)


def _published(log: Path | None) -> str:
    """The last verdict in the diff log that lies beside a log, when its name begins alike."""
    if log is None:
        return ""
    _, stem = _strip_side(log.stem)
    for place in (log.parent, log.parent.parent):
        for path in sorted(place.glob("*diff*")):
            if path.suffix in (".log", ".txt") and path.stem.startswith(stem) and path.is_file():
                with open(path, encoding="utf-8", errors="replace") as file:
                    verdicts = _LAST_LINE.findall(file.read(1 << 22))
                if verdicts:
                    return str(verdicts[-1])
    return ""
