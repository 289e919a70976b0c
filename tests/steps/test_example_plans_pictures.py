"""MVF and DiscoGAN as plans, right and as published."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import align_example, cause

from reprod_log.verdict import Status


@pytest.mark.whole
def test_mvf_is_aligned(tmp_path: Path) -> None:
    found = align_example("mvf", tmp_path, "--only", "forward", "--only", "metric", code=0)
    assert "step0/forward/stages.3.2.fusion.time#0:output" in {one.key for one in found["forward"].verdict.judgements}
    assert found["metric"].comparison.rows[0].measurement is not None
    assert found["metric"].comparison.rows[0].measurement.reference.mean > 0


@pytest.mark.whole
def test_mvf_as_published_cannot_see_a_missing_weight_decay(tmp_path: Path) -> None:
    found = align_example("mvf", tmp_path, "--as-published", "--only", "backward", "--only", "no-decay", code=4)
    for alignment in found.values():
        assert alignment.status is Status.UNPROVEN
        assert cause(alignment).startswith("loss_* hardly moves")


@pytest.mark.whole
def test_discogan_is_aligned(tmp_path: Path) -> None:
    found = align_example("discogan", tmp_path, "--only", "backward", "--only", "losses", code=0)
    assert "step4/loss/loss" in {one.key for one in found["backward"].verdict.judgements}


def test_discogan_as_published_names_the_weights_that_were_loaded_twice(tmp_path: Path) -> None:
    found = align_example("discogan", tmp_path, "--as-published", "--only", "forward", code=1)
    # The last of each overwrites the first: both mistakes are named.
    both = "generator_A, discriminator_A in the candidate hold the values of generator_B, discriminator_B"
    assert cause(found["forward"]) == f"the weights of {both}"
