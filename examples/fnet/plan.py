"""The FNet reproduction as one plan: `reprod plan plan.py [--full] [--as-published]`.

torch runs in one process and paddle in another; the comparison imports neither. With --as-published the three published
mistakes are there: torch's losses compared with torch's, another AdamW on the torch side, and a cosine schedule with
num_cycles 0.5 on one side and 1 on the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from body_weights.generate_body_weights import draw_body
from settings import FULL, SCHEDULES, SMALL, Settings

from reprod_log import Recording
from reprod_log.steps.fake_data import fake_data
from reprod_log.steps.plan import Options, Plan, Step
from reprod_log.steps.trainer import Trainer
from reprod_log.steps.values import origin


def plan(options: Options) -> Plan:
    """Returns the steps in the order of the guides."""
    settings = FULL if options.full else SMALL
    folder = options.folder / "data"
    data = fake_data(folder / "tokens.npz", lambda random: tokens(random, settings), seed=settings.data_seed)
    body = fake_data(folder / f"body-{settings.size}.npz", lambda _: draw_body(settings))
    head = fake_data(folder / f"head-{settings.size}.npz", lambda _: draw_head(settings))
    torch, paddle = (side(settings, body.arrays, head.arrays, data.arrays) for side in (Torch, Paddle))
    ids = (data["ids"],)
    # Gradients and updates of one step at full size are gigabytes.
    kept = 1 if options.full else 2
    batch = {"inputs": ids, "targets": data["labels"], "steps": settings.iterations, "detailed": kept}
    total = {"steps": settings.total_steps}
    if options.as_published:
        steps = [
            Step("backward", torch.losses, torch.losses, {"limits": ["mean_abs:1e-6"]}, name="published"),
            Step("optimizer", torch.old_trainer, paddle.trainer, {"steps": kept}, name="old-adamw"),
            Step("backward", torch.old_trainer, paddle.trainer, batch, name="old-losses"),
            Step("lr", torch.schedules, lambda: paddle.schedules(num_cycles=1.0), total),
        ]
    else:
        steps = [
            Step("forward", torch.model, paddle.model, {"inputs": ids}),
            Step("loss", torch.loss, paddle.loss, {"outputs": data["logits"], "targets": data["labels"]}),
            Step("optimizer", torch.trainer, paddle.trainer, {"steps": kept}),
            Step("lr", torch.schedules, paddle.schedules, total),
            Step("regularization", torch.trainer, paddle.trainer),
            Step("backward", torch.trainer, paddle.trainer, batch),
        ]
    return Plan(tuple(steps), title="FNet", data=data).ordered("guides")


def tokens(random: np.random.Generator, settings: Settings) -> dict[str, np.ndarray]:
    """Returns token ids, labels, and logits for the loss step."""
    return {
        "ids": random.integers(1, settings.id_limit, (settings.batch, settings.length), dtype=np.int64),
        "labels": np.array([0, 1, 1, 0], dtype=np.int64),
        "logits": random.standard_normal((settings.batch, settings.classes)).astype(np.float32),
    }


def draw_head(settings: Settings) -> dict[str, np.ndarray]:
    """Returns the classifier in torch's layout."""
    weight = np.random.RandomState(settings.classifier_seed).normal(0.0, 0.02, (settings.hidden, settings.classes))
    return {
        "classifier.weight": np.ascontiguousarray(weight.T.astype(np.float32)),
        "classifier.bias": np.zeros(settings.classes, np.float32),
    }


class Torch:
    """What the torch side gives for each step."""

    def __init__(self, settings: Settings, body: Any, head: Any, data: Any) -> None:
        self.settings, self.body, self.head, self.data = settings, body, head, data

    def model(self) -> Any:
        from models.fnet_torch import build_model

        return build_model(self.settings, self.body, self.head)

    def loss(self) -> Any:
        from torch import nn

        return nn.CrossEntropyLoss()

    def trainer(self, *, legacy: bool = False) -> Trainer:
        from recipe_torch import build_optimizer

        return Trainer(self.model(), self.loss(), lambda model: build_optimizer(model, self.settings, legacy=legacy))

    def old_trainer(self) -> Trainer:
        return self.trainer(legacy=True)

    def schedules(self) -> Any:
        from recipe_torch import build_optimizer, build_scheduler
        from torch import nn

        found = {}
        for name in SCHEDULES:
            # A schedule needs an optimizer and an optimizer a parameter; which one does not matter.
            optimizer = build_optimizer(nn.Linear(1, 1), self.settings)
            scheduler = build_scheduler(optimizer, name, self.settings, num_cycles=self.settings.num_cycles)
            found[name] = (optimizer, scheduler)
        return found

    def losses(self) -> Recording:
        """The losses of ten iterations under the published names; the published check calls this for both sides."""
        from recipe_torch import build_optimizer, train_some_iterations

        model = self.model()
        found = train_some_iterations(
            model,
            build_optimizer(model, self.settings),
            self.data["ids"],
            self.data["labels"],
            iterations=self.settings.iterations,
        )
        arrays = {f"loss_{index}": loss.numpy() for index, loss in enumerate(found)}
        return Recording.from_arrays(arrays, provenance=origin(model))


class Paddle:
    """What the paddle side gives for each step."""

    def __init__(self, settings: Settings, body: Any, head: Any, data: Any) -> None:
        self.settings, self.body, self.head, self.data = settings, body, head, data

    def model(self) -> Any:
        from models.fnet_paddle import build_model

        # The classifier is taken in paddle's layout.
        head = {**self.head, "classifier.weight": self.head["classifier.weight"].T}
        return build_model(self.settings, self.body, head)

    def loss(self) -> Any:
        from paddle import nn

        return nn.CrossEntropyLoss()

    def trainer(self) -> Trainer:
        from recipe_paddle import build_optimizer

        return Trainer(self.model(), self.loss(), lambda model: build_optimizer(model, self.settings))

    def schedules(self, *, num_cycles: float | None = None) -> Any:
        from paddle import nn
        from paddle.optimizer import AdamW
        from recipe_paddle import build_scheduler

        cycles = self.settings.num_cycles if num_cycles is None else num_cycles
        found = {}
        for name in SCHEDULES:
            scheduler = build_scheduler(name, self.settings, num_cycles=cycles)
            found[name] = (AdamW(learning_rate=scheduler, parameters=nn.Linear(1, 1).parameters()), scheduler)
        return found
