"""Trains small models on two ranks under paddle's launcher, right and with planted mistakes, each into its folder.

python -m paddle.distributed.launch --nproc_per_node 2 --backend gloo train_paddle.py FOLDER
"""

import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

from reprod_log import watch

RANKS, BATCH, STEPS = 2, 8, 3


def batches(steps=STEPS):
    generator = np.random.default_rng(1)
    return [
        (generator.normal(size=(BATCH, 5)).astype("float32"), generator.integers(0, 3, BATCH)) for _ in range(steps)
    ]


def share(batch, rank):
    size = BATCH // RANKS
    return tuple(array[rank * size : (rank + 1) * size] for array in batch)


def mlp():
    paddle.seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def with_batch_norm():
    paddle.seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1D(6), nn.ReLU(), nn.Linear(6, 3))


class Total(paddle.autograd.PyLayer):
    """The sum over ranks, whose gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    backward = forward


class SyncBatchNorm(nn.SyncBatchNorm):
    """What paddle's own computes; that one says "The kernel `sync_batch_norm` is not registered"."""

    def forward(self, x):
        count = x.shape[0] * dist.get_world_size()
        mean = Total.apply(x.sum(0)) / count
        variance = Total.apply(((x - mean) ** 2).sum(0)) / count
        with paddle.no_grad():
            for kept, new in ((self._mean, mean), (self._variance, variance)):
                kept.set_value(self._momentum * kept + (1 - self._momentum) * new)
        return (x - mean) / paddle.sqrt(variance + self._epsilon) * self.weight + self.bias


def with_sync_batch_norm():
    paddle.seed(0)
    return nn.Sequential(nn.Linear(5, 6), SyncBatchNorm(6), nn.ReLU(), nn.Linear(6, 3))


def train(model, data, save, *, reduce=None, backward_in=nullcontext):
    optimizer = paddle.optimizer.Momentum(0.1, 0.9, parameters=model.parameters())
    with watch(model, optimizer=optimizer, save=save):
        for inputs, labels in data:
            with backward_in():
                loss = nn.functional.cross_entropy(model(paddle.to_tensor(inputs)), paddle.to_tensor(labels))
                loss.backward()
            if reduce is not None:
                reduce(model)
            optimizer.step()
            optimizer.clear_grad()


def single(folder):
    """The same training in one process, on whole batches."""
    train(mlp(), batches(), folder / "mlp")
    train(with_batch_norm(), batches(), folder / "batch_norm")


def only_add(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def missing_all_reduce(model):
    """Rank 1 throws the result away."""
    for parameter in model.parameters():
        gradient = parameter.grad if dist.get_rank() == 0 else parameter.grad.clone()
        dist.all_reduce(gradient)
        if dist.get_rank() == 0:
            parameter.grad.set_value(gradient / RANKS)


def main(folder):
    dist.init_parallel_env()
    rank = dist.get_rank()
    data = [share(batch, rank) for batch in batches()]
    train(paddle.DataParallel(mlp()), data, folder / "right")
    summed = paddle.DataParallel(mlp())
    train(summed, data, folder / "sum", reduce=only_add, backward_in=summed.no_sync)
    missed = paddle.DataParallel(mlp())
    train(missed, data, folder / "missed", reduce=missing_all_reduce, backward_in=missed.no_sync)
    train(paddle.DataParallel(mlp()), [share(batch, 0) for batch in batches()], folder / "same_data")
    train(paddle.DataParallel(with_batch_norm()), data, folder / "batch_norm")
    train(paddle.DataParallel(with_sync_batch_norm()), data, folder / "sync_batch_norm")
    train_paddle_sharded.distributed(folder)


if __name__ == "__main__":
    import train_paddle_sharded

    main(Path(sys.argv[1]))
