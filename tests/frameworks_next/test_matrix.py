"""Any two frameworks, either way round, and two of the same: right ports pass, wrong ones are found and placed."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import matrix
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from sampling import WHOLE, sampled

CELLS = [" ".join(cell) for cell in product(matrix.FRAMEWORKS, matrix.FRAMEWORKS, matrix.BATCHES)]


# Thirteen and the sixteen cells of a row have no common factor, so every framework comes on both sides.
@pytest.mark.parametrize("cell", sampled(CELLS, 13))
def test_right_port_passes_and_wrong_one_is_placed(cell):
    matrix.check(*cell.split())


@pytest.mark.parametrize("other", matrix.FRAMEWORKS if WHOLE else ["nnx"])
def test_keras_on_jax_is_compared_with_the_others(other):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, Path(matrix.__file__), "keras", other]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
