"""Trains a small model on 2 × 2 ranks, data-parallel × tensor-parallel, right and with planted mistakes.

python -m torch.distributed.run --nproc_per_node 4 train_grid.py FOLDER
"""

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from train_torch import BATCH, batches

from reprod_log import watch

DP, TP, HIDDEN = 2, 2, 6


class Gather(torch.autograd.Function):
    """The identity forward, a sum over the group backward: what a column-parallel layer's input needs."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        if ctx.group is not None:
            dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Sum(torch.autograd.Function):
    """A sum over the group forward, the identity backward: what a row-parallel layer's output needs."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        if group is not None:
            dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class ColumnLinear(nn.Linear):
    group = None

    def forward(self, x):
        return super().forward(Gather.apply(x, self.group))


class RowLinear(nn.Linear):
    group = None

    def forward(self, x):
        return Sum.apply(nn.functional.linear(x, self.weight), self.group) + self.bias


class SplitMlp(nn.Module):
    """Two layers whose hidden features lie on the tensor-parallel ranks; everything else is on all of them."""

    def __init__(self, ranks=1, rank=0, forward_group=None, backward_group=None):
        super().__init__()
        torch.manual_seed(0)
        whole = nn.Linear(5, 5), nn.Linear(5, HIDDEN), nn.Linear(HIDDEN, 3)
        size = HIDDEN // ranks
        mine = slice(rank * size, (rank + 1) * size)
        self.before, self.up, self.down = whole[0], ColumnLinear(5, size), RowLinear(size, 3)
        self.up.group, self.down.group = backward_group, forward_group
        with torch.no_grad():
            self.up.weight.copy_(whole[1].weight[mine])
            self.up.bias.copy_(whole[1].bias[mine])
            self.down.weight.copy_(whole[2].weight[:, mine])
            self.down.bias.copy_(whole[2].bias)

    def forward(self, x):
        return self.down(torch.tanh(self.up(torch.tanh(self.before(x)))))


def plain():
    """For torch's own ways of distributing it; an uneven bias at the end."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 3))


class Words(nn.Module):
    """Layers that are split in all the usual ways, the norm along the sequence."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm = nn.Embedding(10, HIDDEN), nn.LayerNorm(HIDDEN)
        self.up, self.down, self.head = nn.Linear(HIDDEN, 8), nn.Linear(8, HIDDEN), nn.Linear(HIDDEN, 10)

    def forward(self, words):
        return self.head(self.down(torch.tanh(self.up(self.norm(self.embed(words)))))).transpose(1, 2)


def split_words(mesh):
    whole = {"use_local_output": False}
    plan = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), **whole),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1), **whole),
        "down": RowwiseParallel(output_layouts=Replicate(), **whole),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    return parallelize_module(Words(), mesh, plan)


def sentences():
    generator = torch.Generator().manual_seed(3)
    words = [torch.randint(0, 10, (4, 4), generator=generator) for _ in range(4)]
    return list(zip(words[::2], words[1::2], strict=True))


def train(model, data, save, *, reduce=None, lr=0.1, mesh=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    with watch(model, optimizer=optimizer, save=save, mesh=mesh):
        for inputs, labels in data:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            if reduce is not None:
                reduce(model)
            optimizer.step()


def single(folder):
    """The same training in one process, on whole batches."""
    train(SplitMlp(), batches(2), folder / "single")
    train(plain(), batches(2), folder / "plain")
    train(Words(), sentences(), folder / "words")


def main(folder):
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    mesh = init_device_mesh("cpu", (DP, TP), mesh_dim_names=("dp", "tp"))
    dp, tp = mesh.get_group("dp"), mesh.get_group("tp")
    row, column = mesh.get_coordinate()
    size = BATCH // DP
    data = [tuple(tensor[row * size : (row + 1) * size] for tensor in batch) for batch in batches(2)]

    def reduced(group=dp, divide=DP, keep=()):
        def reduce(model):
            for parameter in model.parameters():
                gradient = parameter.grad.clone() if dist.get_rank() in keep else parameter.grad
                dist.all_reduce(gradient, group=group)
                gradient /= divide

        return reduce

    def split(forward_group=tp, backward_group=tp):
        return SplitMlp(TP, column, forward_group, backward_group)

    train(split(), data, folder / "right", reduce=reduced(), mesh=mesh)
    train(split(), data, folder / "undeclared", reduce=reduced())
    train(split(), data, folder / "sum", reduce=reduced(divide=1), mesh={"dp": DP, "tp": TP})
    train(split(), data, folder / "missed", reduce=reduced(keep=(2,)), mesh=mesh)
    train(split(), data, folder / "over_all", reduce=reduced(group=None, divide=DP * TP), mesh=mesh)
    train(split(forward_group=None), data, folder / "no_sum_forward", reduce=reduced(), mesh=mesh)
    train(split(backward_group=None), data, folder / "no_sum_backward", reduce=reduced(), mesh=mesh)
    train(split(), data, folder / "other_rate", reduce=reduced(), mesh=mesh, lr=0.1 if dist.get_rank() < 3 else 0.2)
    split_and_sharded = parallelize_module(
        plain(), mesh["tp"], {"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel()}
    )
    train(fully_shard(split_and_sharded, mesh=mesh["dp"]), data, folder / "sharded_and_split")
    words = [tuple(one[2 * row : 2 * row + 2] for one in batch) for batch in sentences()]
    train(fully_shard(split_words(mesh["tp"]), mesh=mesh["dp"]), words, folder / "split_words")
    hybrid = init_device_mesh("cpu", (DP, TP), mesh_dim_names=("replicate", "shard"))
    quarter = BATCH // (DP * TP)
    mine = slice(dist.get_rank() * quarter, (dist.get_rank() + 1) * quarter)
    shares = [tuple(tensor[mine] for tensor in batch) for batch in batches(2)]
    train(fully_shard(plain(), mesh=hybrid), shares, folder / "hybrid_sharded")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
