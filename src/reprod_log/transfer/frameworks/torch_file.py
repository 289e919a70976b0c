"""torch's own checkpoint files. Read with `weights_only=True`: a file of tensors cannot run code."""

import pickle
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from reprod_log.errors import UnreadableFile, UntrustedFile
from reprod_log.transfer.frameworks.torch import read, tensor_of
from reprod_log.transfer.nesting import replaced
from reprod_log.transfer.transform import Array


def read_checkpoint(path: Path) -> Any:
    """What the file holds, with every tensor as an array."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UntrustedFile(
            f"{path} holds more than tensors and plain values, or is no torch checkpoint; reading it could run code "
            "of its author's choice. It was not run. Save model.state_dict() alone and convert that."
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError) as error:
        raise UnreadableFile(f"{path} is not a readable torch checkpoint ({str(error).splitlines()[0]}).") from error
    return replaced(content, lambda value: isinstance(value, torch.Tensor), read)


def write_checkpoint(file: BinaryIO, arrays: dict[str, Array]) -> None:
    """Writes a state dict of tensors."""
    torch.save({name: tensor_of(np.asarray(array)) for name, array in arrays.items()}, file)
