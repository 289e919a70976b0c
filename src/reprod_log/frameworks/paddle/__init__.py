"""PaddlePaddle: everything that reprod_log knows of it, by the parts of contract.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import paddle
from paddle.jit.dy2static.program_translator import ProgramTranslator

from reprod_log.frameworks.contract import Framework, Switch
from reprod_log.frameworks.hooks import temporarily
from reprod_log.frameworks.paddle import tensors
from reprod_log.frameworks.paddle.distributed import PaddleDistributed
from reprod_log.frameworks.paddle.export import PaddleExport
from reprod_log.frameworks.paddle.modules import PaddleModules
from reprod_log.frameworks.paddle.operators import PaddleOperators, widened_casts
from reprod_log.frameworks.paddle.optimizers import PaddleOptimizers


class Paddle(PaddleModules, PaddleOptimizers, PaddleOperators, PaddleDistributed, PaddleExport):
    """Also as a part of the process: threads, random numbers, switches."""

    def threads(self) -> int | None:
        # paddle uses one thread by default.
        text = os.environ.get("OMP_NUM_THREADS", "1").split(",")[0]
        return int(text) if text.isdigit() else None

    def seeds(self) -> dict[str, int]:
        return {"paddle": int(paddle.base.core.default_cpu_generator().initial_seed())}

    def seed(self, number: int) -> None:
        paddle.seed(number)

    def random_state(self) -> Any:
        return paddle.get_rng_state()

    def set_random_state(self, state: Any) -> None:
        paddle.set_rng_state(state)

    @contextmanager
    def precision(self, dtype: str) -> Iterator[None]:
        # Without it the optimizer's learning rate stays float32 and rounds every update.
        casts = widened_casts() if dtype == "float64" else nullcontext()
        with temporarily(paddle.set_default_dtype, dtype, paddle.get_default_dtype()), casts:
            yield

    def uncompiled(self) -> AbstractContextManager[None]:
        # A converted forward pass would call hooks once, with symbols instead of tensors.
        translator = ProgramTranslator.get_instance()
        return temporarily(translator.enable, False, translator.enable_to_static)

    def switches(self) -> list[Switch]:
        return [
            Switch(
                "OMP_NUM_THREADS",
                ("1",),
                lambda: os.environ.get("OMP_NUM_THREADS", "1"),
                None,
                "paddle's sums differ between one and two threads; set it before the program starts",
            ),
            _flag("FLAGS_cudnn_deterministic", True, "cuDNN may pick kernels with unordered sums"),
            _flag("FLAGS_embedding_deterministic", 1, "an embedding's gradient is added up in no fixed order on GPUs"),
            Switch(
                "NVIDIA_TF32_OVERRIDE",
                ("0",),
                lambda: os.environ.get("NVIDIA_TF32_OVERRIDE", ""),
                None,
                "TF32 keeps 10 bits of each factor; set it before the program starts (matters on GPUs)",
            ),
        ]


def _flag(name: str, wanted: Any, why: str) -> Switch:
    try:
        paddle.get_flags(name)
    except ValueError:
        # A build without GPU support does not know it; then only the environment says what the user wants.
        return Switch(name, (str(int(wanted)),), lambda: os.environ.get(name, ""), None, f"{why} (matters on GPUs)")
    return Switch(
        name, (wanted,), lambda: paddle.get_flags(name)[name], lambda value: paddle.set_flags({name: value}), why
    )


FRAMEWORK = Framework("paddle", tensors, Paddle())
