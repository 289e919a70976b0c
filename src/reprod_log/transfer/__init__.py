"""Weights, gradients and optimizer state from one framework's layout to another's: one rule per layer type."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reprod_log.transfer.convert import convert_weights
    from reprod_log.transfer.converter import write_converter
    from reprod_log.transfer.gradients import transfer_gradients
    from reprod_log.transfer.optimizer_state import transfer_optimizer_state
    from reprod_log.transfer.report import TransferReport, TransferRow
    from reprod_log.transfer.weights import transfer_weights

__all__ = [
    "TransferReport",
    "TransferRow",
    "convert_weights",
    "transfer_gradients",
    "transfer_optimizer_state",
    "transfer_weights",
    "write_converter",
]

# Loaded when asked for: comparing recordings needs none of it.
_HOMES = {
    "TransferReport": "reprod_log.transfer.report",
    "TransferRow": "reprod_log.transfer.report",
    "convert_weights": "reprod_log.transfer.convert",
    "transfer_gradients": "reprod_log.transfer.gradients",
    "transfer_optimizer_state": "reprod_log.transfer.optimizer_state",
    "transfer_weights": "reprod_log.transfer.weights",
    "write_converter": "reprod_log.transfer.converter",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reprod_log.transfer' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
