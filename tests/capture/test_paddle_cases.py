"""What only paddle has: to_static, statistics among the parameters, its own optimizers."""

import numpy as np
import paddle
import pytest
import torch

from reprod_log.capture import watch


class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = paddle.nn.Linear(3, 4)
        self.b = paddle.nn.Linear(4, 2)

    def forward(self, x):
        return self.b(paddle.nn.functional.relu(self.a(x)))


@pytest.mark.parametrize("full_graph", [True, False])
def test_converted_model_is_recorded_at_its_boundary_with_a_note(full_graph):
    model = paddle.jit.to_static(Net(), full_graph=full_graph)
    with watch(model) as run:
        for _ in range(2):
            output = model(paddle.ones([2, 3]))
            output.sum().backward()
    np.testing.assert_array_equal(run.recording["step1/forward/#0:output"].array(), output.numpy())
    assert "step1/gradient/a.weight:raw" in run.recording
    assert not any("/forward/a#" in key for key in run.recording.keys)
    assert any("converted by to_static" in note for note in map(str, run.recording.notes))


def test_converted_model_is_recorded_inside_when_conversion_is_switched_off_as_the_note_says():
    model = paddle.jit.to_static(Net(), full_graph=True)
    paddle.jit.enable_to_static(False)
    try:
        with watch(model) as run:
            model(paddle.ones([2, 3]))
    finally:
        paddle.jit.enable_to_static(True)
    assert "step0/forward/a#0:output" in run.recording
    assert run.recording.notes == ()


def test_statistics_are_buffers_and_not_parameters():
    model = paddle.nn.BatchNorm1D(3)
    with watch(model) as run:
        model(paddle.randn([4, 3])).sum().backward()
    phases = {entry.key.path: entry.key.phase for entry in run.recording if entry.key.phase in ("parameter", "buffer")}
    assert phases == {"weight": "parameter", "bias": "parameter", "_mean": "buffer", "_variance": "buffer"}


def test_wrapper_does_not_show_in_the_names():
    model = paddle.DataParallel(Net())
    with watch(model) as run:
        model(paddle.ones([2, 3]))
    assert "step0/forward/a#0:output" in run.recording
    assert not any("_layers" in key for key in run.recording.keys)


def test_rate_of_each_group_is_what_paddle_uses():
    model = Net()
    schedule = paddle.optimizer.lr.StepDecay(0.1, step_size=1, gamma=0.5)
    groups = [{"params": model.a.parameters(), "learning_rate": 0.1}, {"params": model.b.parameters()}]
    optimizer = paddle.optimizer.SGD(parameters=groups, learning_rate=schedule)
    with watch(model, optimizer=optimizer) as run:
        for _ in range(2):
            model(paddle.ones([2, 3])).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            schedule.step()
    for step, (first, second) in enumerate([(0.01, 0.1), (0.005, 0.05)]):
        rates = [float(run.recording[f"step{step}/lr/optimizer:group{group}"].array()) for group in (0, 1)]
        assert rates == pytest.approx([first, second])
        for name, rate in (("a.weight", first), ("b.weight", second)):
            update = run.recording[f"step{step}/update/{name}"].array()
            gradient = run.recording[f"step{step}/gradient/{name}:raw"].array()
            np.testing.assert_allclose(update, -rate * gradient, rtol=1e-4, atol=1e-8)


def test_multiplier_of_a_single_parameter_is_kept_with_the_optimizer():
    model = paddle.nn.Linear(3, 2, weight_attr=paddle.ParamAttr(learning_rate=0.1))
    optimizer = paddle.optimizer.SGD(parameters=model.parameters(), learning_rate=1.0)
    with watch(model, optimizer=optimizer) as run:
        model(paddle.ones([2, 3])).sum().backward()
        optimizer.step()
    described = run.recording.provenance.extra["optimizers"]["optimizer"]
    multipliers = dict(zip(described["parameters"], described["learning_rate_multipliers"], strict=True))
    assert multipliers == {"weight": 0.1, "bias": 1.0}


PAIRS = {
    "Momentum": (
        lambda p: paddle.optimizer.Momentum(0.1, parameters=p, momentum=0.9),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    ),
    "Adam": (lambda p: paddle.optimizer.Adam(0.1, parameters=p), lambda p: torch.optim.Adam(p, 0.1)),
    "AMSGrad": (
        lambda p: paddle.optimizer.Adam(0.1, parameters=p, amsgrad=True),
        lambda p: torch.optim.Adam(p, 0.1, amsgrad=True),
    ),
    "Adagrad": (
        lambda p: paddle.optimizer.Adagrad(0.1, parameters=p, epsilon=1e-10),
        lambda p: torch.optim.Adagrad(p, 0.1),
    ),
    "Adamax": (lambda p: paddle.optimizer.Adamax(0.1, parameters=p), lambda p: torch.optim.Adamax(p, 0.1)),
    "Adadelta": (
        lambda p: paddle.optimizer.Adadelta(0.1, parameters=p, rho=0.9, epsilon=1e-6),
        lambda p: torch.optim.Adadelta(p, 0.1, rho=0.9, eps=1e-6),
    ),
    "RMSProp": (
        lambda p: paddle.optimizer.RMSProp(0.01, parameters=p, rho=0.9, epsilon=1e-12),
        lambda p: torch.optim.RMSprop(p, 0.01, alpha=0.9, eps=1e-6),
    ),
    "RMSProp with momentum": (
        lambda p: paddle.optimizer.RMSProp(0.01, parameters=p, rho=0.9, epsilon=1e-12, momentum=0.5, centered=True),
        lambda p: torch.optim.RMSprop(p, 0.01, alpha=0.9, eps=1e-6, momentum=0.5, centered=True),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_optimizer_state_has_the_names_and_values_of_torch(name):
    make_paddle, make_torch = PAIRS[name]
    torch.manual_seed(0)
    reference, candidate = torch.nn.Linear(3, 3), paddle.nn.Linear(3, 3)
    candidate.weight.set_value(reference.weight.detach().numpy().T)
    candidate.bias.set_value(reference.bias.detach().numpy())
    batch = np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
    recordings = []
    for model, optimizer, x in (
        (reference, make_torch(reference.parameters()), torch.from_numpy(batch)),
        (candidate, make_paddle(candidate.parameters()), paddle.to_tensor(batch)),
    ):
        with watch(model, optimizer=optimizer, phases=["optimizer"]) as run:
            for _ in range(3):
                (model(x) ** 2).mean().backward()
                optimizer.step()
                (optimizer.zero_grad if hasattr(optimizer, "zero_grad") else optimizer.clear_grad)()
        recordings.append(run.recording)
    ours, theirs = recordings
    # RMSProp adds its epsilon inside the root in paddle and outside of it in torch.
    assert set(ours.keys) == set(theirs.keys)
    for entry in ours:
        value = theirs[entry.key].array()
        value = value.T if entry.key.path == "weight" else value
        np.testing.assert_allclose(
            value, entry.array(), rtol=2e-2 if "RMS" in name else 1e-3, atol=1e-6, err_msg=str(entry.key)
        )
        if "optimizer_step" in theirs[entry.key].meta:
            assert theirs[entry.key].meta["optimizer_step"] == entry.meta["optimizer_step"]
