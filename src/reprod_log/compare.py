"""The module name of 1.0.1 for comparing dicts and models."""

from reprod_log.classic.difference import check_data, compute_diff
from reprod_log.classic.models import compare_forward, compare_loss_and_backward

__all__ = ["check_data", "compare_forward", "compare_loss_and_backward", "compute_diff"]
