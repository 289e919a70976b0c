"""The address under which hooks stand in models that were pickled while they were watched; it must not move."""

from reprod_log.frameworks.hooks import Hook

__all__ = ["Hook"]
