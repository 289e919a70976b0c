"""Which library of JAX a model belongs to; a library is looked at only when the process has loaded it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from reprod_log.errors import UsageError
from reprod_log.frameworks.jax.model import Model

_LIBRARIES = {
    "nnx": ("flax.nnx", "NnxModel"),
    "linen": ("flax.linen", "LinenModel"),
    "equinox": ("equinox", "EquinoxModel"),
    "haiku": ("haiku", "HaikuModel"),
}
"""Our file, the module that its users import, and the class that takes their models in."""


def model_of(given: Any) -> Model | None:
    """The model as the core knows it; None when no library owns it."""
    if isinstance(given, Model):
        return given
    for name, (needed, wrapper) in _LIBRARIES.items():
        if needed in sys.modules:
            library = import_module(f"{__package__}.{name}")
            if library.owns(given):
                made: Model = getattr(library, wrapper)(given)
                return made
    return None


def owned(given: Any) -> Model:
    """The model; UsageError when there is none, or several by name."""
    found = model_of(given)
    if found is None:
        raise UsageError(
            "several models of JAX by name cannot be run together; compare them one by one"
            if isinstance(given, dict)
            else f"a {type(given).__name__} is not a model of Flax, Equinox or Haiku"
        )
    return found
