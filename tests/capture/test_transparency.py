"""A watched model computes the same bits, and nothing is left on it afterwards."""

import copy
import gc
import pickle
import weakref
from contextlib import nullcontext

import paddle
import pytest
import torch

from reprod_log.capture import watch


def bits(lab, make, *, watched, shape, steps=3, **options):
    """Losses, gradients, parameters and the next random numbers after training, bit for bit."""
    lab.seed(7)
    model = make()
    optimizer = lab.adamw(model.parameters(), lr=0.01)
    run = watch(model, optimizer=optimizer, **options)
    if watched:
        run.__enter__()
    found = []
    for step in range(steps):
        lab.zero(optimizer)
        loss = (model(lab.tensor(*shape, seed=step)) ** 2).mean()
        loss.backward()
        found.append(loss.detach().numpy().tobytes())
        found += [value.grad.numpy().tobytes() for value in model.parameters() if value.grad is not None]
        optimizer.step()
    if watched:
        run.__exit__(None, None, None)
    found += [value.detach().numpy().tobytes() for value in model.state_dict().values()]
    return [*found, lab.draw(), model.training]


def shared_layer(lab):
    class Shared(lab.Module):
        def __init__(self):
            super().__init__()
            self.a = lab.nn.Linear(4, 4)
            self.b = self.a

        def forward(self, x):
            return self.b(lab.functional.relu(self.a(x))) + self.a(x)

    return Shared()


def checkpointed(lab, reentrant):
    class Checkpointed(lab.Module):
        def __init__(self):
            super().__init__()
            self.stem = lab.nn.Linear(4, 4)
            self.block = lab.nn.Sequential(lab.nn.Linear(4, 4), lab.nn.Dropout(0.5), lab.nn.Linear(4, 4))
            self.head = lab.nn.Linear(4, 2)

        def forward(self, x):
            return self.head(lab.checkpoint(self.block, self.stem(x), reentrant=reentrant))

    return Checkpointed()


CASES = {
    "cnn": (lambda lab: lab.models.Cnn(), (4, 2, 5, 5)),
    "transformer": (lambda lab: lab.nn.Sequential(lab.encoder(), lab.encoder()), (2, 5, 8)),
    "in-place": (lambda lab: lab.models.Mlp(inplace=True), (5, 3)),
    "shared": (shared_layer, (5, 4)),
    "checkpoint": (lambda lab: checkpointed(lab, False), (5, 4)),
    "reentrant": (lambda lab: checkpointed(lab, True), (5, 4)),
}


@pytest.mark.parametrize("options", [{"inputs": True}, {"detail": "summary"}], ids=["full", "summary"])
@pytest.mark.parametrize("case", CASES)
def test_bits_are_the_same_when_watched(lab, case, options):
    make, shape = CASES[case]
    alone = bits(lab, lambda: make(lab), watched=False, shape=shape)
    watched = bits(lab, lambda: make(lab), watched=True, shape=shape, **options)
    assert alone == watched


def left_over(lab, model, optimizer):
    """Everything that watching puts somewhere."""
    if lab.name == "torch":
        hooks = [len(p._backward_hooks or ()) for p in model.parameters()]
        steps = len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)
        patched = (torch.autograd.backward, torch.autograd.grad, *vars(torch.amp.GradScaler).values())
    else:
        hooks = []
        steps = int("step" in vars(optimizer)) + int("minimize" in vars(optimizer))
        engine = paddle.base.core.eager
        patched = (engine.run_backward, engine.run_partial_grad, *vars(paddle.amp.grad_scaler.AmpScaler).values())
    return lab.hooks(model), hooks, steps, patched


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("where", ["nowhere", "body", "forward", "backward"])
def test_everything_is_put_back_when_the_block_ends(lab, trained, where):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    model.fc1.eval()
    before = left_over(lab, model, optimizer)
    raising = lambda *_: (_ for _ in ()).throw(Interrupted(where))  # noqa: E731
    # paddle turns an exception in a hook into an OSError.
    expected = nullcontext() if where == "nowhere" else pytest.raises((Interrupted, OSError), match=where)
    with expected, watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=1)
        if where == "body":
            raise Interrupted(where)
        if where == "forward":
            model.act.forward = raising
        loss = model(lab.tensor(2, 3))
        if where == "backward":
            loss.register_hook(raising)
        loss.sum().backward()
    assert left_over(lab, model, optimizer) == before
    assert model.training
    assert not model.fc1.training
    assert "step0/loss/loss" in run.recording
    assert bool(run.recording.notes) == (where != "nowhere")


def test_exception_is_named_and_what_came_before_it_is_kept(lab):
    model = lab.models.Mlp()
    with pytest.raises(ZeroDivisionError), watch(model) as run:
        model(lab.tensor(2, 3))
        raise ZeroDivisionError("in the loop")
    assert "step0/forward/fc2#0:output" in run.recording
    assert "step 0 was cut short by ZeroDivisionError: in the loop" in map(str, run.recording.notes)
    # What the parameters are when a step breaks off is not what they are at its end.
    assert not any(entry.key.phase == "parameter" for entry in run.recording)


def test_caught_exception_in_forward_does_not_disturb_what_follows(lab):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        with pytest.raises(Exception):  # noqa: B017 (each framework has its own)
            model(lab.tensor(2, 7))
        model(lab.tensor(2, 3))
        for seed in (1, 2):
            lab.zero(optimizer)
            model(lab.tensor(2, 3, seed=seed)).sum().backward()
            optimizer.step()
    assert run.recording.steps == (0, 1)
    # The call after the failed one is again seen to come from outside.
    assert "step0/data/#1:input.0" in run.recording
    assert "step1/forward/fc1#0:output" in run.recording
    assert "step1/data/#0:input.0" in run.recording


def test_model_and_optimizer_are_let_go_when_the_block_ends(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=2)
    alive = [weakref.ref(model), weakref.ref(optimizer)]
    del model, optimizer
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
    assert len(run.recording) > 0


def test_graph_that_outlives_the_block_does_not_hold_the_recording(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        loss = model(lab.tensor(2, 3)).sum()
    array = weakref.ref(run.recording["step0/forward/fc1#0:output"].array())
    del run
    gc.collect()
    assert array() is None
    loss.backward()
    assert model.fc1.weight.grad is not None


def test_memory_does_not_grow_with_the_steps_when_writing_to_disk(lab, trained, tmp_path):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer, save=tmp_path / "rec") as run:
        trained(lab, model, optimizer, steps=3)
        waiting = len(run.session.stage.waiting), len(run._recorder._batch), len(run.session.stage._arrays)
        trained(lab, model, optimizer, steps=6)
        assert (len(run.session.stage.waiting), len(run._recorder._batch), len(run.session.stage._arrays)) == waiting


def test_copy_of_a_watched_model_is_not_recorded(lab):
    model = lab.models.Mlp()
    with watch(model) as run:
        model(lab.tensor(2, 3))
        average = copy.deepcopy(model)
        average(lab.tensor(2, 3))
    assert run.recording.steps == (0,)
    assert "step0/forward/fc1#1:output" not in run.recording


class Picklable(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


def test_watched_model_can_be_pickled():
    model = Picklable()
    with watch(model) as run:
        model(torch.ones(1, 2))
        again = pickle.loads(pickle.dumps(model))
        again(torch.ones(1, 2))
    assert run.recording.steps == (0,)


def test_copy_of_a_watched_model_has_nothing_of_ours(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    before = {name: set(vars(module)) for name, module in named_modules(model)}
    with watch(model, optimizer=optimizer) as run:
        trained(lab, model, optimizer, steps=1)
        copied = copy.deepcopy(model)
        assert "step" not in vars(optimizer)
        trained(lab, copied, lab.sgd(copied.parameters()), steps=2)
    assert run.recording.steps == (0,)
    assert lab.hooks(copied) == 0
    assert {name: set(vars(module)) for name, module in named_modules(copied)} == before


def named_modules(model):
    return model.named_modules() if isinstance(model, torch.nn.Module) else model.named_sublayers(include_self=True)


def test_file_of_a_watched_model_needs_nothing_of_ours(tmp_path):
    model, path = Picklable(), tmp_path / "model.pt"
    with watch(model):
        model(torch.ones(1, 2)).sum().backward()
        torch.save(model, path)
        pickled = pickle.dumps(model)
    # The classes that a file names are what loading it imports.
    assert b"torch.nn.modules.linear" in path.read_bytes()
    assert b"reprod_log" not in path.read_bytes()
    assert b"reprod_log" not in pickled
    assert torch.equal(torch.load(path, weights_only=False).fc.weight, model.fc.weight)


def test_watched_model_can_be_scripted():
    model = Picklable()
    with watch(model) as run:
        expected = model(torch.ones(1, 2))
        assert torch.equal(torch.jit.script(model)(torch.ones(1, 2)), expected)
        model(torch.ones(1, 2))
    assert run.recording.complete
    assert run.recording.steps == (0, 1)


def test_hooks_of_the_user_still_work_and_their_result_is_recorded(lab):
    model = lab.models.Mlp()
    model.fc1.register_forward_hook(lambda module, args, output: output * 0)
    with watch(model) as run:
        model(lab.tensor(2, 3))
    assert not run.recording["step0/forward/fc1#0:output"].array().any()
    assert lab.hooks(model) == 1
