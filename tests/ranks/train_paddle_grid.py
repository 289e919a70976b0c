"""Trains a small model on 2 × 2 ranks with fleet's hybrid topology and tensor-parallel layers, and with a mistake.

python -m paddle.distributed.launch --nproc_per_node 4 --backend gloo train_paddle_grid.py FOLDER
"""

import sys
from pathlib import Path

import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.distributed import fleet
from paddle.distributed.fleet.meta_parallel import ColumnParallelLinear, RowParallelLinear
from train_paddle import BATCH, batches

from reprod_log import watch

DP, MP, HIDDEN = 2, 2, 6


class Gather(paddle.autograd.PyLayer):
    """The identity forward, a sum over the model-parallel ranks backward."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=fleet.get_hybrid_communicate_group().get_model_parallel_group())
        return gradient


class Sum(paddle.autograd.PyLayer):
    """A sum over the model-parallel ranks forward, the identity backward."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=fleet.get_hybrid_communicate_group().get_model_parallel_group())
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()


class Column(ColumnParallelLinear):
    """Its own forward says "Do not support c_identity for cpu kernel now"."""

    def forward(self, x):
        return nn.functional.linear(Gather.apply(x), self.weight, self.bias)


class Row(RowParallelLinear):
    def forward(self, x):
        return Sum.apply(nn.functional.linear(x, self.weight)) + self.bias


class Whole(nn.Layer):
    def __init__(self):
        super().__init__()
        paddle.seed(0)
        self.before, self.up, self.down = nn.Linear(5, 5), nn.Linear(5, HIDDEN), nn.Linear(HIDDEN, 3)

    def forward(self, x):
        return self.down(paddle.tanh(self.up(paddle.tanh(self.before(x)))))


class Split(nn.Layer):
    """The same weights, those of the hidden features in pieces."""

    def __init__(self, rank):
        super().__init__()
        whole = Whole()
        size = HIDDEN // MP
        mine = slice(rank * size, (rank + 1) * size)
        self.before = whole.before
        self.up = Column(5, HIDDEN, has_bias=True, gather_output=False)
        self.down = Row(HIDDEN, 3, has_bias=True, input_is_parallel=True)
        self.up.weight.set_value(whole.up.weight[:, mine])
        self.up.bias.set_value(whole.up.bias[mine])
        self.down.weight.set_value(whole.down.weight[mine])
        self.down.bias.set_value(whole.down.bias)

    forward = Whole.forward


def train(model, data, save, *, reduce=None):
    optimizer = paddle.optimizer.Momentum(0.1, 0.9, parameters=model.parameters())
    with watch(model, optimizer=optimizer, save=save):
        for inputs, labels in data:
            nn.functional.cross_entropy(model(paddle.to_tensor(inputs)), paddle.to_tensor(labels)).backward()
            if reduce is not None:
                reduce(model)
            optimizer.step()
            optimizer.clear_grad()


def single(folder):
    """The same training in one process, on whole batches."""
    train(Whole(), batches(2), folder / "single")


def one_group_after_another():
    """paddle 3.3.1's gloo groups that are made while others still connect fail with 'Connection refused'."""
    make = dist.new_group

    def instead(*args, **kwargs):
        group = make(*args, **kwargs)
        dist.barrier()
        return group

    dist.new_group = instead


def main(folder):
    one_group_after_another()
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": DP, "mp_degree": MP, "pp_degree": 1}
    fleet.init(is_collective=True, strategy=strategy)
    group = fleet.get_hybrid_communicate_group()
    row, column = group.get_data_parallel_rank(), group.get_model_parallel_rank()
    size = BATCH // DP
    data = [tuple(array[row * size : (row + 1) * size] for array in batch) for batch in batches(2)]

    def reduced(divide):
        def reduce(model):
            for parameter in model.parameters():
                gradient = parameter.grad.clone()
                dist.all_reduce(gradient, group=group.get_data_parallel_group())
                parameter.grad.set_value(gradient / divide)

        return reduce

    train(Split(column), data, folder / "right", reduce=reduced(DP))
    train(Split(column), data, folder / "sum", reduce=reduced(1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
