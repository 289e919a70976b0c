"""reprod doctor: what is installed, and what on this machine can make two runs differ."""

from __future__ import annotations

import os
import platform

from rich.text import Text

from reprod_log.frameworks.installed import FRAMEWORKS, SWITCHES, TRAPS, installed_versions
from reprod_log.measure.kernel import status
from reprod_log.report.terminal import terminal

NAME = "doctor"
_OWN_PACKAGES = ("reprod_log", "numpy", "ml_dtypes", "xxhash")


def run() -> int:
    """Show versions, import-order traps, and the switches that decide whether runs repeat."""
    console = terminal()
    found = {framework.name: installed_versions(framework.packages) for framework in FRAMEWORKS}
    console.print(Text(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}", style="bold"))
    for versions in (installed_versions(_OWN_PACKAGES), *found.values()):
        for name, version in versions.items():
            console.print(Text(f"  {name} {version}"))
    missing = [framework for framework in FRAMEWORKS if framework.extra and not found[framework.name]]
    if missing:
        packages = ", ".join(framework.packages[0] for framework in missing)
        extras = ", ".join(framework.extra for framework in missing)
        console.print(Text(f"  not installed: {packages} (not needed to compare files; extras: {extras})"))
    console.print(Text(f"  measuring kernel: {status()}"))
    console.print(Text("Import order", style="bold"))
    present = {name for name, versions in found.items() if versions}
    for text in [text for needed, text in TRAPS if needed <= present] or ["no known conflict"]:
        console.print(Text(f"  {text}"))
    console.print(Text("Switches that decide whether runs repeat", style="bold"))
    for name, meaning in SWITCHES:
        console.print(Text(f"  {name}={os.environ.get(name, '(not set)')}: {meaning}"))
    for framework in FRAMEWORKS:
        if framework.advice:
            console.print(Text(f"  in {framework.name}: {framework.advice}"))
    return 0
