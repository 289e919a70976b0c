"""Several models trained beside each other: each recording has what belongs to its own, and training goes on."""

import threading

import numpy as np
import paddle
import pytest
import torch

from reprod_log import align, watch

X = np.linspace(-1, 1, 24, dtype="float32").reshape(3, 8)


class Torch:
    def __init__(self):
        self.model = torch.nn.Linear(8, 4)
        torch.nn.init.constant_(self.model.weight, 0.1)
        torch.nn.init.constant_(self.model.bias, 0.2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def train(self):
        loss = (self.model(torch.tensor(X)) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    @staticmethod
    def replaced():
        scaler = torch.amp.GradScaler
        return torch.autograd.backward, torch.autograd.grad, scaler.scale, scaler.unscale_, scaler.step


class Paddle:
    def __init__(self):
        fixed = [paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(value)) for value in (0.1, 0.2)]
        self.model = paddle.nn.Linear(8, 4, *fixed)
        self.optimizer = paddle.optimizer.SGD(0.1, self.model.parameters())

    def train(self):
        loss = (self.model(paddle.to_tensor(X)) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.clear_grad()

    @staticmethod
    def replaced():
        engine = paddle.base.core.eager
        return engine.run_backward, engine.run_partial_grad, paddle.amp.GradScaler.scale, paddle.amp.GradScaler.step


both = pytest.mark.parametrize("kind", [Torch, Paddle])


def alone(kind, steps=3, **options):
    side = kind()
    with watch(side.model, optimizer=side.optimizer, **options) as run:
        for _ in range(steps):
            side.train()
    return run.recording


@both
@pytest.mark.parametrize(
    "options", [{}, {"phases": ["loss"]}, {"phases": ["loss", "forward"], "layers": ["*"]}], ids=["all", "loss", "some"]
)
def test_losses_are_each_model_s_own_when_two_are_trained_in_turn(kind, options):
    one, other = kind(), kind()
    with (
        watch(one.model, optimizer=one.optimizer, **options) as run,
        watch(other.model, optimizer=other.optimizer, **options) as again,
    ):
        for _ in range(3):
            one.train()
            other.train()
    expected = alone(kind, **options)
    assert "step2/loss/loss" in expected
    for recording in (run.recording, again.recording):
        assert recording.keys == expected.keys
        assert align(expected, recording).passed


@both
def test_losses_of_a_model_that_is_not_watched_are_left_out_when_it_is_trained_too(kind):
    side, unwatched = kind(), kind()
    with watch(side.model, optimizer=side.optimizer) as run:
        for _ in range(3):
            unwatched.train()
            side.train()
            unwatched.train()
    assert run.recording.keys == alone(kind).keys


@both
def test_recordings_are_whole_when_models_are_trained_in_threads_of_their_own(kind, tmp_path):
    expected, before = alone(kind, steps=8), kind.replaced()
    made, failed, start = {}, [], threading.Barrier(3)

    def train(number, side):
        try:
            start.wait()
            with watch(side.model, optimizer=side.optimizer, save=tmp_path / str(number)) as run:
                for _ in range(8):
                    side.train()
            made[number] = run.recording
        except Exception as error:  # told below, in the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=train, args=(number, kind())) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for recording in made.values():
        assert recording.keys == expected.keys
        assert align(expected, recording).passed
    assert kind.replaced() == before


@both
def test_nothing_is_raised_when_one_model_is_called_in_several_threads(kind):
    side, failed = kind(), []
    tensor = torch.tensor if kind is Torch else paddle.to_tensor

    def call():
        try:
            for _ in range(10):
                side.model(tensor(X))
        except Exception as error:  # told below, in the test's own thread
            failed.append(error)

    with watch(side.model) as run:
        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
    outputs = [entry for entry in run.recording if entry.key.phase == "forward" and entry.key.role == "output"]
    assert len(outputs) == 30


@both
def test_frameworks_are_as_before_when_watches_end_in_the_order_in_which_they_began(kind):
    before = kind.replaced()
    one, other = kind(), kind()
    first, second = watch(one.model), watch(other.model)
    first.__enter__()
    second.__enter__()
    one.train()
    other.train()
    first.__exit__(None, None, None)
    other.train()
    second.__exit__(None, None, None)
    assert kind.replaced() == before


def test_loss_behind_a_frozen_model_is_recorded_when_only_that_model_is_watched():
    backbone, head = torch.nn.Linear(8, 4).requires_grad_(False), torch.nn.Linear(4, 2)
    with watch(backbone) as run:
        head(backbone(torch.tensor(X))).sum().backward()
    assert "step0/loss/loss" in run.recording
