"""The pages that follow from the program are up to date, and those written by hand name everything there is."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from blocks import ROOT, blocks, pages

from reprod_log import cli, errors
from reprod_log.cli.app import command
from reprod_log.measure.metrics import names
from reprod_log.recording.key import PHASES
from reprod_log.report import all_formats
from reprod_log.steps import SUBJECTS
from reprod_log.verdict import Status

DOCS = ROOT / "docs"
GENERATED = dict(runpy.run_path(str(DOCS / "generate.py"))["generated"]())


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED[path], "run python docs/generate.py"


@pytest.mark.parametrize("page", ["messages.md", "zh/messages.md"])
def test_every_exception_is_explained(page: str) -> None:
    known = {
        name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, errors.ReprodLogError)
    }
    rows = dict(re.findall(r"^\| `(\w+)` \| ?([^|]*?) ?\|", text(page), re.MULTILINE))
    assert set(rows) == known
    for name, also in rows.items():
        builtin = [base.__name__ for base in getattr(errors, name).__bases__ if base.__module__ == "builtins"]
        assert re.findall(r"`(\w+)`", also) == ([] if name == "ReprodLogError" else builtin)


def test_every_exit_code_is_explained() -> None:
    rows = set(re.findall(r"^\| (\d) \|", text("exit_codes.md"), re.MULTILINE))
    codes = [value for name, value in vars(cli).items() if name.isupper() and value < 10]
    assert len(codes) == 7
    assert rows == {str(code) for code in codes}


def test_every_command_says_how_it_leaves() -> None:
    missing = [name for name in command().commands if f"`{name}`" not in text("exit_codes.md")]
    assert not missing


@pytest.mark.parametrize("page", ["metrics.md", "zh/metrics.md"])
def test_every_metric_has_its_section(page: str) -> None:
    assert re.findall(r"^## (\w+)$", text(page), re.MULTILINE) == list(names())


def test_every_format_is_listed() -> None:
    table = text("formats.md").partition("## ")[0]
    suffixes = set(re.findall(r"`(\.\w+)`", table))
    assert {suffix for module in all_formats().values() for suffix in module.SUFFIXES} <= suffixes


@pytest.mark.parametrize("page", ["glossary.md", "zh/verdict.md"])
def test_every_status_is_explained(page: str) -> None:
    assert all(re.search(rf"\b{status.value}\b", text(page)) for status in Status)


@pytest.mark.parametrize("page", ["glossary.md", "zh/glossary.md"])
def test_every_phase_is_named(page: str) -> None:
    missing = [phase for phase in PHASES if phase not in text(page)]
    assert missing in ([], ["metric"])


def test_every_subject_has_its_line() -> None:
    found = re.findall(r"^\| `(\w+)` \|", text("steps.md"), re.MULTILINE)
    assert set(found) == {subject.name for subject in SUBJECTS}


@pytest.mark.parametrize("language", ["", "zh/"])
def test_notes_of_the_flow_chart_are_numbered_like_it(language: str) -> None:
    chart = text(f"images/my_numbers_differ.{language.strip('/') or 'en'}.txt")
    questions = [line for line in chart.splitlines() if " => " in line and not line.startswith(("#", "end"))]
    notes = re.findall(r"^(\d+)\. ", text(f"{language}my_numbers_differ.md"), re.MULTILINE)
    assert notes == [str(place + 1) for place in range(len(questions))]


def test_every_page_of_the_repository_root_links_what_there_is() -> None:
    for page in (ROOT / "README.md", ROOT / "README.zh-CN.md"):
        links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
        assert not missing, page.name


def test_every_command_shown_in_a_settings_file_exists_with_its_options() -> None:
    known = command().commands
    shown = [
        line
        for page in pages()
        for block in blocks(page)
        if block.language in ("yaml", "json", "sh")
        for line in re.findall(r"reprod [a-z][^;\"#\n]*", block.text)
    ]
    assert len(shown) > 5
    for line in shown:
        name, *rest = line.split()[1:]
        options = {option for one in known[name].params for option in (*one.opts, *one.secondary_opts)}
        assert {one for one in rest if one.startswith("-")} <= options, line
