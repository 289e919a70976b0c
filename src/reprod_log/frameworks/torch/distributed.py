"""PyTorch tensors that lie on several processes: DTensor, and the pieces that FullyShardedDataParallel keeps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from reprod_log.errors import UsageError
from reprod_log.frameworks.hooked import Hooked
from reprod_log.recording.shards import UNNAMED, Axis, MeshPlace, Shard, is_batch

FLAT_PARAMETER = "_flat_param"
"""What the first FSDP registers in a module unless it is asked to keep the parameters themselves."""


class TorchDistributed(Hooked):
    def shard(self, tensor: Any) -> Shard | None:
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) or not hasattr(tensor, "placements"):
            return None
        names = _names(tensor.device_mesh)
        laid = [
            (name, placement)
            for dim, (name, placement) in enumerate(zip(names, tensor.placements, strict=True))
            if tensor.device_mesh.size(dim) > 1
        ]
        cuts = [(name, one) for name, one in laid if _is_cut(one)]
        # A strided shard was cut after the axes to its right: that is how FSDP cuts what tensor parallelism cut before.
        ordered = sorted(cuts, key=lambda cut: type(cut[1]).__name__ == "_StridedShard")
        partial = [(name, one.reduce_op) for name, one in laid if one.is_partial()]
        strange = [op for _, op in partial if op not in ("sum", "avg")]
        if strange:
            raise UsageError(f"a DTensor that waits for a reduction by {strange[0]!r} cannot be put together later")
        return Shard(
            whole=tuple(int(size) for size in tensor.shape),
            axes=tuple(name for name, _ in laid),
            cuts=tuple((name, int(one.dim) % max(tensor.dim(), 1)) for name, one in ordered),
            summed=tuple(name for name, op in partial if op == "sum"),
            averaged=tuple(name for name, op in partial if op == "avg"),
        )

    def pieces(self, module: Any) -> list[tuple[Any, Shard]]:
        """Those of FSDP's first version, with use_orig_params=True: a rank has a stretch of all of them, flattened."""
        if not is_first_fsdp(module) or module._handle is None:
            return []
        flat = module._handle.flat_param
        if getattr(flat, "_params", None) is None or not module._handle.uses_sharded_strategy:
            return []
        size = module._handle.world_size
        names = _names(module._device_mesh) if getattr(module, "_device_mesh", None) is not None else (UNNAMED,)
        if size == 1:
            return []
        return [
            (parameter, Shard(tuple(shape), names[-1:], cuts=((names[-1], 0),), flat=True))
            for parameter, shape in zip(flat._params, flat._shapes, strict=True)
        ]

    def mesh(self, given: Any, modules: Sequence[Any], tensors: Sequence[Any]) -> tuple[MeshPlace, ...] | None:
        if given is not None:
            return _places(given, modules) if hasattr(given, "mesh_dim_names") else None
        for tensor in tensors:
            if hasattr(tensor, "placements"):
                # A part of the mesh knows the whole that it was taken from.
                found = tensor.device_mesh
                return _places(found._get_root_mesh() if hasattr(found, "_get_root_mesh") else found, modules)
        if any(is_first_fsdp(module) for module in modules):
            size = torch.distributed.get_world_size()
            return (MeshPlace(Axis(UNNAMED, size, batch=True), torch.distributed.get_rank()),)
        return ()


def _is_cut(placement: Any) -> bool:
    return not placement.is_replicate() and not placement.is_partial()


def _places(device_mesh: Any, modules: Sequence[Any]) -> tuple[MeshPlace, ...]:
    where = device_mesh.get_coordinate()
    if where is None:
        raise UsageError("this process is not on the mesh that its tensors lie on")
    unnamed = device_mesh.mesh_dim_names is None
    batch = unnamed and any(_is_sharded_data_parallel(module) for module in modules)
    return tuple(
        MeshPlace(
            Axis(name, int(device_mesh.size(dim)), batch=batch or (not unnamed and is_batch(name))), int(where[dim])
        )
        for dim, name in enumerate(_names(device_mesh))
    )


def _names(device_mesh: Any) -> tuple[str, ...]:
    names = device_mesh.mesh_dim_names
    return tuple(f"axis{dim}" for dim in range(device_mesh.ndim)) if names is None else tuple(names)


def _is_sharded_data_parallel(module: Any) -> bool:
    return is_first_fsdp(module) or _is_a("FSDPModule", module)


def is_first_fsdp(module: Any) -> bool:
    """Whether the module is FSDP's first version, which wraps another one."""
    return _is_a("FullyShardedDataParallel", module)


def _is_a(name: str, module: Any) -> bool:
    # A program that uses it has imported it; it is slow to import, and not in every torch.
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), name, None)
    return kind is not None and isinstance(module, kind)
