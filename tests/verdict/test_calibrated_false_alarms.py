"""What correct ports taught the calibrated rule: differences that are no defects, and where a defect is placed."""

import numpy as np

from reprod_log import Alignment, Recording, align

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(size=64)


def aligned(reference: dict[str, object], candidate: dict[str, object]) -> Alignment:
    return align(Recording.from_arrays(reference), Recording.from_arrays(candidate))


def passes(key: str, *, noise: float, error32: float, error64: float | None) -> dict[str, tuple[object, object]]:
    """Entries of one key in both precisions with given relative errors: key → (reference's, candidate's)."""
    run, _, plain = key.rpartition("@")
    wide = f"{run}.float64@{plain}" if run else f"float64@{plain}"
    entries: dict[str, tuple[object, object]] = {
        key: ((TRUTH * (1 + noise)).astype(np.float32), (TRUTH * (1 + error32)).astype(np.float32))
    }
    entries[wide] = (TRUTH, None if error64 is None else TRUTH * (1 + error64))
    return entries


def sides(*parts: dict[str, tuple[object, object]]) -> tuple[dict[str, object], dict[str, object]]:
    merged = {key: both for part in parts for key, both in part.items()}
    ours = {key: both[0] for key, both in merged.items()}
    theirs = {key: both[1] for key, both in merged.items() if both[1] is not None}
    return ours, theirs


def test_injected_pass_is_judged_by_the_precision_limit_when_the_candidate_has_float64() -> None:
    free = passes("step0/optimizer/w:exp_avg_sq", noise=0, error32=0, error64=0)
    # 1 - beta2 in float32: 1.3e-5, more than 30 and less than 300 floors.
    injected = passes("injected@step0/optimizer/w:exp_avg_sq", noise=0, error32=1.3e-5, error64=None)
    assert aligned(*sides(free, injected)).passed
    far = passes("injected@step0/optimizer/w:exp_avg_sq", noise=0, error32=1e-3, error64=None)
    assert not aligned(*sides(free, far)).passed


def test_what_one_model_feeds_another_is_judged_as_computed_not_as_data() -> None:
    made = passes("step0/data/discriminator#0:input.0", noise=1e-7, error32=3e-7, error64=1e-13)
    assert aligned(*sides(made)).passed
    wrong = passes("step0/data/discriminator#0:input.0", noise=1e-7, error32=1e-3, error64=1e-3)
    assert not aligned(*sides(wrong)).passed


def test_data_may_differ_by_rounding_and_no_more() -> None:
    exact = TRUTH.astype(np.float32)
    given = {"step0/data/x:input": exact, "float64@step0/data/x:input": exact.astype(np.float64)}
    for share, passes in ((2e-7, True), (2e-6, False)):
        other = {key: value * np.float32(1 + share) for key, value in given.items()}
        assert aligned(given, other).passed is passes
    masked = {key: np.append(value, np.array(-1e9, value.dtype)) for key, value in given.items()}
    shifted = {key: value + np.array([*[0.01] * exact.size, 0], value.dtype) for key, value in masked.items()}
    assert not aligned(masked, shifted).passed


def test_group_with_the_rate_of_the_first_needs_no_partner() -> None:
    ours = {"step0/lr/optimizer:group0": np.float64(0.1), "step0/lr/optimizer:group1": np.float64(0.1)}
    theirs = {"step0/lr/optimizer:group0": np.float64(0.1)}
    assert aligned(ours, theirs).passed
    assert not aligned({**ours, "step0/lr/optimizer:group1": np.float64(0.2)}, theirs).passed


def test_momentum_kept_in_float32_is_no_defect_of_running_statistics() -> None:
    alone = passes("isolated@step0/buffer/bn.running_mean:of bn", noise=0, error32=2.4e-7, error64=2.4e-7)
    assert aligned(*sides(alone)).passed
    biased = passes("isolated@step0/buffer/bn.running_mean:of bn", noise=0, error32=4e-4, error64=4e-4)
    assert not aligned(*sides(biased)).passed


def test_fault_between_layers_is_placed_by_the_free_run() -> None:
    parts = [
        passes("isolated@step0/forward/block.a#0:output", noise=1e-7, error32=0, error64=0),
        passes("isolated@step0/forward/block#0:output", noise=1e-7, error32=0.1, error64=0.1),
        passes("step0/forward/block.a#0:output", noise=1e-7, error32=0, error64=0),
        passes("step0/forward/block.b#0:input.0", noise=1e-7, error32=0.1, error64=0.1),
    ]
    first = aligned(*sides(*parts)).first_divergence
    assert first is not None
    assert first.key == "step0/forward/block.b#0:input.0"


def test_layer_that_fails_alone_is_placed_before_the_free_run() -> None:
    parts = [
        passes("isolated@step0/forward/block.a#0:output", noise=1e-7, error32=0.1, error64=0.1),
        passes("isolated@step0/forward/block#0:output", noise=1e-7, error32=0.1, error64=0.1),
        passes("step0/forward/first#0:output", noise=1e-7, error32=0.1, error64=0.1),
    ]
    first = aligned(*sides(*parts)).first_divergence
    assert first is not None
    assert first.key == "isolated@step0/forward/block.a#0:output"
