"""Every example of the documentation is run, and what a page shows as output is what comes out."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import prepared
import pytest
from blocks import ROOT, RUN, Block, agrees, blocks, code, commands, pages

from reprod_log.cli import run

PAGES = [page for page in pages() if any(block.language in RUN for block in blocks(page))]
TRANSLATED = {page: original for page in PAGES if (original := prepared.original(page)) is not None}
ALONE = [page for page in PAGES if page not in TRANSLATED]


def said(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", ALONE, ids=said)
def test_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        if "not run" in block.remarks:
            continue
        if "with" in block.remarks:
            names |= getattr(prepared, block.remarks["with"])(tmp_path)
        if "file" in block.remarks:
            (tmp_path / block.remarks["file"]).write_text(block.text, encoding="utf-8")
        elif "output" in block.remarks:
            assert agrees(block.text, printed), f"{block.place} shows something else than this:\n{printed}"
        elif block.language == "python":
            printed = python(block, names)
        elif block.language == "console":
            console(block)


def python(block: Block, names: dict[str, Any]) -> str:
    """What the block prints."""
    out = io.StringIO()
    # Errors then say the page and the line.
    source = "\n" * block.line + block.text
    with contextlib.redirect_stdout(out):
        exec(compile(source, str(block.page), "exec"), names)
    return out.getvalue()


def console(block: Block) -> None:
    for command, shown in commands(block.text):
        words = shlex.split(command)
        out = reprod(words[1:]) if words[0] == "reprod" else process(words)
        assert out.code in (0, 1, 5), f"{block.place}: {command} left with {out.code}:\n{out.text}"
        assert not shown or agrees(shown, out.text), f"{block.place}: {command} prints this:\n{out.text}"


class Out:
    def __init__(self, code: int, text: str) -> None:
        self.code, self.text = code, text


def reprod(arguments: list[str]) -> Out:
    """The command in this process: starting a framework for each would take minutes."""
    out = io.StringIO()
    before = sys.argv[:]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = run(arguments)
    finally:
        sys.argv = before
    return Out(code, out.getvalue())


def process(words: list[str]) -> Out:
    # The reader's pytest finds the plugin by itself; here it is named, so that no other plugin is loaded.
    pytest_alone = [sys.executable, "-m", "pytest", "-p", "reprod_log.testing.plugin"]
    known = {"python": [sys.executable], "pytest": pytest_alone}
    assert words[0] in known, f"a console block may run reprod, python and pytest, not {words[0]}"
    done = subprocess.run(
        [*known[words[0]], *words[1:]],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
    return Out(done.returncode, done.stdout + done.stderr)


@pytest.mark.parametrize("page", TRANSLATED, ids=said)
def test_translated_page_has_the_examples_of_the_original(page: Path) -> None:
    ours = [code(block.text) for block in blocks(page) if block.language in RUN]
    theirs = [code(block.text) for block in blocks(TRANSLATED[page]) if block.language in RUN]
    missing = [text for text in ours if text not in theirs]
    assert not missing, f"not in {said(TRANSLATED[page])}, so never run:\n{missing}"


def test_few_blocks_are_not_run() -> None:
    # A translation has the examples of its original, as the test above checks.
    there = [block for page in PAGES if page not in TRANSLATED for block in blocks(page) if block.language in RUN]
    skipped = [block for block in there if "not run" in block.remarks]
    assert all(block.remarks["not run"] for block in skipped), "a block that is not run says why"
    assert len(skipped) <= len(there) // 4, [block.place for block in skipped]


def test_difference_in_the_output_is_seen() -> None:
    assert agrees("loss 1.5e-07  PASS\n…\nend", "loss 2.5e-03   PASS\na\nb\nend\n")
    assert not agrees("loss 1.5e-07  PASS", "loss 1.5e-07  FAIL")
    assert not agrees("3 of 4", "4 of 4")
