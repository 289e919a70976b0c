"""Passes of a side that are not of one program prove nothing; rounding, however large, is not that."""

from dataclasses import replace

import numpy as np
import pytest

from reprod_log.alignment import Alignment, align
from reprod_log.measure.fused import measure_arrays
from reprod_log.recording import Key, Recording, entry_of
from reprod_log.verdict import Basis, CalibratedPolicy, FloorEvidence, NoiseFloor, OddPass, Status, odd_passes


def passes(plain: dict[str, np.ndarray], wide: dict[str, np.ndarray]) -> Recording:
    """A recording with a plain pass and a float64 pass."""
    return Recording(
        (
            *(entry_of(key, array) for key, array in plain.items()),
            *(entry_of(f"float64@{key}", array) for key, array in wide.items()),
        )
    )


def program(seed: int = 0, *, data: int = 0, step: int = 0) -> dict[str, np.ndarray]:
    """One linear layer on random data, in float64."""
    x = np.random.default_rng(data).standard_normal((4, 8)).astype(np.float32).astype(np.float64)
    weight = np.random.default_rng(100 + seed).standard_normal((8, 3)).astype(np.float32).astype(np.float64)
    hidden = x @ weight
    return {
        f"step{step}/data/#0:input": x,
        f"step{step}/forward/fc#0:output": hidden,
        f"step{step}/forward/act#0:output": np.tanh(hidden),
    }


def narrow(arrays: dict[str, np.ndarray], dtype: str = "float32") -> dict[str, np.ndarray]:
    return {key: array.astype(dtype) for key, array in arrays.items()}


def twice(plain: dict[str, np.ndarray], wide: dict[str, np.ndarray]) -> Alignment:
    """Two recordings of these passes."""
    return align(passes(plain, wide), passes(plain, wide))


def doubts(found: Alignment) -> list[str]:
    return [f"{one.cause}: {one.evidence[0]}" for one in found.doubts]


def test_same_program_is_judged() -> None:
    assert twice(narrow(program()), program()).status is Status.PASS


def test_half_precision_is_judged() -> None:
    assert twice(narrow(program(), "float16"), program()).status is Status.PASS


def test_other_weights_in_the_float64_pass_prove_nothing() -> None:
    found = twice(narrow(program()), program(seed=1))
    assert found.status is Status.UNPROVEN
    assert "the float64 pass of the reference does not come from the same program as its plain pass" in doubts(found)[0]


@pytest.mark.parametrize("step", [0, 1])
def test_other_data_in_the_float64_pass_prove_nothing(step: int) -> None:
    first = program() if step else {}
    plain, wide = {**first, **program(step=step)}, {**first, **program(data=1, step=step)}
    found = twice(narrow(plain), wide)
    assert found.status is Status.UNPROVEN
    assert f"the two passes of the reference were fed different data: step{step}/data/#0:input" in doubts(found)[0]


def test_other_token_ids_in_the_float64_pass_prove_nothing() -> None:
    ids = {"step0/data/ids": np.arange(8)}
    found = twice({**ids, **narrow(program())}, {"step0/data/ids": np.arange(8)[::-1], **program()})
    assert found.status is not Status.PASS
    assert "step0/data/ids" in doubts(found)[0]


def test_other_learning_rates_in_the_float64_pass_prove_nothing() -> None:
    def rates(last: float) -> dict[str, np.ndarray]:
        return {f"step{i}/lr/optimizer:group0": np.array(rate) for i, rate in enumerate((0.1, 0.09, last))}

    found = twice({**narrow(program()), **rates(0.08)}, {**program(), **rates(0.081)})
    assert not found.passed
    assert "the two passes of the reference have different learning rates: step2/lr" in doubts(found)[0]


def test_plain_data_of_the_candidate_are_compared_too() -> None:
    candidate = passes(narrow({**program(), DATA: program(data=1)[DATA]}), program())
    found = align(passes(narrow(program()), program()), candidate)
    assert found.status is Status.FAIL
    assert str(found.first_divergence.key) == DATA  # type: ignore[union-attr]


def test_one_output_that_is_nothing_but_rounding_is_judged() -> None:
    noise = {"step0/forward/zero#0:output": np.full(4, 1e-8)}
    wide = {**program(), "step0/forward/zero#0:output": np.zeros(4)}
    assert twice({**narrow(program()), **narrow(noise)}, wide).passed


def test_later_steps_may_drift_apart() -> None:
    plain = {**narrow(program()), **narrow(program(step=1))}
    wide = {**program(), **{key: array * 1.3 if "data" not in key else array for key, array in program(step=1).items()}}
    assert twice(plain, wide).passed


def off(share: float, dtype: str = "float32", *, key: str = "step0/forward/fc#0:output") -> FloorEvidence:
    """Evidence whose plain pass has this relative distance to the float64 one, on both sides."""
    exact = measure_arrays(np.ones(200), np.ones(200, dtype="float32"))
    noise = exact._replace(rel_l2=share, rmse=share, candidate_dtype=dtype)
    return FloorEvidence(Key.parse(key), "", noise, None, noise, basis=Basis.REFERENCE_FLOAT64)


def odd(*evidence: FloorEvidence) -> list[OddPass]:
    return list(odd_passes(NoiseFloor(evidence), CalibratedPolicy()))


DATA = "step0/data/#0:input"


@pytest.mark.parametrize(
    ("dtype", "bound"),
    [("float32", 0.01), ("complex64", 0.01), ("float16", 0.06), ("bfloat16", 0.3), ("float8_e4m3fn", 1.0)],
)
@pytest.mark.parametrize("key", [DATA, "step0/forward/fc#0:output"])
def test_distance_beyond_what_rounding_reaches_is_another_program(dtype: str, bound: float, key: str) -> None:
    assert odd(off(bound, dtype, key=key)) == []
    (found,) = odd(off(bound * 1.01, dtype, key=key))
    assert (found.side, str(found.key)) == ("reference", key)


def test_half_of_the_outputs_must_be_other() -> None:
    far, near = off(5.0), off(1e-7)
    assert odd(far, near, near) == []
    for innocent in (near, off(1e-7, key="step0/gradient/fc.weight"), off(1e-7, "int64")):
        others = [innocent] * (3 if innocent is not near else 1)
        assert [one.how for one in odd(far, far, *others)] == ["outputs"]
    assert odd(off(0.09, key="step0/gradient/fc.weight"), off(5.0, key="step1/forward/fc#0:output")) == []
    assert [one.how for one in odd(off(0.2, key="step0/gradient/fc.weight"))] == ["outputs"]
    assert odd(replace(far, mode="isolated")) == []
    assert [one.how for one in odd(replace(far, basis=Basis.REPEATS))] == ["repeats"]
    assert odd(replace(near, basis=Basis.REPEATS)) == []


def test_one_in_a_hundred_of_the_numbers_fed_may_be_chosen_otherwise() -> None:
    ids = np.arange(200)
    for differing, other in ((2, False), (3, True)):
        noise = measure_arrays(ids, np.where(ids < differing, ids + 1, ids))
        found = odd(FloorEvidence(Key("ids", "data", 0), "", noise, basis=Basis.REFERENCE_FLOAT64))
        assert [one.how for one in found] == (["data"] if other else [])


def apart(reference: float, candidate: float, key: str, **known: object) -> FloorEvidence:
    """Evidence of an entry whose plain passes have these relative distances to the float64 pass."""
    one = off(reference, key=key)
    assert one.noise is not None
    noise = one.noise._replace(rel_l2=candidate, rmse=candidate, **known)
    agree = one.noise._replace(rmse=0.0, rel_l2=0.0)
    return replace(one, noise=one.noise._replace(**known), float32=noise, float64=agree)


FORWARD, GRADIENT, UPDATE = "step0/forward/fc#0:output", "step0/gradient/fc.weight", "step0/update/fc.weight"


@pytest.mark.parametrize("key", [FORWARD, "step0/loss/loss", GRADIENT, UPDATE, "step0/buffer/bn.running_mean"])
def test_side_that_is_much_farther_from_the_truth_than_the_other_contradicts_itself(key: str) -> None:
    for distances, side in (((1e-5, 1e-7), "reference"), ((1e-7, 1e-5), "candidate")):
        found = odd(apart(*distances, key))
        assert [(one.side, one.how) for one in found] == [(side, "apart")]
        assert found[0].times > 30
    assert odd(apart(3e-6, 1e-7, key)) == []
    assert odd(apart(1e-7, 3e-6, key)) == []


def test_what_an_optimizer_keeps_gets_more_room() -> None:
    key = "step0/optimizer/fc.weight:exp_avg_sq"
    assert odd(apart(3e-5, 1e-7, key)) == []
    assert [one.side for one in odd(apart(1e-4, 1e-7, key))] == ["reference"]


def test_exact_kernel_at_one_entry_is_no_measure() -> None:
    usual = [apart(1e-5, 1e-5, f"step0/forward/l{i}#0:output") for i in range(3)]
    assert odd(*usual, apart(1e-5, 0.0, FORWARD)) == []
    assert odd(apart(1e-5, 0.0, FORWARD))


def test_entry_whose_true_value_is_zero_is_no_measure() -> None:
    assert odd(apart(1e3, 1.0, FORWARD.replace("fc", "zero")), *[apart(1e-7, 1e-7, FORWARD)] * 2) == []


def test_kink_moves_the_gradients_before_it_and_not_all() -> None:
    before, behind = apart(1e-2, 1e-7, GRADIENT), apart(1e-7, 1e-7, GRADIENT.replace("fc", "head"))
    moved = apart(1e-2, 1e-7, UPDATE)
    order = [apart(1e-7, 1e-7, FORWARD), apart(1e-7, 1e-7, FORWARD.replace("fc", "head"))]
    assert odd(*order, before, behind, moved) == []
    # The gradient next to the loss moved, or none did: no kink.
    assert odd(*order, before, apart(1e-2, 1e-7, GRADIENT.replace("fc", "head")), moved)
    assert odd(*reversed(order), before, behind, moved)
    assert odd(*order, behind, moved)
    # More than a kink does.
    assert odd(*order, apart(0.2, 1e-7, GRADIENT), behind)


def test_later_steps_are_held_to_what_drift_does_not_reach() -> None:
    calm = apart(1e-7, 1e-7, FORWARD)
    later = [f"step3/update/l{i}.weight" for i in range(3)]
    assert odd(calm, *(apart(5e-3, 1e-7, key) for key in later)) == []
    assert odd(calm, *(apart(5e-2, 1e-3, key) for key in later)) == []
    (found,) = odd(calm, *(apart(5e-2, 1e-6, key) for key in later))
    assert (found.side, found.key.step) == ("reference", 3)
    (found,) = odd(calm, *(apart(1e-6, 5e-2, key) for key in later))
    assert (found.side, found.key.step) == ("candidate", 3)


def test_step_after_one_that_was_not_recorded_may_have_drifted_unseen() -> None:
    moved = apart(5e-3, 1e-7, "step3/forward/fc#0:output")
    assert odd(apart(1e-7, 1e-7, FORWARD), moved) == []
    assert odd(apart(1e-7, 1e-7, FORWARD), apart(1e-7, 1e-7, "step0/update/fc.weight"), moved) == []
    (found,) = odd(apart(1e-7, 1e-7, FORWARD), apart(1e-7, 1e-7, "step2/update/fc.weight"), moved)
    assert (found.side, found.key) == ("reference", moved.key)


def test_half_precision_is_farther_from_the_truth_by_nature() -> None:
    assert odd(apart(1e-3, 1e-7, FORWARD, candidate_dtype="float16")) == []


def test_one_loss_may_hit_its_rounded_value_by_luck() -> None:
    losses = [apart(1e-6, 0.0 if i == 0 else 1e-6, f"step{i}/loss/loss", count=1) for i in range(3)]
    assert odd(*losses) == []


def test_difference_that_is_there_in_float64_too_is_no_contradiction() -> None:
    one = apart(1e-7, 1e-2, FORWARD)
    assert odd(one)
    assert one.float64 is not None
    assert odd(replace(one, float64=one.float64._replace(rmse=1e-2))) == []
    assert odd(replace(one, float64=None)) == []
