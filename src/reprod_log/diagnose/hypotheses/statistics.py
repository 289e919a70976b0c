"""Running statistics of batch norm: another share of the old, the biased variance, or no update at all.

From two steps of the reference and its momentum the batch's own statistic follows; what the candidate made of the same
batch then says which convention it has.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Both, Material
from reprod_log.layers.lookup import running_statistics
from reprod_log.layers.settings import shared_setting
from reprod_log.pairing.values import factor, relative
from reprod_log.recording import Key, ModuleInfo


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or len(material.steps) < 2:
        return
    for path, (ours, theirs) in material.layers.items():
        names = running_statistics(ours)
        if not {"running_mean", "running_var"} <= names.keys():
            continue
        mean, variance = names["running_mean"], names["running_var"]
        keys = [Key(f"{path}.{name}", "buffer", material.steps[0]) for name in (mean, variance)]
        if not any(key in case.failed for key in keys):
            # Another convention shows at once; what shows later comes from weights that have parted since.
            continue
        if any(Key(path, "forward", step, 0, "input.0") in case.failed for step in material.steps[:2]):
            # It was given other values, so its statistics must differ.
            continue
        found = _compared(material, path, ours, theirs, mean, variance)
        if found is not None:
            yield found


def _compared(
    material: Material, path: str, ours: ModuleInfo, theirs: ModuleInfo, mean: str, variance: str
) -> Finding | None:
    first, second = material.steps[:2]
    means = [material.best(Key(f"{path}.{mean}", "buffer", step)) for step in (first, second)]
    variances = [material.best(Key(f"{path}.{variance}", "buffer", step)) for step in (first, second)]
    if any(one is None for one in (*means, *variances)):
        return None
    (m0, m1), (v0, v1) = _both(means), _both(variances)
    if relative(m0[1], m1[1]) < 1e-7 and relative(v0[1], v1[1]) < 1e-7 and relative(v0[0], v1[0]) > 1e-5:
        return _finding(
            path,
            f"the running statistics of {path} do not change in the candidate: it is in eval mode or frozen",
            "mean and variance are the same after two steps, while the reference's move",
            f"put the candidate in train mode, and {theirs.type}(use_global_stats=None) for {theirs.path}",
        )
    momentum = shared_setting(ours, "momentum")
    share = 0.1 if momentum is None else float(momentum)
    if not 0 < share < 1:
        return None
    batch_mean = m0[0] + (m1[0] - m0[0]) / share
    their_share = factor(batch_mean - m0[1], m1[1] - m0[1], within=1e-3)
    if their_share is not None and abs(their_share - share) > 1e-3 * share:
        return _finding(
            path,
            f"the running statistics of {path} move by a share of {their_share:.4g} per step instead of {share:.4g}",
            "fitted to the running mean of every channel",
            "torch's momentum is the share of the new, paddle's the share of the old: paddle momentum = 1 - torch's",
        )
    batch_variance = v0[0] + (v1[0] - v0[0]) / share
    their_batch = v0[1] + (v1[1] - v0[1]) / share
    ratio = factor(batch_variance, their_batch, within=1e-4)
    count = _values_per_channel(material, path, first)
    if their_share is None or ratio is None or count is None:
        return None
    biased = min(abs(ratio - (count - 1) / count), abs(ratio - count / (count - 1)))
    if biased < 0.1 / count:
        return _finding(
            path,
            f"the running variance of {path} is computed with another divisor: N on one side, N - 1 on the other "
            "(biased and unbiased)",
            f"the batch's variance is {ratio:.6g} of the reference's in every channel, which is N = {count}",
            "paddle keeps the biased variance, torch the unbiased; multiply the increment by N/(N-1) or accept it: "
            "it acts only in eval mode",
        )
    return None


def _values_per_channel(material: Material, path: str, step: int) -> int | None:
    """N: how many values each statistic was computed from."""
    given = material.values(Key(path, "forward", step, 0, "input.0"))
    if given is None or given[0].ndim < 2:
        return None
    count = given[0].size // given[0].shape[1]
    return count if count > 1 else None


def _both(pairs: list[Both | None]) -> tuple[Both, Both]:
    one, two = pairs
    assert one is not None
    assert two is not None
    return one, two


def _finding(path: str, cause: str, evidence: str, advice: str) -> Finding:
    return Finding(
        rule="statistics", cause=cause, evidence=evidence, confidence="consistent", advice=advice, keys=(Key(path),)
    )
