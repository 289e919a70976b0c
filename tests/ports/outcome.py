"""One case run through `align_models` and graded by what its table asks."""

from __future__ import annotations

import re
import time
import traceback
import warnings
from dataclasses import asdict, dataclass
from typing import Any

from ports.check import crossed
from ports.exchanged import Exchanged, port_of
from ports.pair import batch, make_pair
from ports.planting import Mistake, plant
from ports.port import Formulation, Port
from ports.tables import all_exchanged, all_mistakes, all_ports, all_stated, half
from reprod_log import align_models
from reprod_log.alignment import Alignment
from reprod_log.errors import ReprodLogError
from reprod_log.recording import Key

PASSED, FAILED, REFUSED, BROKEN = "passed", "failed", "refused", "broken"
TABLES = ("correct", "exchanged", "mistakes", "stated")


@dataclass(frozen=True)
class Case:
    """What is run: a row of a table, one formulation, one seed, one direction."""

    table: str
    name: str
    formulation: str = ""
    seed: int = 0
    swapped: bool = False
    """Whether paddle is the reference."""

    @property
    def half(self) -> str:
        if self.table == "mistakes":
            return half(all_mistakes()[self.name].port)
        return half(all_stated()[self.name].port if self.table == "stated" else self.name)

    def __str__(self) -> str:
        form = f"/{self.formulation}" if self.formulation else ""
        return f"{self.table} {self.name}{form} seed {self.seed}{' (paddle is the reference)' if self.swapped else ''}"


@dataclass(frozen=True)
class Outcome:
    case: Case
    result: str
    """passed, failed, refused (an error of the tool's own), broken (any other exception)."""
    grades: tuple[str, ...]
    """What the table asks.
    correct: causes named.
    mistakes: found, and placed or at least enclosing (the module around the place is named).
    stated: right (it passes if and only if what was stated is right) or wrong.
    exchanged: told (does not pass and the crossing is named), unnamed (does not pass, no word about it), shown (passes,
    with the crossing in the report), silent (passes without a word).
    """
    first: str = ""
    """The first divergence, or the error."""
    causes: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "half": self.case.half}


def run(case: Case) -> Outcome:
    warnings.filterwarnings("ignore")
    start = time.perf_counter()
    try:
        alignment, line = _aligned(case)
    except ReprodLogError as error:
        # Refusing is neither finding a mistake nor telling a crossing; it answers only a wrong statement.
        right = case.table == "stated" and not all_stated()[case.name].correct
        grades = ("right",) if right else ("wrong",) if case.table == "stated" else ()
        return Outcome(case, REFUSED, grades, _short(error), seconds=time.perf_counter() - start)
    except Exception:  # one case must not end the run
        return Outcome(case, BROKEN, (), traceback.format_exc(limit=-4), seconds=time.perf_counter() - start)
    seconds = time.perf_counter() - start
    causes = tuple(f"{one.confidence}: {one.cause}" for one in alignment.findings if one.kind == "cause")
    result = PASSED if alignment.passed else FAILED
    return Outcome(case, result, _grades(case, alignment, causes, line), first_key(alignment), causes, seconds)


def _aligned(case: Case) -> tuple[Alignment, str]:
    """The alignment, and the file and line of a planted mistake."""
    if case.table == "exchanged":
        port = port_of(all_exchanged()[case.name])
        return align(port, port.formulations[0], case.seed), ""
    if case.table == "mistakes":
        mistake = all_mistakes()[case.name]
        port = all_ports()[mistake.port]
        planted = plant(mistake, port)
        return align(port, planted.formulation, case.seed), planted.line
    if case.table == "stated":
        row = all_stated()[case.name]
        port = all_ports()[row.port]
        formulation = port.formulation(row.formulation)
        if row.crossed is not None:
            formulation = crossed(formulation, *row.crossed)
        return align(port, formulation, case.seed, loaded=row.loaded, rename=dict(row.rename) or None), ""
    port = all_ports()[case.name]
    return align(port, port.formulation(case.formulation), case.seed, swapped=case.swapped), ""


def align(
    port: Port,
    formulation: Formulation,
    seed: int,
    *,
    swapped: bool = False,
    loaded: bool = False,
    rename: dict[str, str] | None = None,
) -> Alignment:
    """Both models into `align_models`, the candidate fresh unless it was loaded by hand."""
    ours, theirs = make_pair(port, formulation, seed, loaded=loaded or swapped)
    if swapped:
        # paddle's model has the weights; torch's is made anew, with others.
        ours, _ = make_pair(port, formulation, seed + 500, loaded=False)
    batches = [batch(port, seed + 50 * number) for number in range(port.steps)]
    inputs = [one for one, _ in batches]
    targets = None if port.targets is None else [one for _, one in batches]
    both = {
        name: (given[0], getattr(formulation, name) or given[1]) if (given := getattr(port, name)) else None
        for name in ("loss", "optimizer", "step")
    }
    sides = (theirs, ours) if swapped else (ours, theirs)
    return align_models(
        *sides,
        inputs,
        targets=targets,
        **{name: pair[::-1] if swapped and pair else pair for name, pair in both.items()},
        transfer=not loaded,
        rename=rename,
    )


def first_key(alignment: Alignment) -> str:
    if alignment.passed:
        return ""
    first = alignment.first_divergence
    failed = (str(one.key) for one in alignment.verdict.judgements if not one.status.passed)
    return str(first.key) if first is not None else next(failed, "")


def _grades(case: Case, alignment: Alignment, causes: tuple[str, ...], line: str) -> tuple[str, ...]:
    if case.table == "correct":
        return ("causes named",) if causes else ()
    if case.table == "stated":
        return ("right",) if alignment.passed == all_stated()[case.name].correct else ("wrong",)
    if case.table == "exchanged":
        named = names_crossing(str(alignment), all_exchanged()[case.name])
        if alignment.passed:
            return ("shown",) if named else ("silent",)
        return ("told",) if named else ("unnamed",)
    if alignment.passed:
        return ()
    mistake = all_mistakes()[case.name]
    if placed(mistake, alignment, line):
        return "found", "placed"
    path = Key.parse(first_key(alignment)).path
    inside = path and any(place.startswith(f"{path}.") for place in mistake.place)
    return ("found", "enclosing") if inside else ("found",)


def placed(mistake: Mistake, alignment: Alignment, line: str) -> bool:
    """Whether the first divergence is at the mistake's place, or the report has the very line of the program."""
    if line in str(alignment):
        return True
    key = Key.parse(first_key(alignment))
    if key.phase == "loss":
        return "loss" in mistake.place
    path = key.path
    if mistake.updates and key.phase in ("forward", "backward", "gradient") and key.step == 0:
        return False
    return any(path == place or (place and path.startswith(f"{place}.")) for place in mistake.place)


def names_crossing(text: str, row: Exchanged) -> bool:
    """Whether one line of the report says that a layer of the reference goes with the other layer of the candidate."""
    return any(_names(line, *pair) for line in text.splitlines() for pair in row.crossing)


def _names(line: str, ours: str, theirs: str) -> bool:
    return all(re.search(_word(name), line) for name in (ours, theirs))


def _word(name: str) -> str:
    leaf = re.escape(name.rpartition(".")[2])
    if len(leaf) > 2:
        return rf"(?<!\w){leaf}(?!\w)"
    # A single letter is a word of its own in a sentence: it must be quoted, or stand at an arrow.
    return rf"['\"`]{leaf}['\"`]|(?<!\w){leaf} (?:→|->|=)|(?:→|->|=) {leaf}(?!\w)"


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
