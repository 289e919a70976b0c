"""PyTorch: everything that reprod_log knows of it, by the parts of contract.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import reduce
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from reprod_log.frameworks.contract import Framework, Switch
from reprod_log.frameworks.hooks import temporarily
from reprod_log.frameworks.torch import tensors
from reprod_log.frameworks.torch.distributed import TorchDistributed
from reprod_log.frameworks.torch.export import TorchExport
from reprod_log.frameworks.torch.modules import TorchModules
from reprod_log.frameworks.torch.operators import TorchOperators
from reprod_log.frameworks.torch.optimizers import TorchOptimizers


class Torch(TorchModules, TorchOptimizers, TorchOperators, TorchDistributed, TorchExport):
    """Also as a part of the process: threads, random numbers, switches."""

    def threads(self) -> int | None:
        return int(torch.get_num_threads())

    def seeds(self) -> dict[str, int]:
        return {"torch": int(torch.initial_seed())}

    def seed(self, number: int) -> None:
        torch.manual_seed(number)

    def random_state(self) -> Any:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
        return torch.get_rng_state(), cuda

    def set_random_state(self, state: Any) -> None:
        cpu, cuda = state
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)

    @contextmanager
    def precision(self, dtype: str) -> Iterator[None]:
        widening = _Widening() if dtype == "float64" else nullcontext()
        with temporarily(torch.set_default_dtype, getattr(torch, dtype), torch.get_default_dtype()), widening:
            yield

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        # Without it the compiler would look at what listens to a model, and give the model's code up for good.
        if "torch._dynamo" not in sys.modules:
            yield  # nothing was compiled, and the compiler takes a second to import
            return
        with torch.compiler.set_stance("force_eager"):
            yield

    def switches(self) -> list[Switch]:
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
            _attribute("cudnn", "deterministic", True, "cuDNN may pick kernels with unordered sums"),
            _attribute("cudnn", "benchmark", False, "cuDNN's timing picks another kernel in another run"),
            _attribute("cudnn", "allow_tf32", False, "TF32 keeps 10 bits of each factor in convolutions"),
            _attribute("cuda.matmul", "allow_tf32", False, "TF32 keeps 10 bits of each factor in products"),
            Switch(
                "CUBLAS_WORKSPACE_CONFIG",
                (":4096:8", ":16:8"),
                lambda: os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
                None,
                "cuBLAS is repeatable only with a fixed workspace; set it before the program starts (matters on GPUs)",
            ),
        ]


class _Widening(TorchDispatchMode):  # type: ignore[misc]  # torch is not looked into by mypy
    """Code that converts to float32 by itself (a norm, a softmax) stays in float64.

    Otherwise both passes of a program round alike in these places, and rounding looks smaller than it is.
    """

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether the compiler may work as if this mode were absent; otherwise it gives compiled code up for good."""
        return True

    def __torch_dispatch__(self, kernel: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: torch.float64 if one is torch.float32 else one for name, one in (kwargs or {}).items()}
        if kernel._schema.is_mutable or not any(_is(one, torch.float64) for one in args):
            return kernel(*args, **kwargs)
        # A table that is still float32 meets what would have been converted to it.
        return kernel(*(one.double() if _is(one, torch.float32) else one for one in args), **kwargs)


def _is(value: Any, dtype: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is dtype


def _attribute(place: str, name: str, wanted: Any, why: str) -> Switch:
    """A switch of one of torch's backends."""
    owner = reduce(getattr, place.split("."), torch.backends)
    return Switch(
        f"torch.backends.{place}.{name}",
        (wanted,),
        lambda: getattr(owner, name),
        lambda value: setattr(owner, name, value),
        why,
    )


FRAMEWORK = Framework("torch", tensors, Torch())
