"""assert_aligned: what it takes, what it lets pass, and what its failure says."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Policy, Recording
from reprod_log.errors import NotAligned, UsageError
from reprod_log.testing import assert_aligned


def test_tensors_of_two_frameworks_are_compared() -> None:
    values = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    found = assert_aligned(torch.from_numpy(values), paddle.to_tensor(values))
    assert found.passed
    assert found.comparison.rows[0].key == "value"


@dataclass
class Output:
    logits: torch.Tensor
    states: list[torch.Tensor]


def test_nested_outputs_are_compared_leaf_by_leaf() -> None:
    one = Output(torch.ones(2), [torch.zeros(3), torch.zeros(1)])
    other = {"logits": np.ones(2, np.float32), "states": (np.zeros(3, np.float32), np.full(1, 2, np.float32))}
    with pytest.raises(NotAligned, match=r"first divergence: states\.1  FAIL"):
        assert_aligned(one, other)


def test_failure_is_an_assertion_and_reads_like_the_first_screen() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_aligned({"x": np.ones(3)}, {"x": np.array([1.0, 1.0, 4.0])})
    text = str(caught.value)
    assert text.startswith("NOT ALIGNED: 1 fail; 0 of 1 entry passes\n  first divergence: x  FAIL\n")
    assert "worst at [2]: reference 1, candidate 4" in text
    assert "what to do:" in text


def test_files_and_recordings_are_compared(tmp_path: Path) -> None:
    recording = Recording.from_arrays({"x": np.ones(3)})
    path = recording.save(tmp_path / "r.npz")
    assert_aligned(path, recording)
    assert_aligned(str(path), {"x": np.ones(3)})


def test_limits_and_policies_hold() -> None:
    near = np.ones(3), np.ones(3) + 1e-3
    assert_aligned(*near, limits=["max_abs:1e-2"])
    assert_aligned(*near, policy=Policy.fixed(["max_abs:1e-2"]))
    with pytest.raises(NotAligned):
        assert_aligned(*near)


def test_rename_and_unmatched_are_passed_on() -> None:
    assert_aligned({"a": 1.0, "x": 2.0}, {"b": 1.0, "y": 2.0}, rename={"a": "b"}, allow_unmatched=["x", "y"])


@pytest.mark.parametrize(("one", "other"), [({}, {}), (None, None), ({"a": 1.0}, {"b": 1.0})])
def test_nothing_compared_never_passes(one: object, other: object) -> None:
    with pytest.raises(NotAligned, match="NOTHING COMPARED"):
        assert_aligned(one, other)


def test_nan_never_passes_unless_asked_for() -> None:
    both = np.array([1.0, np.nan])
    with pytest.raises(NotAligned, match="NaN on both sides"):
        assert_aligned(both, both)
    assert_aligned(both, both, equal_nan=True)


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(UsageError):
        assert_aligned({"x": object()}, {"x": object()})
