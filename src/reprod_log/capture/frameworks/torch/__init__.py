"""PyTorch: everything that capture needs to know of it."""

from reprod_log.capture.frameworks.torch.tensors import is_tensor, view

__all__ = ["is_tensor", "view"]
