"""reprod doctor: what is installed, and what on this machine can make two runs differ."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from rich.text import Text

from reprod_log.measure.kernel import status
from reprod_log.report.terminal import terminal

NAME = "doctor"

_PACKAGES = (
    "reprod_log", "numpy", "ml_dtypes", "xxhash", "torch", "paddlepaddle", "paddlepaddle-gpu", "jax", "flax",
    "tensorflow", "tensorflow-cpu", "keras", "mindspore", "onnx", "onnxruntime",
)  # fmt: skip
_SWITCHES = {
    "OMP_NUM_THREADS": "paddle and tensorflow sum in another order with another number of threads; set 1 on both sides",
    "NVIDIA_TF32_OVERRIDE": "0 switches TF32 off everywhere (GPU)",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8 makes cuBLAS repeatable (GPU, torch)",
    "FLAGS_cudnn_deterministic": "1 makes cuDNN repeatable (GPU, paddle)",
    "FLAGS_embedding_deterministic": "1 makes embedding gradients repeatable (GPU, paddle)",
    "PYTHONHASHSEED": "fixes the order of sets and hashes",
}
_TRAPS = (
    ({"tensorflow", "paddlepaddle"}, "import paddle before tensorflow in one process: the other order crashes"),
    ({"mindspore", "paddlepaddle"}, "import mindspore before paddle in one process: the other order fails to load"),
    ({"mindspore"}, "mindspore needs numpy below 2: give it an environment of its own"),
)


def run() -> int:
    """Show versions, import-order traps, and the switches that decide whether runs repeat."""
    console = terminal()
    installed = {name: version for name in _PACKAGES if (version := _version(name))}
    console.print(Text(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}", style="bold"))
    for name, version in installed.items():
        console.print(Text(f"  {name} {version}"))
    missing = [name for name in ("torch", "paddlepaddle") if name not in installed]
    if missing:
        extras = ", ".join("paddle" if name == "paddlepaddle" else name for name in missing)
        console.print(Text(f"  not installed: {', '.join(missing)} (comparing files works without; extras: {extras})"))
    console.print(Text(f"  measuring kernel: {status()}"))
    console.print(Text("Import order", style="bold"))
    present = {"tensorflow" if name == "tensorflow-cpu" else name for name in installed}
    traps = [text for needed, text in _TRAPS if needed <= present]
    for text in traps or ["nothing here gets in another's way"]:
        console.print(Text(f"  {text}"))
    console.print(Text("Switches that decide whether runs repeat", style="bold"))
    for name, meaning in _SWITCHES.items():
        console.print(Text(f"  {name}={os.environ.get(name, '(not set)')}: {meaning}"))
    console.print(
        Text("  in torch: torch.use_deterministic_algorithms(True), torch.backends.cuda.matmul.allow_tf32 = False")
    )
    return 0


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
