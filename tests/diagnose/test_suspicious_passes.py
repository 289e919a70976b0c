"""Passes that prove nothing are noticed; honest ones are left in peace."""

import numpy as np
import pytest

from reprod_log import Recording, align
from reprod_log.recording import Key, Provenance
from reprod_log.recording.recording import series

RNG = np.random.default_rng(0)
LOSSES = 2.3 - 0.1 * np.arange(6)


def rules_for(
    reference: dict[str, object], candidate: dict[str, object], *limits: str, sides: tuple[Provenance, ...] = ()
) -> set[str]:
    one, two = sides or (Provenance(), Provenance())
    found = align(
        Recording.from_arrays(reference, provenance=one),
        Recording.from_arrays(candidate, provenance=two),
        limits=limits,
    )
    assert all(finding.kind == "suspicious pass" and finding.evidence and finding.advice for finding in found.findings)
    return {finding.rule for finding in found.findings}


def losses(noise: float = 0.0) -> dict[str, object]:
    return {f"loss_{i}": np.float32(value + noise * (-1) ** i) for i, value in enumerate(LOSSES)}


def test_bit_identical_losses_over_steps_are_noticed() -> None:
    assert "identical_losses" in rules_for(losses(), losses())
    structured = {f"step{i}/loss/loss": np.float32(value) for i, value in enumerate(LOSSES)}
    assert "identical_losses" in rules_for(structured, structured)


def test_losses_that_differ_in_the_last_place_are_not() -> None:
    assert rules_for(losses(), losses(noise=3e-7)) == set()


def test_identical_metrics_and_data_are_normal() -> None:
    arrays = {f"metric_{i}": np.float32(i) for i in range(6)} | {f"dataset_{i}": RNG.normal(size=4) for i in range(6)}
    assert rules_for(arrays, arrays) == set()


def test_two_equal_losses_happen_by_chance() -> None:
    few = {f"loss_{i}": np.float32(2.0 + i) for i in range(2)}
    assert rules_for(few, few) == set()


def test_same_run_on_both_sides_is_noticed() -> None:
    provenance = Provenance(framework="torch", framework_version="2.13.0", command="train.py", time="2026-11-15")
    arrays = {"x": np.ones(3)}
    assert "same_program" in rules_for(arrays, arrays, sides=(provenance, provenance))
    other = Provenance(framework="paddle", framework_version="3.3.1", command="train.py", time="2026-11-15")
    assert rules_for(arrays, arrays, sides=(provenance, other)) == set()


@pytest.mark.parametrize("stepped", [False, True])
def test_learning_rate_that_never_changes_is_noticed(stepped: bool) -> None:
    rates = [0.1 * 0.9 ** (i if stepped else 0) for i in range(8)]
    as_entries = {f"step_{i}_lr": rate for i, rate in enumerate(rates)}
    as_array = {"lr": np.array(rates)}
    structured = {f"step{i}/lr/group0": rate for i, rate in enumerate(rates)}
    for arrays in (as_entries, as_array, structured):
        assert rules_for(arrays, arrays) == (set() if stepped else {"constant_sequence"})


def test_output_that_is_its_input_is_noticed() -> None:
    data, logits = RNG.normal(size=(2, 8)), RNG.normal(size=(2, 8))
    assert rules_for({"input": data, "logits": data}, {"input": data, "logits": data}) == {"value_equals_input"}
    assert rules_for({"input": data, "logits": logits}, {"input": data, "logits": logits}) == set()


def test_limit_that_is_wide_beside_the_values_is_noticed() -> None:
    assert rules_for({"x": np.array(3e-5)}, {"x": np.array(3.09e-5)}) == {"limit_above_values"}
    assert rules_for({"x": np.array(3e-5)}, {"x": np.array(3.09e-5)}, "max_rel:0.1") == set()
    assert rules_for({"x": np.array(3e-5)}, {"x": np.array(3e-5)}) == set()


def test_loss_that_hardly_moves_is_noticed() -> None:
    def flat(noise: float) -> dict[str, object]:
        return {f"loss_{i}": np.float32(5.9915 + 1e-6 * i + noise * (-1) ** i) for i in range(5)}

    assert rules_for(flat(0.0), flat(4e-7)) == {"flat_loss"}
    gradients = {f"step{i}/gradient/w:raw": RNG.normal(size=3) for i in range(5)}
    assert rules_for({**flat(0.0), **gradients}, {**flat(4e-7), **gradients}) == set()


def test_findings_never_change_the_verdict() -> None:
    found = align(Recording.from_arrays(losses()), Recording.from_arrays(losses()))
    assert found.findings
    assert found.passed


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["loss_0", "loss_1", "loss_10"], {"loss_*": (0, 1, 10)}),
        (["step_100_linear_lr", "step_300_linear_lr"], {"step_*_linear_lr": (100, 300)}),
        (
            ["conv1_loss_0", "conv1_loss_1", "conv2_loss_0", "conv2_loss_1"],
            {"conv1_loss_*": (0, 1), "conv2_loss_*": (0, 1)},
        ),
        (["step0/loss/loss", "step2/loss/loss"], {"loss/loss": (0, 2)}),
        (["logits", "lr"], {"logits": (0,), "lr": (0,)}),
        (["top1"], {"top*": (1,)}),
    ],
)
def test_series_are_found_by_the_number_that_changes(keys: list[str], expected: dict[str, tuple[int, ...]]) -> None:
    assert {name: tuple(step for step, _ in rows) for name, rows in series(map(Key.parse, keys)).items()} == expected
