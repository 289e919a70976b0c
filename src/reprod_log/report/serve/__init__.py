"""serve: a local page over a folder of saved alignments and recordings, also of those that still grow."""

from reprod_log.report.serve.server import Server, serving

__all__ = ["Server", "serving"]
