"""PaddlePaddle tensors that lie on several processes, and the meshes that these form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle.distributed as dist
from paddle.distributed import fleet
from paddle.distributed.fleet.base.topology import CommunicateTopology, HybridCommunicateGroup

from reprod_log.errors import UsageError
from reprod_log.frameworks.hooked import Hooked
from reprod_log.frameworks.paddle.tensors import is_distributed
from reprod_log.recording.shards import Axis, MeshPlace, Shard

_SHORT = {"data": "dp", "pipe": "pp", "model": "mp"}
"""What hybrid_configs call the axes whose names in the topology are longer."""


class PaddleDistributed(Hooked):
    def shard(self, tensor: Any) -> Shard | None:
        if not is_distributed(tensor):
            return None
        where = tensor.process_mesh
        laid = [
            (name, placement)
            for name, size, placement in zip(where.dim_names, where.shape, tensor.placements, strict=True)
            if size > 1
        ]
        partial = [(name, placement.reduce_type()) for name, placement in laid if placement.is_partial()]
        kinds = dist.ReduceType
        strange = [str(kind) for _, kind in partial if kind not in (kinds.kRedSum, kinds.kRedAvg)]
        if strange:
            raise UsageError(f"a tensor that waits for a reduction by {strange[0]} cannot be put together later")
        return Shard(
            whole=tuple(int(size) for size in tensor.shape),
            axes=tuple(name for name, _ in laid),
            cuts=tuple((name, int(placement.get_dim())) for name, placement in laid if placement.is_shard()),
            summed=tuple(name for name, kind in partial if kind == kinds.kRedSum),
            averaged=tuple(name for name, kind in partial if kind == kinds.kRedAvg),
        )

    def pieces(self, module: Any) -> list[tuple[Any, Shard]]:
        """Those of fleet's tensor-parallel layers, whose parameters say which dim of them is split."""
        group = _hybrid_group()
        size = 1 if group is None else int(group.get_model_parallel_world_size())
        if size == 1:
            return []
        found = []
        for parameter in module.parameters(include_sublayers=False):
            dim = getattr(parameter, "split_axis", None)
            if getattr(parameter, "is_distributed", False) and isinstance(dim, int):
                whole = [int(length) * (size if place == dim else 1) for place, length in enumerate(parameter.shape)]
                found.append((parameter, Shard(tuple(whole), ("mp",), cuts=(("mp", dim),))))
        return found

    def mesh(self, given: Any, modules: Sequence[Any], tensors: Sequence[Any]) -> tuple[MeshPlace, ...] | None:
        if given is None:
            return _found(tensors)
        if isinstance(given, dist.ProcessMesh):
            return _on_mesh(given)
        if isinstance(given, HybridCommunicateGroup):
            given = given.topology()
        return _on_topology(given) if isinstance(given, CommunicateTopology) else None


def _found(tensors: Sequence[Any]) -> tuple[MeshPlace, ...]:
    for tensor in tensors:
        if is_distributed(tensor):
            return _on_mesh(tensor.process_mesh)
    group = _hybrid_group()
    return () if group is None else _on_topology(group.topology())


def _on_mesh(where: Any) -> tuple[MeshPlace, ...]:
    rank = dist.get_rank()
    if rank not in where.process_ids:
        raise UsageError(f"rank {rank} is not on the mesh of the processes {where.process_ids}")
    index = where.process_ids.index(rank)
    found: list[MeshPlace] = []
    for name, size in zip(reversed(where.dim_names), reversed(where.shape), strict=True):
        found.insert(0, MeshPlace(Axis.named(name, int(size)), index % int(size)))
        index //= int(size)
    return tuple(found)


def _on_topology(topology: Any) -> tuple[MeshPlace, ...]:
    names = topology.get_hybrid_group_names()
    where = topology.get_coord(dist.get_rank())
    return tuple(
        MeshPlace(Axis.named(_SHORT.get(name, name), int(topology.get_dim(name))), int(getattr(where, name)))
        for name in names
    )


def _hybrid_group() -> Any | None:
    """What fleet made of hybrid_configs; None when it was not given any."""
    return getattr(fleet.fleet, "_hcg", None)
