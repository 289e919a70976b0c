"""The DiscoGAN reproduction as one plan: `reprod plan plan.py [--full] [--as-published]`.

torch runs in one process and paddle in another; the comparison imports neither. With --as-published paddle's weights
go through the published converter, which gives both generators generator_B's; the step `losses` is the published check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import inputs
from settings import FULL, NETWORKS, SMALL, Settings

from reprod_log import Recording
from reprod_log.steps.fake_data import fake_data
from reprod_log.steps.plan import Options, Plan, Step
from reprod_log.steps.trainer import Trainer
from reprod_log.steps.values import origin

# Which network's weights each network gets. The published converter writes all four networks into one dict, so that the
# last generator and the last discriminator overwrite the first ones; the published torch script loads two of four.
RIGHT = {name: name for name in NETWORKS}
CONVERTED = {name: f"{name.partition('_')[0]}_B" for name in NETWORKS}
PUBLISHED_TORCH = {**CONVERTED, "generator_A": "generator_A", "generator_B": "generator_A"}


def plan(options: Options) -> Plan:
    """Returns the steps in the order of the guides."""
    settings = FULL if options.full else SMALL
    shape = (settings.batch, 3, settings.image_size, settings.image_size)
    folder = options.folder / "data"
    data = fake_data(
        folder / "pictures.npz",
        lambda _: {
            "a": inputs.gen_fake_data(settings.seed_a, shape),
            "b": inputs.gen_fake_data(settings.seed_b, shape),
        },
    )
    weights = fake_data(folder / f"weights-{settings.size}.npz", lambda _: inputs.draw_weights(settings))
    torch = Torch(settings, chosen(weights.arrays, RIGHT), data.arrays)
    paddle = Paddle(settings, chosen(weights.arrays, CONVERTED if options.as_published else RIGHT), data.arrays)
    published = Torch(settings, chosen(weights.arrays, PUBLISHED_TORCH), data.arrays)
    pictures = {"a": data["a"], "b": data["b"]}
    turns = [{**pictures, "turn": turn} for turn in range(settings.iterations)]
    losses = {"limits": ["mean_abs:1e-6"]}
    steps = [
        Step("forward", torch.losses_only, paddle.losses_only, {"inputs": pictures}),
        Step("backward", torch.trainer, paddle.trainer, {"inputs": turns, "steps": settings.iterations}),
        Step(
            "training", published.losses if options.as_published else torch.losses, paddle.losses, losses, name="losses"
        ),
    ]
    if not options.as_published:
        steps += [
            Step("optimizer", torch.trainer, paddle.trainer, {"steps": 1}),
            Step("regularization", torch.trainer, paddle.trainer),
        ]
    return Plan(tuple(steps), title="DiscoGAN", data=data).ordered("guides")


def chosen(weights: Mapping[str, Any], source: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Returns each network's weights by its name, taken from the network that `source` says."""
    return {
        network: {
            key.partition("/")[2]: array for key, array in weights.items() if key.partition("/")[0] == source[network]
        }
        for network in NETWORKS
    }


class Side:
    """What either side does: only the modules with the networks and the losses differ."""

    def __init__(self, settings: Settings, weights: Any, data: Any) -> None:
        self.settings, self.weights, self.data = settings, weights, data

    def networks(self) -> Any:
        raise NotImplementedError

    def recipe(self) -> Any:
        raise NotImplementedError

    def clear(self, optimizer: Any) -> None:
        raise NotImplementedError

    def optimizers(self, networks: Any) -> dict[str, Any]:
        generator, discriminator = self.recipe().build_optimizers(networks, self.settings)
        return {"generator": generator, "discriminator": discriminator}

    def losses_only(self) -> Trainer:
        """The four networks as both losses call them, without training."""

        def compute(networks: Any, _: Any, pictures: Any, __: Any) -> None:
            self.recipe().both_losses(networks, pictures["a"], pictures["b"], self.settings)

        return Trainer(self.networks(), step=compute)

    def trainer(self) -> Trainer:
        """Even iterations step the discriminators, odd ones the generators; only the stepped optimizer clears."""

        def iterate(networks: Any, optimizers: Any, batch: Any, _: Any) -> None:
            losses = self.recipe().both_losses(networks, batch["a"], batch["b"], self.settings)
            place, name = (1, "discriminator") if batch["turn"] % 2 == 0 else (0, "generator")
            losses[place].backward()
            optimizers[name].step()
            self.clear(optimizers[name])

        return Trainer(self.networks(), optimizer=self.optimizers, step=iterate)

    def tensors(self) -> tuple[Any, Any]:
        raise NotImplementedError

    def losses(self) -> Recording:
        """Both losses of every iteration under the published names."""
        networks = self.networks()
        generator, discriminator = self.recipe().train_some_iterations(networks, *self.tensors(), self.settings)
        arrays = {f"gen_loss_{index}": loss.numpy() for index, loss in enumerate(generator)}
        arrays |= {f"dis_loss_{index}": loss.numpy() for index, loss in enumerate(discriminator)}
        return Recording.from_arrays(arrays, provenance=origin(networks["generator_A"]))


class Torch(Side):
    """The torch side."""

    def networks(self) -> Any:
        from models.discogan_torch import build_networks

        return build_networks(self.settings, self.weights)

    def recipe(self) -> Any:
        import recipe_torch

        return recipe_torch

    def clear(self, optimizer: Any) -> None:
        optimizer.zero_grad()

    def tensors(self) -> tuple[Any, Any]:
        import torch

        return torch.from_numpy(self.data["a"]), torch.from_numpy(self.data["b"])


class Paddle(Side):
    """The paddle side."""

    def networks(self) -> Any:
        from models.discogan_paddle import build_networks

        return build_networks(self.settings, self.weights)

    def recipe(self) -> Any:
        import recipe_paddle

        return recipe_paddle

    def clear(self, optimizer: Any) -> None:
        optimizer.clear_grad()

    def tensors(self) -> tuple[Any, Any]:
        import paddle

        return paddle.to_tensor(self.data["a"]), paddle.to_tensor(self.data["b"])
