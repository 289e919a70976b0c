"""Trains small models whose parameters torch itself distributes over two ranks: fully_shard, FSDP, DTensor layers.

Run by train_torch.py, after its own trainings.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from train_torch import batches, share

from reprod_log import watch

STEPS = 2


def mlp():
    """Seven hidden features and three outputs: nothing divides by two."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def even():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def train(model, data, save, *, lr=0.1, optimizer=torch.optim.Adam):
    optimizer = optimizer(model.parameters(), lr=lr)
    with watch(model, optimizer=optimizer, save=save):
        for inputs, labels in data:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()


def single(folder):
    """The same trainings in one process, on whole batches."""
    train(mlp(), batches(STEPS), folder / "mlp")
    train(even(), batches(STEPS), folder / "even")


def sharded(mesh=None):
    model = mlp()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def summed():
    model = sharded()
    for module in model.modules():
        if hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(1.0)
            # Gloo cannot multiply while it sums.
            module.set_force_sum_reduction_for_comms(True)
    return model


def distributed(folder):
    """All trainings of a process that stands in its group."""
    rank = dist.get_rank()
    data = [share(batch, rank) for batch in batches(STEPS)]
    train(sharded(), data, folder / "distributed" / "sharded")
    train(sharded(init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))), data, folder / "distributed" / "named")
    train(summed(), data, folder / "distributed" / "sum")
    train(sharded(), data, folder / "distributed" / "other_rate", lr=0.1 if rank == 0 else 0.01)
    train(sharded(), [share(batch, 0) for batch in batches(STEPS)], folder / "distributed" / "same_data")
    first = FullyShardedDataParallel(mlp(), device_id=torch.device("cpu"), use_orig_params=True)
    train(first, data, folder / "distributed" / "first")
    flat = FullyShardedDataParallel(mlp(), device_id=torch.device("cpu"))
    train(flat, data, folder / "distributed" / "flat")
    tp = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    kept = {"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel()}
    train(parallelize_module(even(), tp, kept), batches(STEPS), folder / "distributed" / "tensor_parallel")
    local = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    train(parallelize_module(even(), tp, local), batches(STEPS), folder / "distributed" / "local_output")
