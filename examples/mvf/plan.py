"""The MVF reproduction as one plan: `reprod plan plan.py [--full] [--as-published]`.

torch runs in one process and paddle in another; the comparison imports neither. With --as-published the check of the
backward pass is the published one, losses only from a start whose logits are near 0; once as it is, and once with the
weight decay left out on the paddle side, which it cannot see.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import inputs
import numpy as np
from mini_ucf import make_clip
from settings import FULL, SMALL, Settings

from reprod_log import Recording
from reprod_log.steps.fake_data import fake_data
from reprod_log.steps.plan import Options, Plan, Step
from reprod_log.steps.trainer import Trainer
from reprod_log.steps.values import origin


def plan(options: Options) -> Plan:
    """Returns the steps in the order of the guides."""
    settings = FULL if options.full else SMALL
    if options.as_published:
        settings = replace(settings, start="flat")
    folder = options.folder / "data"
    data = fake_data(folder / f"clips-{settings.size}-{settings.start}.npz", lambda _: clips(settings))
    weights = fake_data(
        folder / f"weights-{settings.size}-{settings.start}.npz", lambda _: inputs.draw_weights(settings)
    )
    torch, paddle = (side(settings, weights.arrays, data.arrays) for side in (Torch, Paddle))
    given = (data["clips"],)
    batch = {"inputs": given, "targets": data["labels"], "steps": settings.iterations}
    if options.full:
        # All layers of 32 pictures in two precisions are more than a machine has; losses, gradients and updates fit.
        batch |= {"detailed": 1, "phases": ("loss", "lr", "gradient", "update")}
        forward = Step("forward", torch.logits, paddle.logits)
    else:
        forward = Step("forward", torch.model, paddle.model, {"inputs": given})
    steps = [
        forward,
        Step("metric", torch.accuracies, paddle.accuracies),
        Step("loss", torch.loss, paddle.loss, {"outputs": data["logits"], "targets": data["labels"]}),
    ]
    if options.as_published:
        limits = {"limits": ["mean_abs:1e-6"]}
        steps += [
            Step("backward", torch.losses, paddle.losses, limits),
            Step("backward", torch.losses, paddle.losses_without_decay, limits, name="no-decay"),
        ]
    else:
        steps += [
            Step("optimizer", torch.trainer, paddle.trainer),
            Step("regularization", torch.trainer, paddle.trainer),
            Step("backward", torch.trainer, paddle.trainer, batch),
        ]
    return Plan(tuple(steps), title="MVF", data=data).ordered("guides")


def clips(settings: Settings) -> dict[str, np.ndarray]:
    """Returns the fake clips, logits for the loss step, and the clips of the mini data set with their labels."""
    fake, labels = inputs.fake_clips(settings)
    random = np.random.default_rng(settings.data_seed + 1)
    films, film_labels = [], []
    for index in range(settings.clips):
        films.append(make_clip(random, settings))
        # Every second label is the class this random model favours; with random ones both accuracies would be 0.
        favoured = settings.favoured_class[settings.start]
        film_labels.append(favoured if index % 2 == 0 else int(random.integers(0, settings.classes)))
    logits = np.random.default_rng(settings.data_seed + 2).standard_normal((settings.batch, settings.classes))
    return {
        "clips": fake,
        "labels": labels,
        "logits": logits.astype(np.float32),
        "films": normalised(np.stack(films), settings),
        "film_labels": np.array(film_labels),
    }


def normalised(films: np.ndarray, settings: Settings) -> np.ndarray:
    """Returns stored frames as the model takes them: (clips, segments, 3, height, width), each colour scaled."""
    mean, std = (np.array(one, np.float32) for one in (settings.pixel_mean, settings.pixel_std))
    return np.ascontiguousarray(((films.astype(np.float32) - mean) / std).transpose(0, 1, 4, 2, 3))


class Torch:
    """What the torch side gives for each step."""

    def __init__(self, settings: Settings, weights: Any, data: Any) -> None:
        self.settings, self.weights, self.data = settings, weights, data

    def model(self) -> Any:
        from models.mvf_torch import build_model

        return build_model(self.settings, self.weights)

    def logits(self) -> Recording:
        import torch

        model = self.model()
        with torch.no_grad():
            found = model(torch.from_numpy(self.data["clips"]))
        return Recording.from_arrays({"logits": found.numpy()}, provenance=origin(model))

    def accuracies(self) -> Any:
        import torch
        from recipe_torch import mean_class_accuracy, top1_accuracy

        model = self.model()
        with torch.no_grad():
            logits = torch.cat([model(torch.from_numpy(film[None])) for film in self.data["films"]])
        labels = torch.from_numpy(self.data["film_labels"])
        return {
            "top1_acc": top1_accuracy(logits, labels),
            "mean_class_accuracy": mean_class_accuracy(logits, labels),
        }

    def loss(self) -> Any:
        from recipe_torch import build_loss

        return build_loss()

    def trainer(self) -> Trainer:
        from recipe_torch import build_loss, build_optimizer

        decay = self.settings.weight_decay
        return Trainer(
            self.model(), build_loss(), lambda model: build_optimizer(model, self.settings, weight_decay=decay)
        )

    def losses(self) -> Recording:
        import torch
        from recipe_torch import build_optimizer, train_some_iterations

        model = self.model()
        found = train_some_iterations(
            model,
            build_optimizer(model, self.settings, weight_decay=self.settings.weight_decay),
            torch.from_numpy(self.data["clips"]),
            torch.from_numpy(self.data["labels"]),
            iterations=self.settings.iterations,
        )
        return losses_recording(found, model)


class Paddle:
    """What the paddle side gives for each step."""

    def __init__(self, settings: Settings, weights: Any, data: Any) -> None:
        self.settings, self.weights, self.data = settings, weights, data

    def model(self) -> Any:
        from models.mvf_paddle import build_model

        return build_model(self.settings, self.weights)

    def logits(self) -> Recording:
        import paddle

        model = self.model()
        with paddle.no_grad():
            found = model(paddle.to_tensor(self.data["clips"]))
        return Recording.from_arrays({"logits": found.numpy()}, provenance=origin(model))

    def accuracies(self) -> Any:
        import paddle
        from recipe_paddle import mean_class_accuracy, top1_accuracy

        model = self.model()
        with paddle.no_grad():
            logits = paddle.concat([model(paddle.to_tensor(film[None])) for film in self.data["films"]])
        labels = paddle.to_tensor(self.data["film_labels"])
        return {
            "top1_acc": top1_accuracy(logits, labels),
            "mean_class_accuracy": mean_class_accuracy(logits, labels),
        }

    def loss(self) -> Any:
        from recipe_paddle import build_loss

        return build_loss()

    def trainer(self) -> Trainer:
        from recipe_paddle import build_loss, build_optimizer

        decay = self.settings.weight_decay
        return Trainer(
            self.model(), build_loss(), lambda model: build_optimizer(model, self.settings, weight_decay=decay)
        )

    def losses(self, *, weight_decay: float | None = None) -> Recording:
        import paddle
        from recipe_paddle import build_optimizer, train_some_iterations

        decay = self.settings.weight_decay if weight_decay is None else weight_decay
        model = self.model()
        found = train_some_iterations(
            model,
            build_optimizer(model, self.settings, weight_decay=decay),
            paddle.to_tensor(self.data["clips"]),
            paddle.to_tensor(self.data["labels"]),
            iterations=self.settings.iterations,
        )
        return losses_recording(found, model)

    def losses_without_decay(self) -> Recording:
        return self.losses(weight_decay=0.0)


def losses_recording(losses: Any, model: Any) -> Recording:
    """Returns the losses under the published names, loss_0 and so on."""
    arrays = {f"loss_{index}": loss.numpy() for index, loss in enumerate(losses)}
    return Recording.from_arrays(arrays, provenance=origin(model))
