"""PyTorch as a part of the process: version, threads, random numbers, switches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from reprod_log.frameworks.contract import Switch


def version() -> str:
    return str(torch.__version__)


def threads() -> int | None:
    return int(torch.get_num_threads())


def seeds() -> dict[str, int]:
    return {"torch": int(torch.initial_seed())}


def seed(number: int) -> None:
    torch.manual_seed(number)


def random_state() -> Any:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    return torch.get_rng_state(), cuda


def set_random_state(state: Any) -> None:
    cpu, cuda = state
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def uncompiled() -> Iterator[None]:
    # Without it the compiler would look at what listens to a model, and give the model's code up for good.
    if "torch._dynamo" not in sys.modules:
        yield  # nothing was compiled, and the compiler takes a second to import
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def switches() -> list[Switch]:
    return [
        Switch(
            "torch.get_deterministic_debug_mode",
            # 1 warns of kernels that have no repeatable form, 2 raises.
            (1, 2),
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
            "some kernels add in an order that changes from run to run",
        ),
        Switch(
            "torch.get_num_threads",
            (1,),
            torch.get_num_threads,
            torch.set_num_threads,
            "sums may be split differently on another number of threads",
        ),
        _attribute("torch.backends.cudnn", "deterministic", True, "cuDNN may pick kernels with unordered sums"),
        _attribute("torch.backends.cudnn", "benchmark", False, "cuDNN's timing picks another kernel in another run"),
        _attribute("torch.backends.cudnn", "allow_tf32", False, "TF32 keeps 10 bits of each factor in convolutions"),
        _attribute("torch.backends.cuda.matmul", "allow_tf32", False, "TF32 keeps 10 bits of each factor in products"),
        Switch(
            "CUBLAS_WORKSPACE_CONFIG",
            (":4096:8", ":16:8"),
            lambda: os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
            None,
            "cuBLAS is repeatable only with a fixed workspace; set it before the program starts (matters on GPUs)",
        ),
    ]


def _attribute(place: str, name: str, wanted: Any, why: str) -> Switch:
    owner: Any = torch
    for part in place.split(".")[1:]:
        owner = getattr(owner, part)
    return Switch(
        f"{place}.{name}", (wanted,), lambda: getattr(owner, name), lambda value: setattr(owner, name, value), why
    )
