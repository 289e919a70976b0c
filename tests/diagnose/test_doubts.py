"""Passes that prove nothing are doubted and not proven; honest ones are left in peace."""

from dataclasses import replace

import numpy as np
import pytest

from reprod_log import Alignment, Policy, Recording, align
from reprod_log.recording import Key, ModuleInfo, Provenance
from reprod_log.recording.recording import series
from reprod_log.verdict import Status

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
    assert all(finding.evidence and finding.advice for finding in found.doubts)
    assert found.status is (Status.UNPROVEN if found.doubts else Status.PASS)
    return {finding.rule for finding in found.doubts}


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
    one = Recording.from_arrays({"x": np.ones(3)}, provenance=provenance)

    def rules(reference: Recording, candidate: Recording) -> list[str]:
        return [finding.rule for finding in align(reference, candidate).doubts]

    assert rules(one, one) == ["same_program"]
    assert rules(replace(one, source="ref"), replace(one, source="copy")) == ["same_program"]
    later = replace(one, source="later", provenance=replace(provenance, time="2026-11-16"))
    assert rules(replace(one, source="ref"), later) == []


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
    # Even zeros would pass beside values that are smaller than the limit.
    assert rules_for({"x": np.array(3e-7)}, {"x": np.array(0.0)}) == {"limit_above_values"}
    assert rules_for({"x": np.array(3e-7)}, {"x": np.array(3.09e-7)}, "max_rel:0.1") == set()
    assert rules_for({"x": np.array(3e-7)}, {"x": np.array(3e-7)}) == set()
    # A limit that someone chose, or beside which nothing is far off, is a remark, unless it lets anything through.
    assert rules_for({"x": np.array(3e-7)}, {"x": np.array(0.0)}, "mean_abs:1e-6") == set()
    assert rules_for({"x": np.array(3e-7)}, {"x": np.array(0.0)}, "mean_abs:1") == {"limit_above_values"}
    for off, kind in ((1.005, "remark"), (1.03, "doubt")):
        found = align(Recording.from_arrays({"x": 3e-5}), Recording.from_arrays({"x": 3e-5 * off}))
        assert [(one.rule, one.kind) for one in found.findings] == [("limit_above_values", kind)]


def test_element_that_a_mean_hides_is_noticed() -> None:
    right = RNG.normal(size=100_000)
    rounded, wrong = right * (1 + 1e-7 * RNG.normal(size=right.size)), right.copy()
    wrong[17] += 0.01
    assert rules_for({"x": right}, {"x": rounded}) == set()
    assert rules_for({"x": right}, {"x": wrong}) == {"hidden_by_the_mean"}
    # A limit that someone chose decides; and one activation may move single elements of a gradient.
    assert rules_for({"x": right}, {"x": wrong}, "mean_abs:1e-6") == set()
    assert rules_for({"step0/gradient/w:raw": right}, {"step0/gradient/w:raw": wrong}) == set()


def test_loss_that_hardly_moves_is_noticed() -> None:
    def flat(noise: float) -> dict[str, object]:
        return {f"loss_{i}": np.float32(5.9915 + 1e-6 * i + noise * (-1) ** i) for i in range(5)}

    assert rules_for(flat(0.0), flat(4e-7)) == {"flat_loss"}
    gradients = {f"step{i}/gradient/w:raw": RNG.normal(size=3) for i in range(5)}
    assert rules_for({**flat(0.0), **gradients}, {**flat(4e-7), **gradients}) == set()


def test_a_doubt_is_the_reason_of_not_proven_and_may_be_allowed() -> None:
    sides = Recording.from_arrays(losses()), Recording.from_arrays(losses())
    found = align(*sides)
    assert found.status is Status.UNPROVEN
    assert not found.passed
    allowed = align(*sides, allow_unproven=True)
    assert allowed.status is Status.PASS
    assert allowed.doubts == found.doubts
    assert found.judged_by(allowed.policy).passed
    assert allowed.judged_by(found.policy).status is Status.UNPROVEN


def test_a_doubt_does_not_hide_a_failure() -> None:
    wrong = {**losses(), "logits": np.ones(3)}
    found = align(Recording.from_arrays({**losses(), "logits": np.zeros(3)}), Recording.from_arrays(wrong))
    assert found.doubts
    assert found.status is Status.FAIL


def test_doubts_about_limits_are_those_of_the_policy_that_judges() -> None:
    found = align(Recording.from_arrays({"x": 3e-7}), Recording.from_arrays({"x": 1e-7}))
    assert [one.rule for one in found.doubts] == ["limit_above_values"]
    assert found.judged_by(Policy.fixed(["max_rel:1"])).status is Status.PASS


def test_the_same_framework_twice_is_fair_and_equal_bits_are_good_news() -> None:
    torch = Provenance(framework="torch", framework_version="2.13.0", command="a.py", time="1")
    again = replace(torch, command="b.py", time="2")
    sides = (Recording.from_arrays({"x": np.ones(3)}, provenance=one) for one in (torch, again))
    found = align(*sides)
    assert found.passed
    assert [(one.rule, one.kind) for one in found.findings] == [("same_program", "remark")]


@pytest.mark.parametrize("name", ["paddle", "rec_pd", "port.paddlepaddle"])
def test_recording_of_one_framework_that_is_named_after_another_is_noticed(name: str) -> None:
    torch = Provenance(framework="torch", framework_version="2.13.0")
    ours, theirs = ({"x": np.ones(3)}, {"x": np.ones(3) * (1 + 1e-7)})
    reference = Recording.from_arrays(ours, provenance=torch)
    candidate = replace(Recording.from_arrays(theirs, provenance=torch), source=f"some/{name}")
    assert [one.rule for one in align(reference, candidate).doubts] == ["posing"]
    named_right = replace(candidate, source="some/torch_new")
    assert align(reference, named_right).passed


def test_layers_of_another_framework_than_the_recording_claims_are_noticed() -> None:
    claimed = Provenance(framework="paddle", framework_version="3.3.1")
    layer = ModuleInfo("fc", "Linear", origin="torch.nn.modules.linear.Linear")
    reference = Recording.from_arrays({"x": np.ones(3)})
    candidate = replace(Recording.from_arrays({"x": np.ones(3)}, provenance=claimed), modules=(layer,))
    found = align(reference, candidate)
    assert [str(one.cause) for one in found.doubts] == ["the candidate was made by torch, not by paddle"]


@pytest.mark.parametrize(("elements", "steps", "noticed"), [(900, 3, True), (900, 2, False), (2, 9, False)])
def test_two_frameworks_that_agree_bit_for_bit_over_a_training_are_noticed(
    elements: int, steps: int, noticed: bool
) -> None:
    arrays = {f"step{i}/update/w": RNG.normal(size=elements) for i in range(steps)}
    sides = [
        replace(Recording.from_arrays(arrays, provenance=Provenance(framework=name)), source=name)
        for name in ("torch", "paddle")
    ]
    assert [one.rule for one in align(*sides).doubts] == (["identical_training"] if noticed else [])


def test_suspicious_passes_of_older_files_are_doubts() -> None:
    found = align(Recording.from_arrays(losses()), Recording.from_arrays(losses()))
    written = found.to_dict()
    for one in written["findings"]:
        one["kind"] = "suspicious pass"
    assert Alignment.from_dict(written).status is Status.UNPROVEN


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
