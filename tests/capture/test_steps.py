"""When a step ends and the next one begins."""

import numpy as np
import pytest

from reprod_log.capture import watch
from reprod_log.errors import UsageError


def losses(recording):
    return {str(entry.key): float(entry.array()) for entry in recording if entry.key.phase == "loss"}


def outputs(recording, step):
    return [str(e.key) for e in recording if e.key.step == step and e.key.phase == "forward" and e.key.role == "output"]


def test_batches_accumulated_into_one_update_are_one_step(lab):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer, layers="fc2") as run:
        for update in range(2):
            lab.zero(optimizer)
            for micro in range(3):
                model(lab.tensor(2, 3, seed=micro + 3 * update)).mean().backward()
            total = model.fc2.bias.grad.numpy().copy()
            optimizer.step()
    assert run.recording.steps == (0, 1)
    assert outputs(run.recording, 1) == [f"step1/forward/fc2#{call}:output" for call in range(3)]
    np.testing.assert_array_equal(run.recording["step1/gradient/fc2.bias:raw"].array(), total)
    assert set(losses(run.recording)) == {f"step{step}/loss/loss{call}" for step in (0, 1) for call in ("", "#1", "#2")}


def test_loss_logged_after_the_update_belongs_to_its_step_and_stands_before_the_backward(lab):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        for step in range(2):
            lab.zero(optimizer)
            loss = model(lab.tensor(2, 3, seed=step)).mean()
            loss.backward()
            optimizer.step()
            run.loss(loss.item())
            run.log("part", loss.detach() * 2)
    assert set(losses(run.recording)) == {f"step{s}/loss/{name}" for s in (0, 1) for name in ("loss", "part")}
    for step in (0, 1):
        phases = [entry.key.phase for entry in run.recording if entry.key.step == step]
        assert max(i for i, p in enumerate(phases) if p == "loss") < phases.index("backward")


def gan(lab):
    generator, discriminator = lab.nn.Linear(2, 3), lab.nn.Linear(3, 1)
    return {"g": generator, "d": discriminator}, {
        "g": lab.sgd(generator.parameters()),
        "d": lab.sgd(discriminator.parameters()),
    }


def half(lab, models, optimizers, which):
    lab.zero(optimizers[which])
    models["d"](models["g"](lab.tensor(4, 2))).mean().backward()
    optimizers[which].step()


def test_gan_has_a_step_for_each_update(lab):
    models, optimizers = gan(lab)
    with watch(models, optimizer=optimizers) as run:
        for _ in range(2):
            half(lab, models, optimizers, "d")
            half(lab, models, optimizers, "g")
    assert run.recording.steps == (0, 1, 2, 3)
    updated = {e.key.step: e.key.path.split(".")[0] for e in run.recording if e.key.phase == "update"}
    assert updated == {0: "d", 1: "g", 2: "d", 3: "g"}
    assert "step0/lr/d:group0" in run.recording
    assert "step0/lr/g:group0" not in run.recording


def test_gan_whose_optimizers_take_turns_has_a_step_for_each_iteration(lab):
    models, optimizers = gan(lab)
    with watch(models, optimizer=optimizers) as run:
        for iteration in range(5):
            half(lab, models, optimizers, "d" if iteration % 3 == 0 else "g")
    assert run.recording.steps == (0, 1, 2, 3, 4)


def test_one_optimizer_can_be_named_to_end_the_step(lab):
    models, optimizers = gan(lab)
    with watch(models, optimizer=optimizers, step_after="g") as run:
        for _ in range(2):
            half(lab, models, optimizers, "d")
            half(lab, models, optimizers, "g")
    assert run.recording.steps == (0, 1)
    assert outputs(run.recording, 0) == [f"step0/forward/{name}#{call}:output" for call in (0, 1) for name in "gd"]
    assert "step0/gradient/d.weight#1:raw" in run.recording
    with pytest.raises(UsageError, match="not an optimizer here; there are 'g', 'd'"):
        watch(models, optimizer=optimizers, step_after="x")


def test_step_block_holds_whatever_happens_in_it_together(lab):
    models, optimizers = gan(lab)
    with watch(models, optimizer=optimizers) as run:
        for _ in range(2):
            with run.step():
                half(lab, models, optimizers, "d")
                half(lab, models, optimizers, "g")
    assert run.recording.steps == (0, 1)
    assert run.step_number == 2


def test_two_optimizers_that_step_together_share_a_step(lab):
    model = lab.models.Mlp()
    both = [lab.sgd(model.fc1.parameters()), lab.sgd(model.fc2.parameters(), lr=0.2)]
    with watch(model, optimizer=both) as run:
        for step in range(2):
            model(lab.tensor(2, 3, seed=step)).mean().backward()
            for optimizer in both:
                optimizer.step()
                lab.zero(optimizer)
    assert run.recording.steps == (0, 1)
    assert run.recording["step1/lr/optimizer1:group0"].array() == 0.2
    assert {e.key.path for e in run.recording if e.key.phase == "update" and e.key.step == 1} == {
        "fc1.weight",
        "fc1.bias",
        "fc2.weight",
        "fc2.bias",
    }


def test_every_call_is_a_step_when_there_is_no_optimizer(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        for step in range(3):
            model(lab.tensor(2, 3, seed=step))
    assert run.recording.steps == (0, 1, 2)


def test_two_models_called_in_turn_share_a_step_when_there_is_no_optimizer(lab):
    models, _ = gan(lab)
    with watch(models) as run:
        for step in range(2):
            models["d"](models["g"](lab.tensor(4, 2, seed=step)))
    assert run.recording.steps == (0, 1)
    assert outputs(run.recording, 1) == ["step1/forward/g#0:output", "step1/forward/d#0:output"]


def test_gradients_go_to_the_step_of_their_forward_when_backward_comes_later(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        first, second = model(lab.tensor(2, 3)), model(lab.tensor(2, 3, seed=1))
        (first - second).sum().backward()
    assert (run.recording["step0/backward/fc2#0:output"].array() == 1).all()
    assert (run.recording["step1/backward/fc2#0:output"].array() == -1).all()


def test_end_step_ends_it_at_once(lab):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        model(lab.tensor(2, 3))
        run.end_step()
        model(lab.tensor(2, 3))
    assert run.recording.steps == (0, 1)


def test_batch_logged_by_hand_begins_the_next_step(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        for step in range(2):
            run.log("label", np.array([step]), phase="data")
            trained(lab, model, optimizer, steps=1)
            run.log("accuracy", 0.5, phase="metric")
    assert [float(run.recording[f"step{step}/data/label"].array()[0]) for step in (0, 1)] == [0, 1]
    assert "step1/metric/accuracy" in run.recording


def test_closure_evaluated_several_times_inside_an_update_is_one_step(lab):
    import paddle
    import torch

    model = lab.models.Mlp()
    if lab.name == "torch":
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    else:
        optimizer = paddle.optimizer.LBFGS(parameters=model.parameters(), max_iter=3)

    def closure():
        lab.zero(optimizer)
        loss = (model(lab.tensor(5, 3)) ** 2).mean()
        loss.backward()
        return loss

    with watch(model, optimizer=optimizer, phases=["forward", "gradient", "update", "loss"]) as run:
        for _ in range(2):
            optimizer.step(closure)
    assert run.recording.steps == (0, 1)
    assert len(outputs(run.recording, 0)) > 4
    assert "step0/update/fc1.weight" in run.recording
    assert "step0/gradient/fc1.weight:raw" in run.recording
