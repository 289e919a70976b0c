"""Runs one target under atheris until its runs or seconds are over (started by run.py, once per target)."""

from __future__ import annotations

import resource
import sys

import atheris

# Beyond this an allocation fails, and the failure is the finding.
MOST_MEMORY = 4 << 30

with atheris.instrument_imports(include=["reprod_log"]):
    from fuzz.targets import TARGETS


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
    atheris.Fuzz()
