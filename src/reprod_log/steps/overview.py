"""Overview: the table of a plan's steps as rows of text, and the report of a whole plan."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from reprod_log.errors import UsageError
from reprod_log.judge import Status
from reprod_log.record.atomic import replacing
from reprod_log.report import render_report, write_report
from reprod_log.report.first_screen import headline
from reprod_log.report.plain import plain
from reprod_log.steps.result import StepResult
from reprod_log.steps.run_plan import PlanResult

_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.4rem .7rem;"
    "border-bottom:1px solid #8884}.PASS{color:#17803d}.FAIL,.NOTHING{color:#b3261e;font-weight:600}"
    "code{overflow-wrap:anywhere}@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}"
    ".PASS{color:#5cc98a}.FAIL,.NOTHING{color:#ff8a80}a{color:#8ab4f8}}"
)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    word: str
    """The status, or SKIPPED, or ERROR when the step could not be done."""
    first: str
    """Key of the first divergence, '' when there is none."""
    finding: str
    """The surest cause or note, else why it did not pass, else how much passed."""
    doubtful: bool = False
    """It passes, and a rule says that this proves nothing."""

    @property
    def status(self) -> Status:
        """The status whose colour the line has."""
        if self.doubtful:
            return Status.SUSPECT
        return Status(self.word) if self.word in Status.__members__ else Status.NOTHING


def rows(result: PlanResult) -> tuple[Row, ...]:
    """The table of a plan."""
    return tuple(_row(step) for step in result.steps)


def _row(step: StepResult) -> Row:
    if step.skipped:
        return Row(step.name, "SKIPPED", "", "an earlier step did not pass")
    if step.alignment is None:
        return Row(step.name, "ERROR", "", step.problem)
    divergence = step.alignment.first_divergence
    findings = [one for one in step.alignment.findings if one.kind != "remark"] or list(step.alignment.findings)
    said = findings[0].cause if findings else ""
    if not said:
        said = divergence.reason if divergence else headline(step.alignment).partition(": ")[2]
    key = divergence.key if divergence else ""
    return Row(step.name, step.alignment.status.value, key, said, step.passed and is_doubtful(step))


def summary(result: PlanResult) -> str:
    """The answer in one line."""
    done = sum(step.passed for step in result.steps)
    word = "ALIGNED" if result.passed else "NOT ALIGNED"
    doubtful = sum(step.passed and is_doubtful(step) for step in result.steps)
    doubts = f", {doubtful} of them without proving anything" if doubtful else ""
    return f"{word}: {done} of {len(result.steps)} steps of {result.title} pass{doubts}"


def is_doubtful(step: StepResult) -> bool:
    """Whether a rule found that the step's pass proves nothing."""
    return step.alignment is not None and any(one.kind == "suspicious pass" for one in step.alignment.findings)


def write_plan_report(result: PlanResult, path: Path) -> Path:
    """One report of all steps: .md holds them all, .html is a table whose lines lead to a page per step beside it."""
    if path.suffix.lower() in (".html", ".htm"):
        text = _html(result, path)
    elif path.suffix.lower() == ".md":
        text = _markdown(result)
    else:
        raise UsageError(
            f"the report of a plan is .html or .md, not {path.name!r}; "
            f"for other formats use reprod report on {result.folder}/STEP/alignment.json"
        )
    with replacing(path) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    return path


def _html(result: PlanResult, path: Path) -> str:
    pages = path.with_name(f"{path.stem}_steps")
    lines = []
    for row, step in zip(rows(result), result.steps, strict=True):
        name = escape(plain(row.name))
        if step.alignment is not None:
            page = write_report(step.alignment, pages / f"{step.name}.html")
            name = f'<a href="{escape(pages.name)}/{escape(page.name)}">{name}</a>'
        cells = (name, f'<span class="{row.word}">{row.word}</span>', _code(row.first), escape(plain(row.finding)))
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{title}</th>" for title in ("step", "status", "first divergence", "finding"))
    said = escape(plain(summary(result)))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{said}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{said}</h1><table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></body></html>\n"
    )


def _code(text: str) -> str:
    return f"<code>{escape(plain(text))}</code>" if text else ""


def _markdown(result: PlanResult) -> str:
    lines = [f"# {plain(summary(result))}", "", "| step | status | first divergence | finding |", "|---|---|---|---|"]
    for row in rows(result):
        cells = (row.name, row.word, f"`{row.first}`" if row.first else "", row.finding)
        lines.append("| " + " | ".join(plain(cell).replace("|", "\\|") for cell in cells) + " |")
    for step in result.steps:
        if step.alignment is not None:
            lines += ["", f"## {plain(step.name)}", "", render_report(step.alignment, format="markdown").strip()]
    return "\n".join(lines) + "\n"
