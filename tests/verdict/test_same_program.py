"""A float64 pass that is not the same program as the plain one is refused; rounding, however large, is not."""

from dataclasses import replace

import numpy as np
import pytest

from reprod_log.alignment import align
from reprod_log.errors import RecordingError
from reprod_log.measure.fused import measure_arrays
from reprod_log.recording import Key, Recording, entry_of
from reprod_log.verdict import FloorEvidence, Status
from reprod_log.verdict.floor import check_same_program


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


def test_same_program_is_judged() -> None:
    both = passes(narrow(program()), program())
    assert align(both, both).status is Status.PASS


def test_half_precision_is_judged() -> None:
    both = passes(narrow(program(), "float16"), program())
    assert align(both, both).status is Status.PASS


def test_other_weights_in_the_float64_pass_are_refused() -> None:
    both = passes(narrow(program()), program(seed=1))
    with pytest.raises(RecordingError, match="not the same program.*step0/forward/.*same script, data, starting"):
        align(both, both)


def test_other_data_in_the_float64_pass_are_refused() -> None:
    both = passes(narrow(program()), program(data=1))
    with pytest.raises(
        RecordingError, match="was fed other data than its plain pass: step0/data/#0:input differs in 32"
    ):
        align(both, both)


def test_other_token_ids_in_the_float64_pass_are_refused() -> None:
    ids = {"step0/data/ids": np.arange(8)}
    both = passes({**ids, **narrow(program())}, {"step0/data/ids": np.arange(8)[::-1], **program()})
    with pytest.raises(RecordingError, match="step0/data/ids differs in 8 of 8"):
        align(both, both)


def test_one_output_that_is_nothing_but_rounding_is_judged() -> None:
    noise = {"step0/forward/zero#0:output": np.full(4, 1e-8)}
    both = passes({**narrow(program()), **narrow(noise)}, {**program(), "step0/forward/zero#0:output": np.zeros(4)})
    assert align(both, both).passed


def test_later_steps_may_drift_apart() -> None:
    plain = {**narrow(program()), **narrow(program(step=1))}
    wide = {**program(), **{key: array * 1.3 if "data" not in key else array for key, array in program(step=1).items()}}
    both = passes(plain, wide)
    assert align(both, both).passed


def off(share: float, dtype: str = "float32", *, key: str = "step0/forward/fc#0:output") -> FloorEvidence:
    """Evidence whose plain pass has this relative distance to the float64 one."""
    exact = measure_arrays(np.ones(200), np.ones(200, dtype="float32"))
    return FloorEvidence(
        Key.parse(key), "", exact._replace(rel_l2=share, candidate_dtype=dtype), basis="reference in float64"
    )


DATA = "step0/data/#0:input"


@pytest.mark.parametrize(
    ("dtype", "bound"),
    [("float32", 0.01), ("complex64", 0.01), ("float16", 0.06), ("bfloat16", 0.3), ("float8_e4m3fn", 1.0)],
)
@pytest.mark.parametrize("key", [DATA, "step0/forward/fc#0:output"])
def test_distance_beyond_what_rounding_reaches_is_another_program(dtype: str, bound: float, key: str) -> None:
    check_same_program([off(bound, dtype, key=key)])
    with pytest.raises(RecordingError, match=f"{key} differs"):
        check_same_program([off(bound * 1.01, dtype, key=key)])


def test_half_of_the_outputs_must_be_other_and_other_entries_do_not_count() -> None:
    far, near = off(5.0), off(1e-7)
    check_same_program([far, near, near])
    for innocent in (near, off(1e-7, key="step0/gradient/fc.weight"), off(1e-7, "int64")):
        others = [innocent] * (3 if innocent is not near else 1)
        with pytest.raises(RecordingError, match="half of the [23] outputs"):
            check_same_program([far, far, *others])
    check_same_program([off(5.0, key="step0/gradient/fc.weight"), off(5.0, key="step1/forward/fc#0:output")])
    check_same_program([replace(far, mode="isolated"), replace(far, basis="repeats of the reference")])


def test_one_in_a_hundred_of_the_numbers_fed_may_be_chosen_otherwise() -> None:
    ids = np.arange(200)
    for differing, refused in ((2, False), (3, True)):
        moved = np.where(ids < differing, ids + 1, ids)
        noise = measure_arrays(ids, moved)
        case = [FloorEvidence(Key("ids", "data", 0), "", noise, basis="reference in float64")]
        if refused:
            with pytest.raises(RecordingError) as caught:
                check_same_program(case)
            assert str(caught.value).endswith(
                "step0/data/ids differs in 3 of 200 elements (relative error 0.0011). Record both passes with the same "
                "script, data, starting weights and random numbers (dropout masks count, too)"
            )
        else:
            check_same_program(case)
