"""Every pair of the table is refused: none passes, in memory and through a file and a saved alignment."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reprod_log import Alignment, CalibratedPolicy, Recording, align
from reprod_log.errors import ReprodLogError, UsageError
from reprod_log.recording.stores import load, save
from sampling import sampled
from trust import built_to_pass, mixed_evidence
from trust.built_to_pass import KEY, Row, of

ROWS = (*built_to_pass.rows(), *mixed_evidence.rows())


def passes(row: Row) -> bool:
    try:
        return align(row.reference, row.candidate, **row.options).passed
    except ReprodLogError:
        # Refused with a reason, which is not a pass.
        return False


def test_table_is_large_and_its_names_are_different() -> None:
    assert len(ROWS) >= 300
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.why for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "_"))
def test_pair_built_to_pass_does_not(row: Row) -> None:
    assert not passes(row), row.why


SUFFIXES = ("", ".safetensors", ".npz")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_pair_passes_after_it_was_saved(tmp_path: Path, suffix: str) -> None:
    rows, kept = sampled(ROWS, len(SUFFIXES), SUFFIXES.index(suffix)), 0
    for number, row in enumerate(rows):
        places = [tmp_path / f"{number}_{side}{suffix}" for side in ("ref", "port")]
        try:
            ours, theirs = (
                load(save(one, place)) for one, place in zip((row.reference, row.candidate), places, strict=True)
            )
        except ReprodLogError:
            continue
        kept += 1
        assert not passes(Row(row.name, row.why, ours, theirs, row.options)), (row.name, row.why)
    assert kept > len(rows) / 3


def test_no_pair_passes_when_its_alignment_is_read_again(tmp_path: Path) -> None:
    for row in ROWS:
        try:
            found = align(row.reference, row.candidate, **row.options)
        except ReprodLogError:
            continue
        assert not Alignment.load(found.save(tmp_path / "a.json")).passed, (row.name, row.why)


@pytest.mark.parametrize("factor", ["free", "isolated", "precision", "without_float64", "default", "lr", "kink"])
def test_calibrated_policy_that_lets_anything_through_is_refused(factor: str) -> None:
    for value in (1e9, float("inf"), float("nan"), -1.0):
        with pytest.raises(UsageError, match=f"{factor} of the calibrated policy"):
            CalibratedPolicy(**{factor: value})


def test_shards_of_another_run_are_not_read(tmp_path: Path) -> None:
    """A folder that was copied over another one in part: manifest and shards are of two recordings."""

    def saved(name: str, by: float) -> Path:
        made = {f"step{i}/forward/fc#0:output": np.random.default_rng(i).normal(size=50) * by**i for i in range(3)}
        return Recording.from_arrays(made).save(tmp_path / name)

    reference, right, wrong = saved("ref", 1.0), saved("right", 1 + 1e-9), saved("wrong", 1.5)
    assert align(reference, right).passed
    for number in (1, 2):
        shard = f"shards/{number:06d}.safetensors"
        (wrong / shard).write_bytes((right / shard).read_bytes())
    found = align(reference, wrong)
    assert not found.passed
    assert "not part of this recording" in " ".join(map(str, load(wrong).notes))
    assert not load(wrong).complete


def _failed() -> Alignment:
    return align(*(Recording.from_arrays({KEY: np.ones(9) + i, "step0/loss/loss": 1.0}) for i in range(2)))


def _doubted() -> Alignment:
    losses = {f"loss_{i}": np.float32(2.3 - 0.1 * i) for i in range(6)}
    return align(Recording.from_arrays(losses), Recording.from_arrays(losses))


def _cut_short() -> Alignment:
    return align(replace(of(np.ones(3)), complete=False), of(np.ones(3)))


def _unmatched() -> Alignment:
    return align(Recording.from_arrays({"x": np.ones(3), "y": np.ones(3)}), of(np.ones(3)))


def _each_row(**values: Any) -> Callable[[Any], object]:
    return lambda saved: [row["measurement"].update(values) for row in saved["comparison"]["rows"]]


EDITS: dict[str, tuple[Callable[[], Alignment], Callable[[Any], object]]] = {
    "its verdict is claimed": (_failed, lambda saved: saved.update(status="PASS", passed=True)),
    "its judgements are taken out": (_failed, lambda saved: saved.update(judgements=[])),
    "its findings are taken out": (_failed, lambda saved: saved.update(findings=[])),
    "what failed is taken out": (_failed, lambda saved: saved["comparison"]["rows"].pop(0)),
    "limits are raised": (_failed, lambda saved: [one.update(value=1e9) for one in saved["policy"]["limits"]]),
    "everything is accepted": (_failed, lambda saved: saved["policy"].update(accept=["*"])),
    "no element is left": (_failed, _each_row(count=0)),
    "one difference is zero": (_failed, _each_row(mean_abs=0.0)),
    "four differences are zero": (_failed, _each_row(max_abs=0.0, mean_abs=0.0, rmse=0.0, rel_l2=0.0)),
    "differences are negative": (_failed, _each_row(mean_abs=-1.0, rmse=-1.0)),
    "its doubts are taken out": (_doubted, lambda saved: saved.update(findings=[])),
    "its doubts are remarks": (_doubted, lambda saved: [one.update(kind="remark") for one in saved["findings"]]),
    "it is called complete": (_cut_short, lambda saved: saved["reference"].update(complete=True)),
    "what is unmatched is taken out": (_unmatched, lambda saved: saved["comparison"].update(unmatched=[])),
}


@pytest.mark.parametrize("name", EDITS)
def test_saved_alignment_does_not_pass_when_a_part_of_it_is_changed(tmp_path: Path, name: str) -> None:
    make, edit = EDITS[name]
    saved = json.loads(make().save(tmp_path / "a.json").read_text())
    edit(saved)
    (tmp_path / "a.json").write_text(json.dumps(saved))
    try:
        assert not Alignment.load(tmp_path / "a.json").passed
    except ReprodLogError:
        # Refused with a reason.
        return
