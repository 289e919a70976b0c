"""BatchNorm statistics on several ranks: each rank's own, or rank 0's given to all before every forward pass.

Both wrappers let each rank normalise by its own share of the batch. paddle.DataParallel then keeps what each rank
found; torch's DistributedDataParallel gives rank 0's buffers to all ranks when the next forward pass begins. From
a rank's statistics after two steps, its momentum and what the layer was fed follows which of the two it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from reprod_log.diagnose import Finding
from reprod_log.errors import listed
from reprod_log.layers.arrangement import channels_last
from reprod_log.ranks.bits import same
from reprod_log.ranks.parts import Group
from reprod_log.ranks.roles import running_statistics
from reprod_log.recording import Array, Entry, Key, ModuleInfo, Recording

Keeping = Literal["equal", "own", "rank 0's", "unknown"]
_FITS = 1e-4


def differing_statistics(ranks: Group) -> dict[str, ModuleInfo]:
    """Paths of the running statistics that are not the same on all ranks in some step, with their layer."""
    statistics = running_statistics(ranks.parts[0])
    found: dict[str, ModuleInfo] = {}
    for text in ranks.keys:
        key = ranks.parts[0][text].key
        if key.phase == "buffer" and not key.run and key.path in statistics and key.path not in found:
            first, *others = ranks.entries(text)
            if not all(same(first, other) for other in others):
                found[key.path] = statistics[key.path]
    return found


def keeping(ranks: Group, differing: dict[str, ModuleInfo]) -> Keeping:
    """How the ranks keep statistics that differ: each its own, or rank 0's for all from one step to the next."""
    if not differing:
        return "equal"
    said = {_told(ranks, rank, path, module) for path, module in differing.items() for rank in range(1, ranks.size)}
    said -= {"unknown"}
    # What a framework does by itself is no proof, but an answer to start from.
    return next(iter(said)) if len(said) == 1 else "unknown"


def is_synchronised(module: ModuleInfo) -> bool:
    """Whether a batch norm says of itself that it takes its statistics over all ranks."""
    return "Sync" in module.type or "SyncBatchNorm" in module.origin


def may_differ(ranks: Group, differing: dict[str, ModuleInfo], kept: Keeping) -> bool:
    """Whether differing statistics are what the wrapper is meant to leave at the end of a step."""
    if any(is_synchronised(module) for module in differing.values()):
        return False
    return kept == "rank 0's" or (kept == "unknown" and ranks.parts[0].provenance.framework == "torch")


def look(ranks: Group, differing: dict[str, ModuleInfo], kept: Keeping) -> Finding | None:
    """What to say about statistics that differ between ranks."""
    if not differing:
        return None
    apart = dict.fromkeys(module.path for module in differing.values() if is_synchronised(module))
    if apart:
        return Finding(
            rule="rank_statistics",
            cause=f"the statistics of {listed(apart)} differ between ranks, although SyncBatchNorm takes them over all",
            evidence="after the same step the running statistics have other bits",
            confidence="consistent",
            advice="look at its process_group: it must hold all ranks that have parts of the batch; every rank must "
            "call the layer in each step",
            keys=tuple(differing)[:3],
        )
    layers = listed(dict.fromkeys(module.path for module in differing.values()))
    sync = "use SyncBatchNorm (its convert_sync_batchnorm turns a whole model) for statistics of the whole batch"
    if kept == "rank 0's":
        return Finding(
            rule="rank_statistics",
            cause=f"the BatchNorm statistics of {layers} differ between ranks at the end of a step; rank 0's are given "
            "to all before the next forward pass, so only its share of the data enters them",
            evidence="rank 0's running mean is found again on a rank that was fed something else "
            "(DistributedDataParallel with broadcast_buffers)",
            confidence="consistent",
            advice=f"usual and harmless for training; {sync}",
            kind="remark",
        )
    proof = "fitted to the running means: those of each rank follow from its own of the step before"
    if kept == "unknown":
        proof = "from what was recorded it cannot be told whether rank 0's are given to the others later"
    passes = may_differ(ranks, differing, kept)
    return Finding(
        rule="rank_statistics",
        cause=f"the BatchNorm statistics of {layers} differ between ranks: each rank keeps those of its own data",
        evidence=proof,
        confidence="possible" if kept == "unknown" else "consistent",
        advice=f"{sync}, or give rank 0's to all before evaluating and saving; paddle.DataParallel and "
        "broadcast_buffers=False leave them so (--accept '*/buffer/*' if that is meant)",
        keys=tuple(differing)[:3],
        kind="suspicious pass" if passes else "cause",
    )


def _told(ranks: Group, rank: int, path: str, module: ModuleInfo) -> Keeping:
    """What the running mean of one layer on one rank says."""
    if not path.endswith("mean"):
        return "unknown"
    part, first = ranks.parts[rank], ranks.parts[0]
    share = _share(module)
    for before, step in zip(first.steps, first.steps[1:], strict=False):
        then, now = Key(path, "buffer", before), Key(path, "buffer", step)
        if step != before + 1 or not (ranks.all_have(then) and ranks.all_have(now)):
            continue
        own, theirs, result = part[then], first[then], part[now]
        if same(own, theirs):
            # The buffers of a step are read when the next one begins, which may be after rank 0's were given to all.
            output = Key(module.path, "forward", before, 0, "output")
            if ranks.all_have(output) and not same(part[output], first[output]):
                return "rank 0's"
            continue
        fed = _fed(part, module, step)
        if share is None or fed is None or any(entry.detail != "full" for entry in (own, theirs, result)):
            continue
        axis = fed.ndim - 1 if channels_last(module) else 1
        mean = fed.astype(np.float64).mean(axis=tuple(one for one in range(fed.ndim) if one != axis))
        apart = float(np.linalg.norm(_wide(own) - _wide(theirs)))
        errors = [
            float(np.linalg.norm((1 - share) * _wide(one) + share * mean - _wide(result))) for one in (own, theirs)
        ]
        if min(errors) <= max(_FITS * apart, 1e-6 * float(np.linalg.norm(_wide(result)))):
            return "own" if errors[0] < errors[1] else "rank 0's"
    return "unknown"


def _share(module: ModuleInfo) -> float | None:
    """The share of the new in the running mean."""
    momentum = module.settings.get("momentum")
    if not isinstance(momentum, (int, float)) or not 0 < momentum < 1:
        return None
    # paddle's momentum is the share of the old.
    return 1 - momentum if module.origin.startswith("paddle") else float(momentum)


def _fed(part: Recording, module: ModuleInfo, step: int) -> Array | None:
    """What the layer was fed in a step: its recorded input, or the output that was its input in an earlier step."""
    given = Key(module.path, "forward", step, 0, "input.0")
    if replace(given, call=1, role="output") in part:
        return None
    if given in part:
        return _values(part[given])
    for other in part.steps:
        earlier = replace(given, step=other)
        source = part[earlier].meta.get("from") if earlier in part else None
        if isinstance(source, str):
            now = replace(Key.parse(source), step=step)
            return _values(part[now]) if now in part else None
    return None


def _values(entry: Entry) -> Array | None:
    return entry.array() if entry.detail == "full" and len(entry.shape) >= 2 else None


def _wide(entry: Entry) -> Array:
    return entry.array().astype(np.float64)
