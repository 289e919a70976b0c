"""Trains small models on two ranks under torchrun, right and with planted mistakes, each into a folder of its own.

python -m torch.distributed.run --nproc_per_node 2 train_torch.py FOLDER
"""

import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from reprod_log import watch

RANKS, BATCH, STEPS = 2, 8, 3


def batches(steps=STEPS):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(BATCH, 5, generator=generator), torch.randint(0, 3, (BATCH,), generator=generator))
        for _ in range(steps)
    ]


def share(batch, rank):
    size = BATCH // RANKS
    return tuple(tensor[rank * size : (rank + 1) * size] for tensor in batch)


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def with_batch_norm():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


class Total(torch.autograd.Function):
    """The sum over ranks, whose gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    backward = forward


class SyncBatchNorm(nn.SyncBatchNorm):
    """What torch's own computes; that one says "SyncBatchNorm expected input tensor to be on GPU"."""

    alone = False

    def forward(self, x):
        total, ranks = ((lambda one: one), 1) if self.alone else (Total.apply, dist.get_world_size())
        count = x.shape[0] * ranks
        mean = total(x.sum(0)) / count
        variance = total(((x - mean) ** 2).sum(0)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
            self.num_batches_tracked += 1
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias


def with_sync_batch_norm(*, alone=False):
    """Alone: like one whose process group holds nobody else."""
    model = with_batch_norm()
    model[1], plain = SyncBatchNorm(6), model[1]
    model[1].alone = alone
    model[1].load_state_dict(plain.state_dict())
    return model


def train(model, data, save, *, lr=0.1, reduce=None, backward_in=nullcontext):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    with watch(model, optimizer=optimizer, save=save):
        for inputs, labels in data:
            optimizer.zero_grad()
            with backward_in():
                nn.functional.cross_entropy(model(inputs), labels).backward()
            if reduce is not None:
                reduce(model)
            optimizer.step()


def single(folder):
    """The same training in one process, on whole batches."""
    train(mlp(), batches(), folder / "mlp")
    train(with_batch_norm(), batches(), folder / "batch_norm")
    train(SplitMlp(1, 0), batches(), folder / "tensor_parallel")


def add_up(state, bucket):
    """What a communication hook looks like when the division is forgotten."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def average(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS


def average_a_copy(model):
    for parameter in model.parameters():
        gradient = parameter.grad.clone() if dist.get_rank() else parameter.grad
        dist.all_reduce(gradient)
        gradient /= RANKS


def only_add(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


class Gather(torch.autograd.Function):
    """The identity forward, a sum over ranks backward: what a column-parallel layer's input needs."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        if dist.is_initialized():
            dist.all_reduce(gradient)
        return gradient


class Sum(torch.autograd.Function):
    """A sum over ranks forward, the identity backward: what a row-parallel layer's output needs."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        if dist.is_initialized():
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class ColumnLinear(nn.Linear):
    def forward(self, x):
        return super().forward(Gather.apply(x))


class RowLinear(nn.Linear):
    def forward(self, x):
        return Sum.apply(nn.functional.linear(x, self.weight)) + self.bias


class SplitMlp(nn.Module):
    """Two layers whose six hidden features lie on the ranks; everything else is on all of them."""

    def __init__(self, ranks, rank):
        super().__init__()
        torch.manual_seed(0)
        whole = nn.Linear(5, 5), nn.Linear(5, 6), nn.Linear(6, 3)
        size = 6 // ranks
        mine = slice(rank * size, (rank + 1) * size)
        self.before, self.up, self.down = whole[0], ColumnLinear(5, size), RowLinear(size, 3)
        with torch.no_grad():
            self.up.weight.copy_(whole[1].weight[mine])
            self.up.bias.copy_(whole[1].bias[mine])
            self.down.weight.copy_(whole[2].weight[:, mine])
            self.down.bias.copy_(whole[2].bias)

    def forward(self, x):
        return self.down(torch.tanh(self.up(torch.tanh(self.before(x)))))


def missing_all_reduce(data, rank, save):
    """Rank 1 is inside no_sync in the step that is recorded; what it owes to rank 0 it pays afterwards."""
    model = DistributedDataParallel(mlp())
    train(model, data[:1], save, backward_in=model.no_sync if rank == 1 else nullcontext)
    if rank == 1:
        nn.functional.cross_entropy(model(data[0][0]), data[0][1]).backward()


def main(folder):
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    data = [share(batch, rank) for batch in batches()]
    train(DistributedDataParallel(mlp()), data, folder / "right")
    summed = DistributedDataParallel(mlp())
    summed.register_comm_hook(None, add_up)
    train(summed, data, folder / "sum")
    train(DistributedDataParallel(mlp()), [share(batch, 0) for batch in batches()], folder / "same_data")
    train(DistributedDataParallel(with_batch_norm()), data, folder / "batch_norm")
    train(DistributedDataParallel(with_batch_norm(), broadcast_buffers=False), data, folder / "own_statistics")
    # DistributedDataParallel says "SyncBatchNorm layers only work with GPU modules".
    train(with_sync_batch_norm(), data, folder / "sync_batch_norm", reduce=average)
    train(with_sync_batch_norm(alone=True), data, folder / "sync_alone", reduce=average)
    train(mlp(), data, folder / "by_hand", reduce=average)
    train(mlp(), data, folder / "by_hand_sum", reduce=only_add)
    train(mlp(), data, folder / "by_hand_copy", reduce=average_a_copy)
    train(mlp(seed=rank), data, folder / "other_weights", reduce=average)
    train(mlp(), data, folder / "other_rate", reduce=average, lr=0.1 if rank == 0 else 0.01)
    train(mlp(), data, folder / "not_reduced")
    train(SplitMlp(RANKS, rank), batches(), folder / "tensor_parallel")
    missing_all_reduce(data, rank, folder / "missed")
    train_sharded.distributed(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    import train_sharded

    main(Path(sys.argv[1]))
