"""The noise floor from recordings made by hand: what is measured against what, and what it is called."""

import math
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprod_log.errors import UsageError
from reprod_log.measure.comparison import measure
from reprod_log.messages import message
from reprod_log.pairing import Pair, Pairing, match
from reprod_log.pairing.pairing import View
from reprod_log.recording import Array, Entry, Key, Recording, entry_of
from reprod_log.verdict import FloorEvidence, NoiseFloor, calibrate

KEY = "step0/forward/fc#0:output"
TRUTH = np.array([1.0, 2.0, 3.0])


def recording(runs: dict[str, Any], *, key: str = KEY, meta: dict[str, Any] | None = None) -> Recording:
    """One entry in several runs, each offset by a number."""
    entries = []
    for run, offset in runs.items():
        array = TRUTH + np.asarray(offset)
        array = array if "float64" in run else array.astype(np.float32)
        entries.append(entry_of(f"{run}@{key}" if run else key, array, meta=meta or {}))
    return Recording(tuple(entries))


def floor_of(reference: Recording, candidate: Recording) -> NoiseFloor:
    return calibrate(match(reference, candidate), reference=reference)


def errors(one: FloorEvidence) -> tuple[float | None, float | None, float | None]:
    """The mean errors of noise, float64 and float32, rounded."""
    found = [None if part is None else round(part.mean_abs, 3) for part in (one.noise, one.float64, one.float32)]
    return found[0], found[1], found[2]


def test_both_in_float64_gives_all_three_numbers() -> None:
    reference = recording({"": 0.01, "float64": 0.0})
    candidate = recording({"": 0.4, "float64": 0.02})
    floor = floor_of(reference, candidate)
    (one,) = floor.evidence
    assert errors(one) == (0.01, 0.02, 0.4)
    assert (one.key, one.mode, one.basis, one.reduction) == (KEY, "", "both in float64", 1)
    assert floor.basis == "both in float64"
    assert floor.notes == ()
    # The truth is the reference of each measurement.
    assert one.noise is not None
    assert one.noise.reference_dtype == "float64"
    assert one.noise.candidate_dtype == "float32"
    assert one.float32 is not None
    assert (one.float32.reference_dtype, one.float32.candidate_dtype) == ("float64", "float32")


def test_reference_alone_in_float64_leaves_the_candidate_in_its_own_precision() -> None:
    floor = floor_of(recording({"": 0.01, "float64": 0.0}), recording({"": 0.4}))
    (one,) = floor.evidence
    assert errors(one) == (0.01, None, 0.4)
    assert one.basis == floor.basis == "reference in float64"


def test_without_float64_the_worst_repeat_is_the_noise() -> None:
    reference = recording({"": 0.0, "repeat": 0.0, "perturbed1": 0.3, "perturbed2": 0.2})
    (one,) = floor_of(reference, recording({"": 0.5})).evidence
    assert errors(one) == (0.3, None, 0.5)
    assert one.basis == "repeats of the reference"
    (none,) = floor_of(recording({"": 0.0}), recording({"": 0.5})).evidence
    assert errors(none) == (None, None, 0.5)
    assert none.basis == "none"


def test_worst_repeat_is_the_one_with_the_largest_root_mean_square() -> None:
    reference = recording({"": 0.0, "perturbed1": np.array([0.3, 0.0, 0.0]), "perturbed2": 0.11})
    (one,) = floor_of(reference, recording({"": 0.0})).evidence
    assert one.noise is not None
    assert (one.noise.differing, round(one.noise.max_abs, 3)) == (1, 0.3)


def test_other_runs_are_no_repeats() -> None:
    reference = recording({"": 0.0, "other": 0.3})
    (one,) = floor_of(reference, recording({"": 0.0})).evidence
    assert one.noise is None


def test_repeats_speak_only_about_the_plain_run() -> None:
    reference = recording({"": 0.0, "isolated": 0.0, "repeat": 0.2})
    found = {one.mode: one for one in floor_of(reference, recording({"": 0.0, "isolated": 0.0})).evidence}
    assert found[""].basis == "repeats of the reference"
    assert found["isolated"].noise is None
    assert found["isolated"].basis == "none"


def test_modes_come_in_the_order_in_which_a_rule_looks_at_them() -> None:
    runs = {
        f"{mode}{dot}{wide}": 0.0 for mode in ("injected", "", "isolated") for dot, wide in (("", ""), (".", "float64"))
    }
    runs = {name.removeprefix("."): offset for name, offset in runs.items()}
    floor = floor_of(recording(runs), recording(runs))
    assert [one.mode for one in floor.evidence] == ["isolated", "", "injected"]
    assert [one.key for one in floor.evidence] == [f"isolated@{KEY}", KEY, f"injected@{KEY}"]
    assert {one.basis for one in floor.evidence} == {"both in float64"}
    assert floor.injected == {f"injected@{KEY}"}


def test_float64_of_another_mode_is_not_taken() -> None:
    floor = floor_of(recording({"isolated": 0.0, "float64": 0.0}), recording({"isolated": 0.0, "float64": 0.0}))
    (one,) = floor.evidence
    assert (one.mode, one.noise, one.basis) == ("isolated", None, "none")


def test_length_of_sums_is_taken_from_the_reference() -> None:
    reference = recording({"": 0.0}, meta={"terms": 64})
    (one,) = floor_of(reference, recording({"": 0.0}, meta={"terms": 3})).evidence
    assert one.reduction == 64


def test_reference_that_does_not_repeat_itself_is_named_once() -> None:
    other = "step0/loss/loss"
    first, second = recording({"": 0.0, "repeat": 0.25}), recording({"": 0.0, "repeat": 0.5}, key=other)
    reference = Recording((*first.entries, *second.entries))
    candidate = Recording((*recording({"": 0.0}).entries, *recording({"": 0.0}, key=other).entries))
    floor = floor_of(reference, candidate)
    assert tuple(map(str, floor.notes)) == (f"the reference does not repeat itself: {KEY} differs by 0.25",)
    assert floor_of(recording({"": 0.0, "perturbed1": 0.25}), recording({"": 0.0})).notes == ()
    assert floor_of(recording({"": 0.0, "repeat": 0.0}), recording({"": 0.0})).notes == ()
    lost = recording({"": 0.0, "repeat": np.array([0.0, 0.0, math.nan])})
    (note,) = floor_of(lost, recording({"": 0.0})).notes
    assert str(note).startswith("the reference does not repeat itself")


def test_entries_that_cannot_be_measured_leave_a_gap() -> None:
    reference = Recording((entry_of(KEY, np.ones(3)), entry_of(f"repeat@{KEY}", np.ones(4))))
    floor = floor_of(reference, Recording((entry_of(KEY, np.ones(3)),)))
    (one,) = floor.evidence
    assert (one.noise, one.basis, floor.notes) == (None, "none", ())
    assert one.float32 is not None


def test_view_of_a_pair_is_kept_for_the_truth() -> None:
    weight = np.arange(6.0).reshape(2, 3)
    wide = entry_of(f"float64@{KEY}", weight)
    turned = Pair(
        entry_of(KEY, weight),
        entry_of(KEY, weight.T.copy()),
        "structure",
        0.5,
        View(message("view.transposed"), (1, 0)),
    )
    reference = Recording((turned.reference, wide))
    (one,) = calibrate(Pairing((turned,)), reference=reference).evidence
    assert one.float32 is not None
    assert one.float32.identical


def test_floor_without_float64_is_the_same_for_a_candidate_that_has_none() -> None:
    reference = recording({"": 0.01, "float64": 0.0})
    with_it = floor_of(reference, recording({"": 0.4, "float64": 0.02}))
    without = floor_of(reference, recording({"": 0.4}))
    assert with_it.without_float64() == without
    assert without.without_float64() == without
    assert NoiseFloor((FloorEvidence(Key("x"), ""),)).without_float64().basis == "none"
    noted = NoiseFloor(with_it.evidence, ("a note",))
    assert noted.without_float64().notes == ("a note",)


def test_best_evidence_names_the_floor() -> None:
    def floor(*names: Any) -> NoiseFloor:
        return NoiseFloor(tuple(FloorEvidence(Key("x"), "", basis=name) for name in names))

    assert floor().basis == "none"
    assert floor("none").basis == "none"
    assert floor("none", "repeats of the reference").basis == "repeats of the reference"
    assert floor("repeats of the reference", "reference in float64").basis == "reference in float64"
    assert floor("reference in float64", "both in float64").basis == "both in float64"


@pytest.mark.parametrize("part", ["noise", "float64", "float32"])
def test_injected_needs_a_measurement_and_noise(part: str) -> None:
    runs = {"injected": 0.1, "injected.float64": 0.0}
    (one,) = floor_of(recording(runs), recording(runs)).evidence
    values = {name: getattr(one, name) for name in ("noise", "float64", "float32")} | {part: None}
    lacking = FloorEvidence(one.key, one.mode, reduction=1, basis=one.basis, **values)
    assert (one.key in NoiseFloor((lacking,)).injected) == (part == "float64")
    assert NoiseFloor((FloorEvidence(Key("x"), "", **{**values, part: one.noise}),)).injected == frozenset()


def test_floor_survives_when_written_and_read() -> None:
    both = recording({"": 0.4, "float64": 0.1})
    floor = floor_of(recording({"": 0.01, "float64": 0.0}, meta={"terms": 5}), both)
    floor = NoiseFloor((*floor.evidence, FloorEvidence(Key("y"), "isolated")), ("one", "two"))
    data = floor.to_dict()
    assert NoiseFloor.from_dict(data) == floor
    assert set(data) == {"evidence", "notes"}
    assert data["notes"] == ["one", "two"]
    assert data["evidence"][0]["noise"] == floor.evidence[0].noise.to_dict()  # type: ignore[union-attr]
    assert data["evidence"][1]["noise"] is None
    del data["notes"]
    assert NoiseFloor.from_dict(data).notes == ()


def test_evidence_of_a_mode_is_found_by_it() -> None:
    floor = NoiseFloor((FloorEvidence(Key("a"), ""), FloorEvidence(Key("b"), "isolated"), FloorEvidence(Key("c"), "")))
    assert [one.key for one in floor.of_mode("")] == ["a", "c"]
    assert [one.key for one in floor.of_mode("isolated")] == ["b"]


def test_what_the_comparison_has_is_not_measured_again() -> None:
    reference, candidate = recording({"": 0.0, "float64": 1e-7}), recording({"": 1e-6, "float64": 1e-6})
    read: Counter[str] = Counter()

    def counting(entry: Entry) -> Entry:
        def values() -> Array:
            read[entry.key.run] += 1
            return entry.array()

        return replace(entry, read=values, hash="")

    pairing = match(reference, replace(candidate, entries=tuple(map(counting, candidate.entries))))
    comparison = measure(pairing, limit_for=lambda pair: 1e-9)
    read.clear()
    floor = calibrate(pairing, reference=reference, comparison=comparison)
    assert (read[""], read["float64"]) == (1, 0)
    assert calibrate(pairing, reference=reference) == floor
    assert (read[""], read["float64"]) == (2, 1)


def test_measuring_is_done_by_whom_the_caller_names() -> None:
    reference = recording({"": 0.0})
    pairing = match(reference, reference)
    threads: set[str] = set()
    with ThreadPoolExecutor(1, "named", initializer=lambda: threads.add(threading.current_thread().name)) as pool:
        assert calibrate(pairing, reference=reference, executor=pool) == calibrate(pairing, reference=reference)
    assert threads == {"named_0"}
    with pytest.raises(UsageError, match="threads=0"):
        calibrate(pairing, reference=reference, threads=0)


@pytest.mark.parametrize(
    ("key", "layer"),
    [
        ("isolated@step0/forward/a.b#0:output", "a.b"),
        ("isolated@step0/backward/a.b#0:input", "a.b"),
        ("isolated@step0/gradient/fc.weight:of fc", "fc"),
        ("isolated@step0/gradient/fc.weight:of part of it", "part of it"),
        ("isolated@step0/gradient/fc.weight:of model", ""),
        ("isolated@step0/gradient/fc.weight", ""),
    ],
)
def test_layer_that_ran_alone_is_read_from_the_key(key: str, layer: str) -> None:
    assert Key.parse(key).layer_alone == layer
    assert str(replace(Key.parse(key), step=0)) == key
