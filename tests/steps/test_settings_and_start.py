"""Data, optimizer, regularization and initial weights: right pairs pass, each mistake fails where it is."""

from typing import Any

import numpy as np
import paddle
import pytest
import torch
from small_pair import PaddleNet, TorchNet, paddle_trainer, pair, torch_trainer

from models_pairs import unet
from reprod_log import Alignment
from reprod_log.errors import UsageError
from reprod_log.steps import data, init, optimizer, regularization
from reprod_log.steps.trainer import Trainer


def first(alignment: Alignment) -> str:
    assert not alignment.passed
    assert alignment.first_divergence is not None
    return alignment.first_divergence.key


# data


class Pictures:
    """A data set of made pictures and labels; `torch_tensors` gives them as torch would."""

    def __init__(self, length: int = 20, *, torch_tensors: bool = False, order: Any = None) -> None:
        self.torch_tensors = torch_tensors
        self.order = list(range(length)) if order is None else order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, place: int) -> dict[str, Any]:
        number = self.order[place]
        image = np.random.default_rng(number).random((3, 4, 4)).astype(np.float32)
        return {"image": torch.from_numpy(image) if self.torch_tensors else image, "label": number % 5}


def test_data_passes_with_samples_and_batches_of_two_frameworks() -> None:
    ours = {
        "dataset": Pictures(torch_tensors=True),
        "loader": torch.utils.data.DataLoader(Pictures(), batch_size=4),  # type: ignore[arg-type]
    }
    theirs = {"dataset": Pictures(), "loader": [_batch(range(start, start + 4)) for start in range(0, 20, 4)]}
    alignment = data.run(ours, theirs)
    assert alignment.passed
    keys = [one.key for one in alignment.verdict.judgements]
    assert {"step0/data/dataset.length", "step19/data/dataset:image", "step3/data/loader:label"} <= set(keys)


def _batch(places: Any) -> dict[str, Any]:
    samples = [Pictures()[place] for place in places]
    return {"image": np.stack([one["image"] for one in samples]), "label": np.array([one["label"] for one in samples])}


def test_data_in_another_order_fails_at_the_first_moved_sample() -> None:
    order = [0, 1, 2, 4, 3, *range(5, 20)]
    assert first(data.run(Pictures(), Pictures(order=order), samples=20)) == "step3/data/dataset:image"


def test_missing_last_sample_fails_by_length() -> None:
    assert first(data.run(Pictures(20), Pictures(19))) == "step0/data/dataset.length"


def test_the_last_sample_is_among_those_compared() -> None:
    order = [*range(99), 7]
    assert first(data.run(Pictures(100), Pictures(100, order=order), samples=5)) == "step99/data/dataset:image"


def test_what_has_no_samples_is_refused() -> None:
    with pytest.raises(UsageError, match="neither a data set"):
        data.record(3)


# optimizer


def test_right_optimizer_passes_on_models_with_other_names() -> None:
    ours, theirs = unet.build_torch(), unet.build_paddle()
    sides = (
        Trainer(ours, optimizer=lambda one: torch.optim.AdamW(one.parameters(), lr=1e-3, weight_decay=0.05)),
        Trainer(
            theirs,
            optimizer=lambda one: paddle.optimizer.AdamW(1e-3, parameters=one.parameters(), weight_decay=0.05),
        ),
    )
    before = theirs.parameters()[0].numpy().copy()
    assert optimizer.run(*sides, inputs=unet.make_inputs(0)).passed
    assert np.array_equal(theirs.parameters()[0].numpy(), before)


def momentum(model: Any, **settings: Any) -> Trainer:
    def made(one: Any) -> Any:
        options = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 1e-2, **settings}
        return paddle.optimizer.Momentum(parameters=one.parameters(), **options)

    return Trainer(model, optimizer=made)


MISTAKES = {
    "other rate": ({"learning_rate": 0.06}, "step0/optimizer/conv.weight:lr"),
    "no decay": ({"weight_decay": None}, "step0/optimizer/conv.weight:l2"),
    "l1 instead of l2": ({"weight_decay": paddle.regularizer.L1Decay(1e-2)}, "step0/optimizer/conv.weight:l1"),
    "other momentum": ({"momentum": 0.8}, "step0/optimizer/optimizer.momentum:setting"),
    "nesterov": ({"use_nesterov": True}, "step0/update/conv.weight"),
    "clipping": ({"grad_clip": paddle.nn.ClipGradByGlobalNorm(1.0)}, "step0/update/conv.weight"),
}


def test_right_momentum_passes() -> None:
    ours, theirs = pair()
    alignment = optimizer.run(torch_trainer(ours), momentum(theirs))
    assert alignment.passed
    assert alignment.policy.name == "calibrated"


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_in_the_optimizer_fails_where_it_is(name: str) -> None:
    settings, where = MISTAKES[name]
    ours, theirs = pair()
    assert first(optimizer.run(torch_trainer(ours), momentum(theirs, **settings))) == where


def test_two_groups_equal_a_function_that_chooses_who_decays() -> None:
    ours, theirs = pair()

    def groups(one: Any, *, bias_decays: bool) -> Any:
        named = list(one.named_parameters())
        return torch.optim.AdamW(
            [
                {"params": [p for name, p in named if not name.endswith("bias")], "weight_decay": 0.1},
                {"params": [p for name, p in named if name.endswith("bias")], "weight_decay": 0.1 * bias_decays},
            ],
            lr=1e-3,
        )

    def chosen(one: Any) -> Any:
        biases = {parameter.name for name, parameter in one.named_parameters() if name.endswith("bias")}
        return paddle.optimizer.AdamW(
            1e-3,
            parameters=one.parameters(),
            weight_decay=0.1,
            apply_decay_param_fun=lambda name: name not in biases,
        )

    candidate = Trainer(theirs, optimizer=chosen)
    right = Trainer(ours, optimizer=lambda one: groups(one, bias_decays=False))
    wrong = Trainer(ours, optimizer=lambda one: groups(one, bias_decays=True))
    assert optimizer.run(right, candidate).passed
    assert first(optimizer.run(wrong, candidate)) == "step0/optimizer/conv.bias:decoupled"


def test_parameter_that_the_optimizer_was_not_given_fails() -> None:
    ours, theirs = pair()

    def without_head(one: Any) -> Any:
        return paddle.optimizer.Momentum(
            0.05, 0.9, parameters=[*one.conv.parameters(), *one.norm.parameters()], weight_decay=1e-2
        )

    alignment = optimizer.run(torch_trainer(ours), Trainer(theirs, optimizer=without_head))
    assert not alignment.passed
    assert "step0/optimizer/head.weight:lr" in {one.key for one in alignment.comparison.unmatched}


# regularization


def test_regularizer_of_a_parameter_replaces_the_optimizers() -> None:
    ours, theirs = pair()
    assert regularization.run(torch_trainer(ours), paddle_trainer(theirs)).passed
    theirs.hidden.weight.regularizer = paddle.regularizer.L2Decay(0.5)
    alignment = regularization.run(torch_trainer(ours), paddle_trainer(theirs))
    failed = [one.key for one in alignment.verdict.judgements if not one.status.passed]
    assert failed == ["step0/optimizer/hidden.weight:l2"]


def test_decoupled_decay_is_not_l2() -> None:
    ours, theirs = pair()
    sides = (
        Trainer(ours, optimizer=lambda one: torch.optim.AdamW(one.parameters(), weight_decay=0.01)),
        Trainer(theirs, optimizer=lambda one: paddle.optimizer.Adam(parameters=one.parameters(), weight_decay=0.01)),
    )
    assert first(regularization.run(*sides)) == "step0/optimizer/conv.weight:l2"


def test_term_of_the_loop_counts_as_the_optimizers_own() -> None:
    ours, theirs = pair()

    def l1(model: Any) -> Any:
        return 1e-3 * sum(parameter.abs().sum() for parameter in model.parameters())

    side = Trainer(ours, optimizer=lambda one: torch.optim.SGD(one.parameters(), lr=0.1), penalty=l1)
    decay = paddle.regularizer.L1Decay(1e-3)
    right = Trainer(
        theirs, optimizer=lambda one: paddle.optimizer.SGD(0.1, parameters=one.parameters(), weight_decay=decay)
    )
    assert regularization.run(side, right).passed
    stronger = Trainer(
        theirs, optimizer=lambda one: paddle.optimizer.SGD(0.1, parameters=one.parameters(), weight_decay=2e-3)
    )
    assert first(regularization.run(side, stronger)) == "step0/optimizer/conv.weight:l1"


def test_penalty_that_is_neither_l1_nor_l2_is_refused() -> None:
    ours, _ = pair()

    def cubic(model: Any) -> Any:
        return sum((parameter**3).sum() for parameter in model.parameters())

    side = Trainer(ours, optimizer=lambda one: torch.optim.SGD(one.parameters(), lr=0.1), penalty=cubic)
    with pytest.raises(UsageError, match="neither L1 nor L2"):
        regularization.record(side)


def test_layers_of_other_names_are_lined_up_by_a_call() -> None:
    ours, theirs = unet.build_torch(), unet.build_paddle()
    sides = (torch_trainer(ours), paddle_trainer(theirs))
    assert regularization.run(*sides, inputs=unet.make_inputs(0)).passed


def test_side_without_an_optimizer_is_refused() -> None:
    ours, _ = pair()
    with pytest.raises(UsageError, match="a Trainer with an optimizer"):
        regularization.record(ours)  # type: ignore[arg-type]


# init


class PaddleLikeTorch(PaddleNet):
    """The paddle port with torch's initial distributions."""

    def __init__(self, *, normal: bool = False) -> None:
        super().__init__()
        for layer, fan_in in ((self.conv, 27), (self.hidden, 96), (self.head, 12)):
            bound = fan_in**-0.5
            draw = paddle.nn.initializer.Uniform(-bound, bound)
            if normal:
                draw = paddle.nn.initializer.Normal(0.0, bound / 3**0.5)
            for parameter in layer.parameters():
                draw(parameter)


def test_equal_distributions_pass_and_say_how_many_draws() -> None:
    alignment = init.run(TorchNet, PaddleLikeTorch, draws=40)
    assert alignment.passed
    assert any("40 draws" in note for note in map(str, alignment.comparison.notes))
    assert "step0/parameter/Linear.weight.12x96:std" in {one.key for one in alignment.verdict.judgements}


def test_default_initialisation_of_paddle_is_not_torchs() -> None:
    alignment = init.run(TorchNet, PaddleNet, draws=20)
    failed = {one.key for one in alignment.verdict.judgements if not one.status.passed}
    assert "step0/parameter/Linear.bias.3:std" in failed
    assert "step0/parameter/Linear.weight.12x96:std" in failed
    assert "step0/parameter/BatchNorm.weight.6:mean" not in failed


def test_normal_of_the_same_deviation_is_not_uniform() -> None:
    alignment = init.run(TorchNet, lambda: PaddleLikeTorch(normal=True), draws=40)
    assert first(alignment) == "step0/parameter/Conv2d.weight.6x3x3x3:shape"


def test_layer_that_is_missing_fails() -> None:
    class Short(PaddleLikeTorch):
        def __init__(self) -> None:
            super().__init__()
            del self.head

    assert not init.run(TorchNet, Short, draws=20).passed


def test_random_state_is_put_back() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    init.record(TorchNet, draws=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_model_instead_of_a_way_to_make_one_is_refused() -> None:
    with pytest.raises(UsageError, match="functions that make a new model"):
        init.record(TorchNet())  # type: ignore[arg-type]
