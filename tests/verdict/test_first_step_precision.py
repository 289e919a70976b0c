"""Two recordings with float64 passes: what ran before anything drifts is held to rounding as it ran, too."""

import numpy as np

from reprod_log import Alignment, Recording, align


def recording(changes: dict[str, float] | None = None, *, flips: bool = False) -> Recording:
    """Outputs, gradients and updates of two layers in both precisions; `changes` move float32 ones by a share.

    With `flips`, one output that is zero but for rounding has the other sign in float32.
    """
    generator = np.random.default_rng(1)
    arrays: dict[str, np.ndarray] = {}
    keys = [form.format(layer) for form in ("forward/{}#0:output", "gradient/{}.weight:raw", "update/{}.weight")
            for layer in "ab"]  # fmt: skip
    for key in keys:
        for step in (0, 1):
            wide = generator.normal(size=(16, 16))
            wide[0, 0] = 1e-9 if key.startswith("forward") else wide[0, 0]
            arrays[f"float64@step{step}/{key}"] = wide
            share = (changes or {}).get(f"step{step}/{key}", 0.0)
            arrays[f"step{step}/{key}"] = (wide * (1 + share)).astype(np.float32)
            if flips and key.startswith("forward"):
                arrays[f"step{step}/{key}"][0, 0] *= -1
    return Recording.from_arrays(arrays)


def compared(changes: dict[str, float], *, flips: bool = False) -> Alignment:
    return align(recording(), recording(changes, flips=flips))


def test_equal_passes_are_aligned() -> None:
    assert compared({}).status.value == "PASS"


def test_output_that_is_right_in_float64_only_is_no_pass() -> None:
    found = compared({"step0/forward/a#0:output": 1.3})
    assert not found.passed
    assert found.verdict.first_divergence is not None
    assert found.verdict.first_divergence.key == "step0/forward/a#0:output"
    assert not compared({"step0/forward/a#0:output": 1e-3}).passed


def test_update_of_another_program_is_no_pass() -> None:
    assert not compared({"step0/update/a.weight": 0.019}).passed


def test_gradients_and_what_follows_may_jump_when_an_activation_changes_side() -> None:
    jump = {"step0/gradient/a.weight:raw": 0.01, "step0/update/a.weight": 0.01}
    assert compared(jump, flips=True).passed
    assert not compared({"step0/gradient/a.weight:raw": 0.3, "step0/update/a.weight": 0.3}, flips=True).passed


def test_jump_without_an_activation_that_changed_side_is_no_kink() -> None:
    """Wherever the gradient lies: no output has another sign than in float64."""
    for share in (0.001, 0.01, 0.09):
        jump = {"step0/gradient/a.weight:raw": share, "step0/update/a.weight": share}
        assert compared(jump).status.value == "PRECISION"


def test_jump_behind_every_activation_is_no_kink() -> None:
    found = compared({"step0/gradient/b.weight:raw": 0.01, "step0/update/b.weight": 0.01}, flips=True)
    assert found.status.value == "UNPROVEN"


def test_later_steps_may_drift() -> None:
    assert compared({"step1/forward/a#0:output": 1e-4}).passed
    assert compared({"step1/forward/a#0:output": 1e-4, "step1/forward/b#0:output": 9e-3}).passed


def test_later_step_that_is_far_off_where_nothing_before_it_is_has_not_drifted() -> None:
    for share in (0.002, 0.01, 0.3):
        for key in ("forward/a#0:output", "gradient/b.weight:raw", "update/a.weight"):
            assert compared({f"step1/{key}": share}).status.value == "UNPROVEN"
    found = compared({"step1/forward/a#0:output": 0.01}).doubts[0]
    assert found.keys == ("step1/forward/a#0:output",)


def test_gradient_of_a_later_step_may_jump_when_an_activation_changes_side() -> None:
    jump = {"step1/gradient/a.weight:raw": 0.01, "step1/update/a.weight": 0.01}
    assert compared(jump, flips=True).passed
    assert not compared(jump).passed
