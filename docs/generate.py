"""Writes the parts of the documentation that follow from the program: commands, metrics, and the flow charts.

python docs/generate.py           writes them
python docs/generate.py --check   leaves with 1 if one of them is not up to date
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, get_args

HERE = Path(__file__).parent
YES = {"en": "yes", "zh": "是"}
NO = {"en": "no", "zh": "否"}

EXAMPLES = {
    "compare": "reprod compare ref cand --report report.html --report report.md",
    "check": "reprod check log_reprod --report hand_in.html",
    "judge": "reprod judge saved.json --limit rel_l2:1e-3",
    "report": "reprod report saved.json report.html report.md junit.xml",
    "show": "reprod show ref --values",
    "convert": "reprod convert forward_torch.npy forward_torch.npz",
    "doctor": "reprod doctor",
}
"""A call of each command that can be run on the files which the page begins with; tests run them."""


def generated() -> Iterator[tuple[Path, str]]:
    """Every generated file with what it should hold."""
    yield HERE / "commands.md", commands_page("en")
    yield HERE / "zh" / "commands.md", commands_page("zh")
    yield HERE / "metrics.md", metrics_page()
    for text in sorted((HERE / "images").glob("*.txt")):
        name, language = text.stem.split(".")
        yield HERE / "images" / f"{name}.{language}.svg", flow_chart(text.read_text(encoding="utf-8"), language)


_HEADS = {
    "en": """# Commands

中文：[命令](zh/commands.md)

<!-- Written by docs/generate.py from the commands themselves. -->

`reprod COMMAND --help` shows the same. Exit codes: [exit_codes.md](exit_codes.md).

| command | |
|---|---|""",
    "zh": """# 命令

English: [Commands](../commands.md)

<!-- 由 docs/generate.py 根据命令本身和 commands.json 生成。 -->

`reprod COMMAND --help` 以英文显示同样的内容。退出码：[exit_codes.md](exit_codes.md)。

| 命令 | |
|---|---|""",
}
_COLUMNS = {"en": "| parameter | meaning | default |", "zh": "| 参数 | 含义 | 默认值 |"}
_REQUIRED = {"en": "required", "zh": "必需"}


def commands_page(language: str) -> str:
    """The reference of commands, from the command itself; in Chinese by a table of its sentences."""
    from reprod_log.cli.app import command

    chinese = json.loads((HERE / "zh" / "commands.json").read_text(encoding="utf-8"))

    def said(help: str | None) -> list[str]:
        parts = [" ".join(part.split()) for part in (help or "").split("\n\n")]
        return parts if language == "en" else [chinese[part] for part in parts]

    group = command()
    names = sorted(group.commands)
    lines = [_HEADS[language]]
    lines += [f"| [`reprod {name}`](#reprod-{name}) | {said(group.commands[name].help)[0]} |" for name in names]
    # Files for the examples below (tests/docs/prepared.py); the comment is invisible on the page.
    remark = ["<!-- with: folder_of_files -->"]
    for name in names:
        found = group.commands[name]
        usage = " ".join(
            ["reprod", name, *(_argument(one) for one in found.params if not _is_option(one)), "[OPTIONS]"]
        )
        lines += ["", f"## reprod {name}", "", "\n\n".join(said(found.help)), "", "```text", usage, "```", ""]
        shown = [one for one in found.params if one.name != "help" and not getattr(one, "hidden", False)]
        if shown:
            rows = [_row(one, said(getattr(one, "help", None))[0], _REQUIRED[language]) for one in shown]
            lines += [_COLUMNS[language], "|---|---|---|", *rows, ""]
        if name in EXAMPLES and language == "en":
            lines += [*remark, "```console", f"$ {EXAMPLES[name]}", "```"]
            remark = []
    return "\n".join(lines).rstrip() + "\n"


def _is_option(parameter: Any) -> bool:
    return str(parameter.param_type_name) == "option"


def _argument(parameter: Any) -> str:
    name = _metavar(parameter) if parameter.required else f"[{_metavar(parameter)}]"
    return name if parameter.nargs == 1 else f"{name}..."


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _row(parameter: Any, text: str, required: str) -> str:
    if not _is_option(parameter):
        return f"| {_cell(f'`{_value(parameter)}`')} | {_cell(text)} | {required if parameter.required else ''} |"
    value = "" if parameter.is_flag else f" {_value(parameter)}"
    default = parameter.default
    if parameter.secondary_opts:
        default = (parameter.opts if default else parameter.secondary_opts)[0]
    shown = "" if default in (None, False, "", (), []) or callable(default) else f"`{default}`"
    name = _cell(f"`{', '.join((*parameter.opts, *parameter.secondary_opts))}{value}`")
    return f"| {name} | {_cell(text)} | {required if parameter.required else shown} |"


def _value(parameter: Any) -> str:
    """What may be written for it: its choices if there are some."""
    choices = [one for one in get_args(parameter.type_descriptor.annotation) if isinstance(one, str)]
    return "|".join(choices) if choices else _metavar(parameter)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def metrics_page() -> str:
    """The reference of metrics, from their own descriptions."""
    from reprod_log.measure.metrics import metric, names

    lines = [
        "# Metrics",
        "",
        "中文：[指标](zh/metrics.md)",
        "",
        "<!-- Written by docs/generate.py from the metrics themselves. -->",
        "",
        "A fixed limit is a metric and a number: `--limit rel_l2:1e-5`, or for some keys only",
        "`--limit 'loss_*=max_abs:1e-6'`. A value passes up to and including its limit; NaN never passes. Differences",
        "are computed in float64, integers exactly.",
        "",
        "| metric | what it is |",
        "|---|---|",
        *(f"| [`{name}`](#{name}) | {_cell(metric(name).summary)} |" for name in names()),
    ]
    for name in names():
        lines += ["", f"## {name}", "", *metric(name).description.splitlines()]
    lines += [
        "",
        "Another package adds its own with an entry point of the group `reprod_log.metrics`: a module with a docstring",
        "and a function `value(measurement)`.",
    ]
    return "\n".join(lines) + "\n"


_LEFT, _RIGHT, _GAP, _MARGIN = 300, 430, 80, 16
_PAD, _LINE, _BETWEEN = 10, 20, 26


def flow_chart(text: str, language: str) -> str:
    """Questions from top to bottom, each with what to do to its right; light and dark as the reader has it."""
    steps = [tuple(line.split(" => ")) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    parts: list[str] = []
    top, x2 = _MARGIN, _MARGIN + _LEFT + _GAP
    for place, (question, action) in enumerate(steps):
        last = question == "end"
        ours, theirs = _wrapped(question, 32, language), _wrapped(action, 100 if last else 50, language)
        if last:
            height = _PAD * 2 + _LINE * len(theirs)
            parts += _box("end", _MARGIN, top, _LEFT + _GAP + _RIGHT, height, theirs)
            top += height
            continue
        height = _PAD * 2 + _LINE * max(len(ours), len(theirs))
        middle = top + height / 2
        parts += _box("ask", _MARGIN, top, _LEFT, height, [f"{place + 1}  {ours[0]}", *ours[1:]])
        parts += _box("do", x2, top, _RIGHT, height, theirs)
        parts += [
            f'<path d="M{_MARGIN + _LEFT} {middle}H{x2 - 3}" class="line" marker-end="url(#tip)"/>',
            f'<text x="{_MARGIN + _LEFT + _GAP / 2}" y="{middle - 7}" class="word">{YES[language]}</text>',
            f'<path d="M{_MARGIN + _LEFT / 2} {top + height}v{_BETWEEN - 3}" class="line" marker-end="url(#tip)"/>',
            f'<text x="{_MARGIN + _LEFT / 2 + 18}" y="{top + height + 17}" class="word">{NO[language]}</text>',
        ]
        top += height + _BETWEEN
    width, height = x2 + _RIGHT + _MARGIN, top + _MARGIN
    style = (HERE / "images" / "flow_chart.css").read_text(encoding="utf-8")
    return _SVG.format(width=width, height=height, style=style, body="\n".join(parts))


def _wrapped(text: str, letters: int, language: str) -> list[str]:
    if language != "zh":
        return textwrap.wrap(text, letters)
    lines, line, used = [], "", 0
    # Chinese may break between any two signs, but not inside a word in Latin letters, nor before a closing sign.
    for part in re.findall(r"[!-~]+|.", text):
        width = len(part) if part.isascii() else 2
        if used + width > letters and part not in "，。：；？、）":
            lines, line, used = [*lines, line], "", 0
        line, used = line + part, used + width
    return [*lines, line]


def _box(kind: str, x: float, y: float, width: float, height: float, lines: list[str]) -> Iterator[str]:
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{14 if kind == "ask" else 4}" class="{kind}"/>'
    first = y + (height - _LINE * len(lines)) / 2 + 15
    for place, line in enumerate(lines):
        yield f'<text x="{x + 12}" y="{first + place * _LINE}">{escape(line)}</text>'


_SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>
{style}</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0L8 4L0 8z" class="tip"/></marker></defs>
<rect width="{width}" height="{height}" class="back"/>
{body}
</svg>
"""


def main() -> int:
    stale = [path for path, content in generated() if not path.exists() or path.read_text(encoding="utf-8") != content]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.name} is not up to date; run python docs/generate.py")
        return int(bool(stale))
    for path, content in generated():
        path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
