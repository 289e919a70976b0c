"""Ranks for the tests: parts made by hand with the entries that a test needs, and programs under a launcher."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np

from reprod_log import Recording
from reprod_log.ranks import Ranks
from reprod_log.recording import ModuleInfo, Provenance


def part(rank, arrays, *, size=2, modules=(), **facts):
    facts = {"weights_hash": "w", "framework": "torch", **facts}
    provenance = Provenance(extra={"rank": rank, "world_size": size, **facts.pop("extra", {})}, **facts)
    return replace(Recording.from_arrays(arrays, provenance=provenance), modules=tuple(modules))


def ranks_of(*parts_arrays, modules=(), source="made", **facts):
    size = len(parts_arrays)
    parts = (part(rank, arrays, size=size, modules=modules, **facts) for rank, arrays in enumerate(parts_arrays))
    return Ranks(tuple(parts), source=source)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def batch_norm(path="bn", **settings):
    shapes = {"running_mean": (3,), "running_var": (3,)}
    settings = {"momentum": 0.1, **settings}
    return ModuleInfo(path, "BatchNorm1d", "batchnorm", shapes, "torch.nn.BatchNorm1d", settings)


def rules(alignment, kind=None):
    return [one.rule for one in alignment.findings if kind in (None, one.kind)]


# A launcher finds free ports, lets go of them, and its processes take them later: another program may come in between.
LAUNCHES = 3


def launched(launcher, *options, program, folder, processes=2):
    """The folder, after several processes have run the program into it."""
    before = set(folder.iterdir())
    failures = []
    while len(failures) < LAUNCHES:
        failure = _failed_launch(launcher, *options, program=program, folder=folder, processes=processes)
        if not failure:
            return folder
        failures.append(failure)
        for left in set(folder.iterdir()) - before:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    raise AssertionError("\n\n".join(failures))


def _failed_launch(launcher, *options, program, folder, processes):
    """What the launcher and the processes printed where they failed, else nothing."""
    done = subprocess.run(
        [sys.executable, "-m", launcher, "--nproc_per_node", str(processes), *options, program, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode == 0:
        return ""
    logs = (f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}" for log in sorted(folder.glob("log/worker*")))
    return "\n".join((done.stderr[-1000:], *logs))
