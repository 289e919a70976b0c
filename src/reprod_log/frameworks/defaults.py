"""The earlier name of what is now the contract itself: Programs has these defaults."""

from reprod_log.frameworks.contract import Programs as DefaultPrograms

__all__ = ["DefaultPrograms"]
