"""A float64 pass that is not the same program as the plain one is refused; rounding, however large, is not."""

import numpy as np
import pytest

from reprod_log.alignment import align
from reprod_log.errors import RecordingError
from reprod_log.judge import Status
from reprod_log.record import Recording, entry_of


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
