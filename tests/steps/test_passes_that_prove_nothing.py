"""Doubts, as the steps and plans meet them."""

import numpy as np

from reprod_log import Recording, align
from reprod_log.recording import Provenance
from reprod_log.steps import lr
from reprod_log.verdict import Status

TORCH = Provenance(framework="torch", framework_version="2.13.0", command="a", time="1")
TORCH_AGAIN = Provenance(framework="torch", framework_version="2.13.0", command="b", time="2")
PADDLE = Provenance(framework="paddle", framework_version="3.3.1")


def notes(ours: dict[str, object], theirs: dict[str, object], *sides: Provenance) -> dict[str, str]:
    one, two = sides or (Provenance(), Provenance())
    found = align(Recording.from_arrays(ours, provenance=one), Recording.from_arrays(theirs, provenance=two))
    return {finding.rule: str(finding.cause) for finding in found.findings}


def losses(noise: float = 0.0) -> dict[str, object]:
    return {f"loss_{i}": np.float32(2.3 - 0.1 * i + noise * (-1) ** i) for i in range(6)}


def test_one_framework_on_both_sides_with_equal_bits_is_noticed() -> None:
    assert notes(losses(), losses(), TORCH, TORCH_AGAIN)["same_program"] == (
        "both sides were made by torch 2.13.0 and agree bit for bit"
    )


def test_one_framework_with_other_bits_or_another_version_is_not() -> None:
    newer = Provenance(framework="torch", framework_version="2.14.0")
    assert "same_program" not in notes(losses(), losses(noise=3e-7), TORCH, TORCH_AGAIN)
    assert "same_program" not in notes(losses(), losses(), TORCH, newer)
    assert "same_program" not in notes(losses(noise=3e-7), losses(), TORCH, PADDLE)


def test_engine_and_the_model_it_was_exported_from_may_be_equal() -> None:
    eager = Provenance(framework="paddle", framework_version="3.3.1", extra={"engine": "training"})
    exported = Provenance(framework="paddle", framework_version="3.3.1", extra={"engine": "jit"})
    output = {"output": np.arange(9.0)}
    assert notes(output, output, eager, exported) == {}


def test_schedule_that_is_never_stepped_is_noticed() -> None:
    found = lr.run([0.1] * 9, [0.1] * 9, steps=9)
    assert found.status is Status.UNPROVEN
    assert [finding.rule for finding in found.findings] == ["constant_sequence"]


def test_constant_rate_of_a_few_training_steps_is_not() -> None:
    steps = {f"step{i}/lr/optimizer:group0": np.array(0.1) for i in range(6)}
    training = {f"step{i}/loss/loss": np.float32(2.3 - 0.1 * i + 3e-7 * (i % 2)) for i in range(6)}
    other = {key: np.float32(value) + np.float32(3e-7) for key, value in training.items()}
    assert notes({**steps, **training}, {**steps, **other}) == {}
