"""reprod doctor: what is installed, and what on this machine can make two runs differ."""

from __future__ import annotations

import os
import platform

from rich.text import Text

from reprod_log.cli.ending import give, tell_next
from reprod_log.cli.options import AsJson, Language
from reprod_log.frameworks.installed import FRAMEWORKS, SWITCHES, TRAPS, installed_versions
from reprod_log.measure.kernel import status
from reprod_log.messages import Code, Foreign, Message, message, words
from reprod_log.report.terminal import print_indented, terminal

NAME = "doctor"
_OWN_PACKAGES = ("reprod_log", "numpy", "ml_dtypes", "xxhash")


def run(language: Language = "en", json: AsJson = None) -> int:
    """Show versions, import-order conflicts, and the settings that make runs reproducible."""
    render, console = words(language), terminal()

    def show(*lines: Message, title: Message) -> None:
        console.print(Text(render(title), style="bold"))
        for line in lines:
            print_indented(render(line), 2, console, hanging=2)

    found = {framework.name: installed_versions(framework.packages) for framework in FRAMEWORKS}
    system = Foreign(f"{platform.system()} {platform.machine()}")
    show(*_packages(found), title=message("doctor.python", version=platform.python_version(), system=system))
    present = {name for name, versions in found.items() if versions}
    traps = [trap for needed, trap in TRAPS if needed <= present]
    show(*traps or [message("doctor.no_conflict")], title=message("doctor.imports"))
    show(*_switches(), title=message("doctor.switches"))
    give(lambda: {"packages": installed_versions(_OWN_PACKAGES), "frameworks": found, "switches": _set_switches()})
    tell_next("reprod", "run", "--float64", "-o", "ref", "SCRIPT")
    return 0


def _set_switches() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name, _ in SWITCHES}


def _packages(found: dict[str, dict[str, str]]) -> list[Message]:
    lines = [
        message("text", text=Foreign(f"{name} {version}"))
        for versions in (installed_versions(_OWN_PACKAGES), *found.values())
        for name, version in versions.items()
    ]
    missing = [framework for framework in FRAMEWORKS if framework.extra and not found[framework.name]]
    if missing:
        extras = tuple(dict.fromkeys(one.extra for one in missing))
        lines.append(message("doctor.missing", packages=tuple(one.packages[0] for one in missing), extras=extras))
    return [*lines, message("doctor.kernel", status=status())]


def _switches() -> list[Message]:
    lines = []
    for name, meaning in SWITCHES:
        value = Code(os.environ[name]) if name in os.environ else message("doctor.not_set")
        lines.append(message("doctor.switch", name=Code(name), value=value, meaning=meaning))
    return lines + [
        message("doctor.advice", framework=one.name, advice=Code(one.advice)) for one in FRAMEWORKS if one.advice
    ]
