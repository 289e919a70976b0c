"""The AlexNet reproduction as one plan: `reprod plan plan.py [--full] [--as-published]`.

torch runs in one process and paddle in another; the comparison imports neither. With --as-published the checks are the
published ones: losses only, and learning rates of schedulers that are never stepped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import inputs
import numpy as np
from settings import FULL, SMALL, Settings

from reprod_log import Recording
from reprod_log.steps import inference
from reprod_log.steps.fake_data import fake_data
from reprod_log.steps.plan import Options, Plan, Step
from reprod_log.steps.trainer import Trainer
from reprod_log.steps.values import origin


def plan(options: Options) -> Plan:
    """Returns the steps in the order of the reproduction: forward, metric, loss, backward, training; then the rest."""
    settings = FULL if options.full else SMALL
    folder = options.folder / "data"
    data = fake_data(folder / f"images-{settings.size}.npz", lambda _: images(settings))
    weights = fake_data(folder / f"weights-{settings.size}.npz", lambda _: inputs.draw_weights(settings))
    start = replace(settings, init="he08")
    he_weights = fake_data(folder / f"weights-{settings.size}-he08.npz", lambda _: inputs.draw_weights(start))
    torch, paddle = (side(settings, weights.arrays, start, he_weights.arrays, data.arrays) for side in (Torch, Paddle))
    picture = (data["fake_data"],)
    one_batch = {"inputs": picture, "targets": data["fake_label"]}
    batches = batches_of(data.arrays, settings)
    # Gradients and updates of one step at full size are gigabytes.
    kept = 1 if options.full else 2
    steps = [
        Step("forward", torch.model, paddle.model, {"inputs": picture}),
        Step("metric", torch.accuracy, paddle.accuracy),
        Step("loss", torch.loss, paddle.loss, {"outputs": data["logits"], "targets": data["metric_label"]}),
    ]
    if options.as_published:
        limits = {"limits": ["mean_abs:1e-6"]}
        steps += [
            Step("backward", torch.losses, paddle.losses, limits),
            Step("lr", torch.rates_never_stepped, paddle.rates_never_stepped, {"steps": settings.lr_epochs, **limits}),
        ]
    else:
        steps += [
            Step("data", torch.loader, paddle.loader, {"samples": 4, "batches": 2}),
            Step("optimizer", torch.trainer, paddle.trainer, {"steps": kept}),
            Step("lr", torch.schedule, paddle.schedule, {"steps": settings.lr_epochs}),
            Step("regularization", torch.trainer, paddle.trainer),
            Step(
                "backward", torch.trainer, paddle.trainer, {"steps": settings.iterations, "detailed": kept, **one_batch}
            ),
            Step("training", torch.learner, paddle.learner, batches),
            Step("inference", paddle.model, paddle.exported, {"inputs": picture}, process="candidate"),
        ]
    return Plan(tuple(steps), title="AlexNet", data=data).ordered("alexnet-prod")


def images(settings: Settings) -> dict[str, np.ndarray]:
    """Returns everything that is fed to either side."""
    count = TRAINING_BATCHES * settings.train_batch_size
    pictures, labels = inputs.training_pictures(settings, count, stream=1)
    held_out, held_out_labels = inputs.training_pictures(settings, HELD_OUT, stream=2)
    random = np.random.default_rng(settings.data_seed + 3)
    logits = random.standard_normal((settings.metric_images, settings.classes)).astype(np.float32)
    return {
        **inputs.fake_data(settings),
        **inputs.metric_data(settings),
        "logits": logits,
        "pictures": pictures,
        "labels": labels,
        "held_out": held_out,
        "held_out_labels": held_out_labels,
    }


# Fewer than the classic script's 30: here every one of them is compared, in float32 and in float64.
TRAINING_BATCHES = 6
HELD_OUT = 32


def batches_of(data: Any, settings: Settings) -> dict[str, Any]:
    """Returns the training data as lists with one batch per step."""
    cuts = range(0, len(data["labels"]), settings.train_batch_size)
    size = settings.train_batch_size
    return {
        "inputs": [(data["pictures"][start : start + size],) for start in cuts],
        "targets": [data["labels"][start : start + size] for start in cuts],
    }


class Torch:
    """What the torch side gives for each step."""

    def __init__(self, settings: Settings, weights: Any, start: Settings, he_weights: Any, data: Any) -> None:
        self.settings, self.weights, self.start, self.he_weights, self.data = settings, weights, start, he_weights, data

    def model(self) -> Any:
        from models.alexnet_torch import build_model

        return build_model(self.settings, self.weights)

    def accuracy(self) -> Any:
        import torch
        from recipe_torch import top1

        with torch.no_grad():
            logits = self.model()(torch.from_numpy(self.data["metric_data"]))
        return {"top1": top1(logits, torch.from_numpy(self.data["metric_label"]))}

    def loss(self) -> Any:
        from recipe_torch import build_loss

        return build_loss()

    def loader(self) -> Any:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        dataset = TensorDataset(torch.from_numpy(self.data["pictures"]), torch.from_numpy(self.data["labels"]))
        return {"dataset": dataset, "loader": DataLoader(dataset, batch_size=self.settings.train_batch_size)}

    def trainer(self) -> Trainer:
        from recipe_torch import build_loss, build_optimizer

        return Trainer(
            self.model(), build_loss(), lambda model: build_optimizer(model, self.settings, lr=self.settings.lr)
        )

    def learner(self) -> Trainer:
        """He's start and the rate of the training step, with the accuracy on held-out pictures at the end."""
        import torch
        from models.alexnet_torch import build_model
        from recipe_torch import build_loss, build_optimizer, top1

        def evaluate(model: Any) -> Any:
            pictures = torch.from_numpy(self.data["held_out"]).to(next(model.parameters()).dtype)
            with torch.no_grad():
                return {"top1": top1(model(pictures), torch.from_numpy(self.data["held_out_labels"]))}

        return Trainer(
            build_model(self.start, self.he_weights),
            build_loss(),
            lambda model: build_optimizer(model, self.settings, lr=self.settings.train_lr),
            evaluate=evaluate,
        )

    def schedule(self) -> Any:
        from recipe_torch import build_optimizer, build_scheduler
        from torch import nn

        # A schedule needs an optimizer and an optimizer a parameter; which one does not matter.
        optimizer = build_optimizer(nn.Linear(1, 1), self.settings, lr=self.settings.lr_start)
        return optimizer, build_scheduler(optimizer, self.settings)

    def rates_never_stepped(self) -> Any:
        _, scheduler = self.schedule()
        return [scheduler.get_last_lr()[0] for _ in range(self.settings.lr_epochs)]

    def losses(self) -> Recording:
        from recipe_torch import build_optimizer, train_some_iterations

        model = self.model()
        optimizer = build_optimizer(model, self.settings, lr=self.settings.lr)
        found = train_some_iterations(
            model, optimizer, self.data["fake_data"], self.data["fake_label"], iterations=self.settings.iterations
        )
        return losses_recording(found, model)


class Paddle:
    """What the paddle side gives for each step."""

    def __init__(self, settings: Settings, weights: Any, start: Settings, he_weights: Any, data: Any) -> None:
        self.settings, self.weights, self.start, self.he_weights, self.data = settings, weights, start, he_weights, data

    def model(self) -> Any:
        from models.alexnet_paddle import build_model

        return build_model(self.settings, self.weights)

    def exported(self) -> Recording:
        return inference.record(self.model(), inputs=(self.data["fake_data"],), engine="inference")

    def accuracy(self) -> Any:
        import paddle
        from recipe_paddle import top1

        with paddle.no_grad():
            logits = self.model()(paddle.to_tensor(self.data["metric_data"]))
        return {"top1": top1(logits, paddle.to_tensor(self.data["metric_label"]))}

    def loss(self) -> Any:
        from recipe_paddle import build_loss

        return build_loss()

    def loader(self) -> Any:
        import paddle
        from paddle.io import DataLoader, TensorDataset

        dataset = TensorDataset([paddle.to_tensor(self.data["pictures"]), paddle.to_tensor(self.data["labels"])])
        loader = DataLoader(dataset, batch_size=self.settings.train_batch_size, shuffle=False)
        return {"dataset": dataset, "loader": loader}

    def trainer(self) -> Trainer:
        from recipe_paddle import build_loss, build_optimizer

        return Trainer(
            self.model(), build_loss(), lambda model: build_optimizer(model, self.settings, lr=self.settings.lr)
        )

    def learner(self) -> Trainer:
        """He's start and the rate of the training step, with the accuracy on held-out pictures at the end."""
        import paddle
        from models.alexnet_paddle import build_model
        from recipe_paddle import build_loss, build_optimizer, top1

        def evaluate(model: Any) -> Any:
            pictures = paddle.to_tensor(self.data["held_out"]).astype(model.parameters()[0].dtype)
            with paddle.no_grad():
                return {"top1": top1(model(pictures), paddle.to_tensor(self.data["held_out_labels"]))}

        return Trainer(
            build_model(self.start, self.he_weights),
            build_loss(),
            lambda model: build_optimizer(model, self.settings, lr=self.settings.train_lr),
            evaluate=evaluate,
        )

    def schedule(self) -> Any:
        from paddle import nn
        from recipe_paddle import build_optimizer, build_scheduler

        scheduler = build_scheduler(self.settings)
        return build_optimizer(nn.Linear(1, 1), self.settings, lr=scheduler), scheduler

    def rates_never_stepped(self) -> Any:
        _, scheduler = self.schedule()
        return [scheduler.last_lr for _ in range(self.settings.lr_epochs)]

    def losses(self) -> Recording:
        from recipe_paddle import build_optimizer, train_some_iterations

        model = self.model()
        optimizer = build_optimizer(model, self.settings, lr=self.settings.lr)
        found = train_some_iterations(
            model, optimizer, self.data["fake_data"], self.data["fake_label"], iterations=self.settings.iterations
        )
        return losses_recording(found, model)


def losses_recording(losses: Any, model: Any) -> Recording:
    """Returns the losses under the published names, loss_0 and so on."""
    arrays = {f"loss_{index}": loss.numpy() for index, loss in enumerate(losses)}
    return Recording.from_arrays(arrays, provenance=origin(model))
