"""Two plain logs, of which nothing is known but names and values: what relates them is named, accidents are not."""

from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from reprod_log import Alignment, ReprodLogger, align

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 10)).astype(np.float32)
IMAGES = RNG.normal(size=(2, 3, 5, 4)).astype(np.float32)
INPUT = RNG.normal(size=(6, 8)).astype(np.float32)
Logs = Mapping[str, np.ndarray]


def saved(folder: Path, name: str, values: Logs) -> str:
    logger = ReprodLogger()
    for key, value in values.items():
        logger.add(key, value)
    path = folder / f"{name}.npy"
    logger.save(str(path))
    return str(path)


@pytest.fixture
def aligned(tmp_path: Path) -> Callable[[Logs, Logs], Alignment]:
    def made(reference: Logs, candidate: Logs) -> Alignment:
        return align(saved(tmp_path, "reference", reference), saved(tmp_path, "candidate", candidate))

    return made


def causes(alignment: Alignment) -> list[str]:
    return [str(one.cause) for one in alignment.findings if one.kind == "cause"]


def rounded_by_hand(x: np.ndarray) -> np.ndarray:
    """As a deep model rounds: other bits, the same numbers."""
    return x * (1 + np.random.default_rng(1).uniform(-3e-7, 3e-7, x.shape)).astype(np.float32)


def softmax(x: np.ndarray, axis: int = 1) -> np.ndarray:
    raised = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(raised / raised.sum(axis, keepdims=True))


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (X, X * np.float32(1.001), "is 1.001 times"),
        (X, -X, "is -1 times"),
        (X, X + np.float32(0.5), "shifted by 0.5"),
        (X, 2 * X + 1, "is 2·x +1"),
        (X, X.T.copy(), "transposed, axes 1, 0"),
        (IMAGES, IMAGES.transpose(0, 2, 3, 1).copy(), "transposed, axes 0, 2, 3, 1"),
        (X, X.reshape(3, 20), "[6, 10] in the reference, [3, 20] in the candidate"),
        (X, X[:, ::-1].copy(), "reversed along axis 1"),
        (X, X[[2, 0, 5, 3, 1, 4]], "permuted along axis 0"),
        (IMAGES, IMAGES[:, [2, 1, 0]], "reversed along axis 1"),
        (X, X.astype(np.float16).astype(np.float32), "candidate's is rounded to float16"),
        (X.astype(ml_dtypes.bfloat16).astype(np.float32), X, "reference's is rounded to bfloat16"),
        (X, softmax(X), "candidate's is softmax (axis 1)"),
        (softmax(X), X, "reference's is softmax (axis 1)"),
        (X, np.log(softmax(X)), "candidate's is log_softmax (axis 1)"),
        (X, np.maximum(X, 0), "candidate's is relu"),
    ],
)
def test_relation_of_two_logged_tensors_is_named(
    aligned: Callable[[Logs, Logs], Alignment], ours: np.ndarray, theirs: np.ndarray, words: str
) -> None:
    result = aligned({"x": INPUT, "logits": ours}, {"x": INPUT, "logits": theirs})
    assert not result.passed
    (cause,) = causes(result)
    assert words in cause
    assert "logits" in cause


def test_relation_is_seen_through_the_rounding_of_a_model(aligned: Callable[[Logs, Logs], Alignment]) -> None:
    assert "is 1.001 times" in causes(aligned({"logits": X}, {"logits": rounded_by_hand(X) * np.float32(1.001)}))[0]


@pytest.mark.parametrize(
    "theirs",
    [
        X + RNG.normal(scale=0.01, size=X.shape).astype(np.float32),
        X * (1 + 0.001 * np.arange(10, dtype=np.float32)),
        np.where(np.arange(60).reshape(6, 10) == 7, X + 1, X),
        rounded_by_hand(X) + np.float32(3e-6) * np.sin(np.arange(10, dtype=np.float32)),
    ],
    ids=["noise", "another factor per column", "one element", "small and systematic"],
)
def test_no_relation_is_named_where_there_is_none(
    aligned: Callable[[Logs, Logs], Alignment], theirs: np.ndarray
) -> None:
    result = aligned({"logits": X}, {"logits": theirs})
    assert not result.passed
    assert causes(result) == []


@pytest.mark.parametrize("ours", [np.float32([1.5]), np.float32([1, 2, 3]), np.ones(20, np.float32)])
def test_few_or_constant_numbers_are_not_fitted(aligned: Callable[[Logs, Logs], Alignment], ours: np.ndarray) -> None:
    assert causes(aligned({"loss": ours}, {"loss": ours * np.float32(1.5)})) == []


def test_exchanged_keys_are_named(aligned: Callable[[Logs, Logs], Alignment]) -> None:
    other = RNG.normal(size=X.shape).astype(np.float32)
    found = causes(aligned({"mean": X, "variance": other}, {"mean": other, "variance": X}))
    assert found == ["the candidate logged under mean, variance what the reference logged as variance, mean"]


def test_input_logged_as_output_is_named(aligned: Callable[[Logs, Logs], Alignment]) -> None:
    found = causes(aligned({"x": INPUT, "logits": X}, {"x": INPUT, "logits": INPUT}))
    assert found == ["the candidate logged under logits what the reference logged as x"]


def test_values_under_a_key_that_only_the_candidate_has_are_named(aligned: Callable[[Logs, Logs], Alignment]) -> None:
    found = causes(aligned({"x": INPUT, "logits": X}, {"x": INPUT, "out": rounded_by_hand(X)}))
    assert "the candidate logged under out what the reference logged as logits" in found


def test_logs_that_agree_get_no_cause(aligned: Callable[[Logs, Logs], Alignment]) -> None:
    result = aligned({"x": INPUT, "logits": X}, {"x": INPUT, "logits": rounded_by_hand(X)})
    assert result.passed
    assert causes(result) == []


def test_another_mean_and_deviation_of_each_channel_is_named(aligned: Callable[[Logs, Logs], Alignment]) -> None:
    image = RNG.normal(size=(2, 3, 5, 5)).astype(np.float32)
    mean, spread = (np.float32(one).reshape(1, 3, 1, 1) for one in ([0.5, 0.4, 0.3], [0.25, 0.5, 0.2]))
    (found,) = causes(aligned({"image": image}, {"image": (image - mean) / spread}))
    assert "4·x -2, 2·x -0.8, 5·x -1.5 per channel" in found
