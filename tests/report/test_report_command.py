"""reprod report and reprod serve: arguments, what they write and print, the codes they leave with."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from made_alignments import classic, fixed

from reprod_log import Recording, align
from reprod_log.cli import run


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    return classic().save(tmp_path / "saved.json")


def test_every_format_is_written_in_one_go(saved: Path) -> None:
    outputs = [saved.parent / "out" / f"report{suffix}" for suffix in (".html", ".md", ".xml", ".txt", ".json")]
    assert run(["report", str(saved), *map(str, outputs)]) == 1
    assert all(path.stat().st_size > 500 for path in outputs)
    assert outputs[-1].read_bytes() == saved.read_bytes()


def test_without_outputs_it_is_shown(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(saved)]) == 1
    assert capsys.readouterr().out.startswith("NOT ALIGNED: 1 fail, 2 unmatched")


def test_tree_is_shown(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["report", str(saved), "--tree"])
    assert "✗ FAIL loss_7" in capsys.readouterr().out


def test_language_and_full_form_are_taken(tmp_path: Path) -> None:
    saved = fixed().save(tmp_path / "saved.json")
    assert run(["report", str(saved), str(tmp_path / "a.md"), "--language", "zh", "--all"]) == 1
    text = (tmp_path / "a.md").read_text(encoding="utf-8")
    assert "未对齐" in text
    assert "第 3 步 · parameter · fc.weight" in text


@pytest.mark.parametrize(
    ("candidate", "code"), [({"x": np.ones(2)}, 0), ({"x": np.zeros(2)}, 1), ({"other": np.ones(2)}, 5)]
)
def test_code_is_that_of_the_verdict(tmp_path: Path, candidate: dict[str, np.ndarray], code: int) -> None:
    found = align(Recording.from_arrays({"x": np.ones(2)}), Recording.from_arrays(candidate))
    assert run(["report", str(found.save(tmp_path / "a.json")), str(tmp_path / "a.md")]) == code


@pytest.mark.parametrize(
    "arguments",
    [["missing.json"], ["saved.json", "a.pdf"], ["saved.json", "a.html", "--language", "xx"], ["other.json"]],
)
def test_wrong_use_leaves_with_2_and_writes_nothing(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(saved.parent)
    (saved.parent / "other.json").write_text("{}")
    assert run(["report", *arguments]) == 2
    assert capsys.readouterr().err.strip()
    assert not (saved.parent / "a.html").exists()


def test_github_gets_summary_and_annotations(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(saved.parent / "summary.md"))
    run(["report", str(saved), str(saved.parent / "a.txt")])
    assert "::error title=FAIL loss_7::" in capsys.readouterr().out
    assert "NOT ALIGNED" in (saved.parent / "summary.md").read_text(encoding="utf-8")


def test_serve_prints_its_address_answers_and_stops_when_asked(saved: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "reprod_log", "serve", str(saved.parent), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # Whoever runs the tests in the background may have Ctrl-C ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        bare, _, token = address.partition("?token=")
        assert len(token) >= 32
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(bare, timeout=30)
        with_cookies = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with with_cookies.open(address, timeout=30) as answer:
            assert "saved.json" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_serve_of_a_missing_folder_leaves_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", str(tmp_path / "missing")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_compare_tells_github_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    paths = [
        str(Recording.from_arrays({"x": np.full(2, value)}).save(tmp_path / f"{value}.npz")) for value in (1.0, 2.0)
    ]
    assert run(["compare", *paths]) == 1
    assert "::error title=FAIL x::" in capsys.readouterr().out
