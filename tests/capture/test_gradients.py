"""The named points at which a parameter's gradient is read."""

import numpy as np
import paddle
import pytest
import torch

from reprod_log.capture import watch


def of(recording, phase, role, step=0):
    return {e.key.path: e.array() for e in recording if (e.key.phase, e.key.role, e.key.step) == (phase, role, step)}


def norm(arrays):
    return float(np.sqrt(sum((value.astype(np.float64) ** 2).sum() for value in arrays.values())))


def test_raw_and_clipped_are_told_apart_when_torch_clips():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # Bound before watching, so that no patch of the module could see it being called.
    clip = torch.nn.utils.clip_grad_norm_
    with watch(model, optimizer=optimizer) as run:
        model(torch.ones(4, 3)).sum().backward()
        total = float(clip(model.parameters(), 0.5))
        optimizer.step()
    raw, clipped = of(run.recording, "gradient", "raw"), of(run.recording, "clip", "clipped")
    assert norm(raw) == pytest.approx(total, rel=1e-5)
    assert norm(clipped) == pytest.approx(0.5, rel=1e-4)
    phases = [entry.key.phase for entry in run.recording]
    assert phases.index("gradient") < phases.index("clip") < phases.index("lr") < phases.index("update")


@pytest.mark.parametrize("kind", ["ClipGradByGlobalNorm", "ClipGradByNorm", "ClipGradByValue"])
def test_raw_and_clipped_are_told_apart_when_paddle_clips(kind):
    model = paddle.nn.Linear(3, 2)
    clip = getattr(paddle.nn, kind)(0.5)
    optimizer = paddle.optimizer.SGD(parameters=model.parameters(), learning_rate=0.1, grad_clip=clip)
    call = type(clip).__call__
    with watch(model, optimizer=optimizer) as run:
        model(paddle.ones([4, 3])).sum().backward()
        raw_now = {name: value.grad.numpy().copy() for name, value in model.named_parameters()}
        optimizer.step()
    raw, clipped = of(run.recording, "gradient", "raw"), of(run.recording, "clip", "clipped")
    for name, value in raw_now.items():
        np.testing.assert_array_equal(raw[name], value)
    if kind == "ClipGradByValue":
        assert all((value == 0.5).all() for value in clipped.values())
    elif kind == "ClipGradByNorm":
        assert all(norm({"": value}) == pytest.approx(0.5, rel=1e-5) for value in clipped.values())
    else:
        assert norm(clipped) == pytest.approx(0.5, rel=1e-5)
    for name, value in clipped.items():
        np.testing.assert_allclose(of(run.recording, "update", "")[name], -0.1 * value, rtol=1e-5)
    phases = [entry.key.phase for entry in run.recording]
    assert phases.index("gradient") < phases.index("clip") < phases.index("lr") < phases.index("update")
    assert type(clip).__call__ is call


def test_nothing_is_said_about_clipping_when_nothing_was_clipped(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=2)
    assert not of(run.recording, "clip", "clipped")


def test_gradient_overwritten_before_the_update_is_seen(lab):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters(), lr=1.0)
    injected = np.full((2,), 7, "float32")
    with watch(model, optimizer=optimizer) as run:
        model(lab.tensor(2, 3)).sum().backward()
        model.fc2.bias.grad = lab.of(injected)
        optimizer.step()
    np.testing.assert_array_equal(of(run.recording, "clip", "clipped")["fc2.bias"], injected)
    np.testing.assert_array_equal(of(run.recording, "gradient", "raw")["fc2.bias"], [2, 2])


def test_stale_gradient_of_another_step_is_not_recorded_again(lab):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        model(lab.tensor(2, 3)).sum().backward()
        optimizer.step()
        model.fc2(lab.tensor(2, 4)).sum().backward()
        optimizer.step()
    assert set(of(run.recording, "gradient", "raw", step=1)) == {"fc2.weight", "fc2.bias"}


def test_sparse_gradient_is_recorded_dense(lab):
    model = lab.nn.Embedding(5, 2, sparse=True)
    with watch(model) as run:
        model(lab.of(np.array([1, 3, 3]))).sum().backward()
    np.testing.assert_array_equal(
        of(run.recording, "gradient", "raw")["weight"], [[0, 0], [1, 1], [0, 0], [2, 2], [0, 0]]
    )


def scaled_training(steps, *, watched, spoil=()):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    run = watch(model, optimizer=optimizer)
    if watched:
        run.__enter__()
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.ones(4, 3) * (step + 1)).float().pow(2).mean()
        scaler.scale(loss).backward()
        if step in spoil:
            model[0].weight.grad[0, 0] = float("inf")
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        scaler.step(optimizer)
        scaler.update()
    if watched:
        run.__exit__(None, None, None)
    return run, [value.detach().numpy().tobytes() for value in model.parameters()]


def test_gradient_scaler_has_three_reading_points():
    run, _ = scaled_training(1, watched=True)
    raw, unscaled = of(run.recording, "gradient", "raw"), of(run.recording, "gradient", "unscaled")
    clipped = of(run.recording, "clip", "clipped")
    for name, value in raw.items():
        np.testing.assert_array_equal(unscaled[name] * 1024, value)
    assert norm(clipped) == pytest.approx(1e-3, rel=1e-3)
    assert run.recording["step0/gradient/0.weight:unscaled"].meta["scale"] == 1024.0


def test_loss_is_the_one_before_scaling():
    run, _ = scaled_training(1, watched=True)
    assert [str(entry.key) for entry in run.recording if entry.key.phase == "loss"] == ["step0/loss/loss"]
    assert float(run.recording["step0/loss/loss"].array()) < 10


def test_autocast_outputs_keep_their_dtype():
    run, _ = scaled_training(1, watched=True)
    assert run.recording["step0/forward/0#0:output"].dtype == "bfloat16"
    assert run.recording["step0/data/#0:input.0"].dtype == "float32"
    assert run.recording["step0/gradient/0.weight:raw"].dtype == "float32"


def test_training_with_a_scaler_has_the_same_bits_when_watched():
    assert scaled_training(3, watched=True, spoil=(1,))[1] == scaled_training(3, watched=False, spoil=(1,))[1]


def test_update_skipped_for_infinite_gradients_ends_the_step_and_is_noted():
    run, _ = scaled_training(3, watched=True, spoil=(1,))
    assert run.recording.steps == (0, 1, 2)
    assert not of(run.recording, "update", "", step=1)
    assert of(run.recording, "update", "", step=2)
    assert any(note.startswith("step 1: the gradient scaler found infinite") for note in map(str, run.recording.notes))


def test_gradient_scaler_of_paddle_has_its_reading_points(monkeypatch):
    with monkeypatch.context() as on_cpu:
        # On CPU paddle switches its scaler off, unless it believes that it builds a graph.
        on_cpu.setattr("paddle.amp.grad_scaler.in_dynamic_mode", lambda: False)
        scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)
    assert scaler.is_enable()
    model = paddle.nn.Linear(3, 2)
    optimizer = paddle.optimizer.SGD(parameters=model.parameters())
    with watch(model, optimizer=optimizer) as run:
        for factor in (1.0, float("inf")):
            # Its own `scale` would notice the CPU and switch it off.
            (model(paddle.ones([2, 3]) * factor).mean() * scaler._scale).backward()
            scaler.step(optimizer)
            optimizer.clear_grad()
            if factor == 1.0:
                # After an infinity its `update` prints a number in a way that numpy refuses.
                scaler.update()
    raw, unscaled = of(run.recording, "gradient", "raw"), of(run.recording, "gradient", "unscaled")
    assert raw
    for name, value in raw.items():
        np.testing.assert_array_equal(unscaled[name] * 1024, value)
    assert run.recording.steps == (0, 1)
    assert any(note.startswith("step 1: the gradient scaler found infinite") for note in map(str, run.recording.notes))


def test_scaler_of_paddle_that_is_switched_off_changes_nothing():
    model = paddle.nn.Linear(3, 2)
    optimizer = paddle.optimizer.SGD(parameters=model.parameters())
    scaler = paddle.amp.GradScaler(enable=False)
    with watch(model, optimizer=optimizer) as run:
        for _ in range(2):
            scaler.scale(model(paddle.ones([2, 3])).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.clear_grad()
    assert run.recording.steps == (0, 1)
    assert "step1/loss/loss" in run.recording
    assert not of(run.recording, "gradient", "unscaled")


def test_minimize_of_paddle_is_an_update():
    model = paddle.nn.Linear(3, 2)
    optimizer = paddle.optimizer.Adam(parameters=model.parameters())
    with watch(model, optimizer=optimizer) as run:
        for _ in range(2):
            loss = model(paddle.ones([2, 3])).mean()
            loss.backward()
            optimizer.minimize(loss)
            model.clear_gradients()
    assert run.recording.steps == (0, 1)
    assert "step1/update/weight" in run.recording


def test_local_and_reduced_gradients_are_told_apart_when_there_are_several_processes(monkeypatch, lab, tmp_path):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = lab.models.Mlp()
    with watch(model, save=tmp_path / "rec") as run:
        model(lab.tensor(2, 3)).sum().backward()
    assert set(of(run.recording, "gradient", "local")) == set(of(run.recording, "gradient", "raw"))
    assert (run.recording.provenance.extra["rank"], run.recording.provenance.extra["world_size"]) == (1, 2)
    assert (tmp_path / "rec" / "rank1" / "manifest.json").is_file()
