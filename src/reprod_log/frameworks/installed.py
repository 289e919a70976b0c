"""What is known of frameworks that may be installed, without importing any: packages, words, traps, switches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

from reprod_log.messages import Message, message


@dataclass(frozen=True)
class Installable:
    """One framework as people install and call it."""

    name: str
    packages: tuple[str, ...]
    words: tuple[str, ...] = ()
    """Words for it in the names of log files, besides its own name."""
    extra: str = ""
    """Our extra that installs it."""
    variables: tuple[str, ...] = ()
    """How the names of environment variables begin that it reads."""
    switches: tuple[tuple[str, Message], ...] = ()
    """Environment variables that decide whether its runs repeat, with their meaning."""
    advice: str = ""
    """What to call for repeatable runs."""
    files: tuple[str, ...] = ()
    """How the names of files end that are models of it."""
    modules: tuple[str, ...] = ()
    """What is imported to run such a file."""


FRAMEWORKS = (
    Installable(
        "torch",
        ("torch",),
        words=("pytorch",),
        extra="torch",
        variables=("TORCH_", "PYTORCH_", "CUBLAS_"),
        switches=(("CUBLAS_WORKSPACE_CONFIG", message("doctor.switch.cublas")),),
        advice="torch.use_deterministic_algorithms(True), torch.backends.cuda.matmul.allow_tf32 = False",
    ),
    Installable(
        "paddle",
        ("paddlepaddle", "paddlepaddle-gpu"),
        words=("paddlepaddle", "pd"),
        extra="paddle",
        variables=("FLAGS_",),
        switches=(
            ("FLAGS_cudnn_deterministic", message("doctor.switch.cudnn")),
            ("FLAGS_embedding_deterministic", message("doctor.switch.embedding")),
        ),
    ),
    Installable("jax", ("jax",), extra="jax"),
    Installable("flax", ("flax", "optax"), extra="jax"),
    Installable("equinox", ("equinox",), extra="jax"),
    Installable("haiku", ("dm-haiku",), extra="jax"),
    Installable("tensorflow", ("tensorflow", "tensorflow-cpu")),
    Installable("keras", ("keras",), extra="keras"),
    Installable("mindspore", ("mindspore",), extra="mindspore"),
    Installable("onnx", ("onnx", "onnxruntime"), extra="onnx", files=(".onnx",), modules=("onnx", "onnxruntime")),
)
USUAL_REFERENCE = "torch"
"""The framework that reproductions start from, when only the names of files tell which side is which."""

SWITCHES = (
    ("OMP_NUM_THREADS", message("doctor.switch.threads")),
    ("NVIDIA_TF32_OVERRIDE", message("doctor.switch.tf32")),
    *(switch for framework in FRAMEWORKS for switch in framework.switches),
    ("PYTHONHASHSEED", message("doctor.switch.hash")),
)
"""Environment variables that decide whether runs repeat, with their meaning."""

TRAPS = (
    ({"tensorflow", "paddle"}, message("doctor.trap.tensorflow_paddle")),
    ({"mindspore", "paddle"}, message("doctor.trap.mindspore_paddle")),
    ({"mindspore"}, message("doctor.trap.mindspore_numpy")),
)
"""What goes wrong where these frameworks are installed together."""


_KERNELS = ("NVIDIA_TF32", "ONEDNN_", "DNNL_", "MKL_CBWR")
"""The same for libraries of kernels that several frameworks use."""


def variables_of(name: str, environment: Iterable[str]) -> list[str]:
    """Those of the environment's variables that a framework or its kernels read."""
    own = next((one.variables for one in FRAMEWORKS if one.name == name), ())
    return [variable for variable in environment if variable.startswith((*own, *_KERNELS))]


def framework_of_file(name: str) -> Installable | None:
    """The framework whose models are kept in files of this name."""
    return next((one for one in FRAMEWORKS if one.files and name.lower().endswith(one.files)), None)


def installed_versions(packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of those of the packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
