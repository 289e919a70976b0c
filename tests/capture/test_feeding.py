"""Inputs given by name, in order or alone reach the model; wrong ones are named."""

import numpy as np
import pytest

from reprod_log.capture.feeding import feed
from reprod_log.errors import CaptureError


@pytest.fixture
def model(lab):
    class TwoInputs(lab.Module):
        def __init__(self):
            super().__init__()
            self.fc = lab.nn.Linear(3, 2)

        def forward(self, x, mask, *, scale=1.0):
            first = mask[0] if isinstance(mask, (list, tuple)) else mask
            return self.fc(x * first) * scale

    return TwoInputs()


X, MASK = np.ones((4, 3), "float32"), np.arange(3, dtype="float32")


def test_inputs_may_come_by_name_or_in_order(lab, model):
    expected = model(lab.of(X), lab.of(MASK)).detach().numpy()
    by_name = feed(model, {"mask": MASK, "x": X, "scale": 1.0})
    in_order = feed(model, (X, [MASK]))
    for output in (by_name, in_order):
        np.testing.assert_array_equal(output.detach().numpy(), expected)


def test_single_input_needs_no_wrapping(lab):
    layer = lab.nn.Linear(3, 2)
    np.testing.assert_array_equal(feed(layer, X).detach().numpy(), layer(lab.of(X)).detach().numpy())


@pytest.mark.parametrize("inputs", [{"image": X, "mask": MASK}, {"x": X}, (X, MASK, X), X])
def test_wrong_inputs_are_refused_with_the_names_the_model_takes(model, inputs):
    with pytest.raises(CaptureError, match=r"do not fit TwoInputs\.forward.*It takes 'x', 'mask', 'scale'; given were"):
        feed(model, inputs)
