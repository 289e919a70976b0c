"""Weights, gradients and optimizer state from one framework's layout to another's: one rule per layer type."""

from reprod_log.transfer.files.convert import convert_weights
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
]
