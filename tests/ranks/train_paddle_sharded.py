"""Trains small models whose tensors paddle itself distributes over two ranks (shard_tensor), and with a mistake.

Run by train_paddle.py, after its own trainings.
"""

import paddle
import paddle.distributed as dist
from paddle import nn
from train_paddle import batches

from reprod_log import watch

STEPS = 2


def mlp():
    """An even number of hidden features: with seven, paddle 3.3.1's own backward pass of a matmul stops."""
    paddle.seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def placed(mesh, places):
    """The model with each of its parameters distributed as it is told."""
    model = mlp()
    for layer, name, placement in places:
        parameter = getattr(model[layer], name)
        setattr(model[layer], name, dist.shard_tensor(parameter, mesh, [placement]))
    return model


def train(model, data, save, *, lr=0.1):
    optimizer = paddle.optimizer.Momentum(lr, 0.9, parameters=model.parameters())
    with watch(model, optimizer=optimizer, save=save):
        for inputs, labels in data:
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            optimizer.clear_grad()


def single(folder):
    """The same training in one process, on whole batches."""
    data = [(paddle.to_tensor(inputs), paddle.to_tensor(labels)) for inputs, labels in batches(STEPS)]
    train(mlp(), data, folder / "single")


def distributed(folder):
    """All trainings of a process that stands in its group."""
    whole = dist.Replicate()

    def fed(mesh, placement):
        return [
            tuple(dist.shard_tensor(paddle.to_tensor(one), mesh, [placement]) for one in batch)
            for batch in batches(STEPS)
        ]

    tp = dist.ProcessMesh([0, 1], dim_names=["tp"])
    split = ((0, "weight", dist.Shard(1)), (0, "bias", dist.Shard(0)), (2, "weight", dist.Shard(0)), (2, "bias", whole))
    train(placed(tp, split), fed(tp, whole), folder / "split")
    train(placed(tp, split), fed(tp, whole), folder / "other_rate", lr=0.1 if dist.get_rank() == 0 else 0.01)
    dp = dist.ProcessMesh([0, 1], dim_names=["dp"])
    replicas = tuple((layer, name, whole) for layer in (0, 2) for name in ("weight", "bias"))
    train(placed(dp, replicas), fed(dp, dist.Shard(0)), folder / "replicas")
