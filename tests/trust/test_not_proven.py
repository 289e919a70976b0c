"""NOT PROVEN: what could not have failed has its own word, exit code and colour in every report, until allowed."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from reprod_log import Alignment, align
from reprod_log.cli import ALIGNED, NOT_ALIGNED, NOT_PROVEN, run
from reprod_log.errors import NotAligned
from reprod_log.recording import Recording
from reprod_log.testing import assert_aligned

LOSSES = {f"loss_{i}": np.float32(2.3 - 0.1 * i) for i in range(6)}


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str]:
    """Two logs with losses that are equal to the last bit: one side compared with itself."""
    paths = tmp_path / "train_torch.npz", tmp_path / "train_paddle.npz"
    for path in paths:
        Recording.from_arrays(LOSSES).save(path)
    return str(paths[0]), str(paths[1])


def test_compare_exits_with_4_and_with_0_when_it_is_allowed(
    logs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *logs]) == NOT_PROVEN == 4
    shown = capsys.readouterr().out
    assert shown.startswith("NOT PROVEN: all 6 entries pass, but this proves nothing")
    assert "doubt: loss_* is bit-identical on both sides at all 6 steps" in shown
    assert "--allow-unproven" in shown
    assert run(["compare", *logs, "--allow-unproven"]) == ALIGNED
    shown = capsys.readouterr().out
    assert shown.startswith("ALIGNED: all 6 entries pass")
    assert "doubt: loss_* is bit-identical on both sides at all 6 steps" in shown
    assert "how sure: weak" in shown


def test_headline_counts_what_was_accepted_apart(logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    other = {**LOSSES, "score": np.float32(1)}
    for path, score in zip(logs, (1.0, 2.0), strict=True):
        Recording.from_arrays({**other, "score": np.float32(score)}).save(path)
    assert run(["compare", *logs, "--accept", "score"]) == NOT_PROVEN
    assert capsys.readouterr().out.startswith("NOT PROVEN: 6 of 7 entries pass and 1 was accepted, but this proves")


def test_chinese_says_it_too(logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *logs, "--language", "zh"]) == NOT_PROVEN
    shown = capsys.readouterr().out
    assert shown.startswith("未证明：全部 6 项通过，但这说明不了什么")
    assert "疑点：" in shown or "疑点:" in shown


def test_every_report_has_it(logs: tuple[str, str], tmp_path: Path) -> None:
    names = ["r.html", "r.md", "r.xml", "r.txt"]
    reports = [part for name in names for part in ("--report", str(tmp_path / name))]
    assert run(["compare", *logs, *reports, "--json", str(tmp_path / "r.json")]) == NOT_PROVEN
    assert '<header class="UNPROVEN">' in (tmp_path / "r.html").read_text()
    assert "header.UNPROVEN { border-left-color: var(--warn)" in (tmp_path / "r.html").read_text()
    assert "! NOT PROVEN" in (tmp_path / "r.md").read_text()
    assert "NOT PROVEN" in (tmp_path / "r.txt").read_text()
    failure = next(ElementTree.parse(tmp_path / "r.xml").iter("failure"))
    assert failure.get("type") == "UNPROVEN"
    assert "bit-identical" in (failure.text or "")
    written = json.loads((tmp_path / "r.json").read_text())
    assert (written["status"], written["passed"]) == ("UNPROVEN", False)
    assert Alignment.load(tmp_path / "r.json").status == "UNPROVEN"
    assert run(["judge", str(tmp_path / "r.json")]) == NOT_PROVEN
    assert run(["judge", str(tmp_path / "r.json"), "--allow-unproven"]) == ALIGNED
    assert run(["report", str(tmp_path / "r.json"), str(tmp_path / "again.md")]) == NOT_PROVEN


def test_junit_of_an_allowed_one_is_green_and_still_has_the_reason(logs: tuple[str, str], tmp_path: Path) -> None:
    assert run(["compare", *logs, "--allow-unproven", "--report", str(tmp_path / "r.xml")]) == ALIGNED
    tree = ElementTree.parse(tmp_path / "r.xml")
    assert next(tree.iter("failure"), None) is None
    assert "bit-identical" in ElementTree.tostring(tree.getroot(), encoding="unicode")


def test_github_gets_warnings(
    logs: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert run(["compare", *logs]) == NOT_PROVEN
    shown = capsys.readouterr().out
    assert "::warning title=reprod_log::NOT PROVEN" in shown
    assert "::warning title=not proven::loss_* is bit-identical" in shown
    assert "::error" not in shown
    assert "NOT PROVEN" in (tmp_path / "summary.md").read_text()


def test_check_has_it_for_a_step_and_for_the_whole(
    logs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(tmp_path)]) == NOT_PROVEN
    shown = capsys.readouterr().out
    assert shown.startswith("NOT PROVEN: 0 of 1 step passes")
    assert "UNPROVEN" in shown
    assert "bit-identical" in shown
    page = tmp_path / "all.html"
    assert run(["check", str(tmp_path), "--allow-unproven", "--report", str(page)]) == ALIGNED
    assert "1 of them allowed to pass without proving anything" in page.read_text()
    Recording.from_arrays({"x": np.zeros(3)}).save(tmp_path / "forward_torch.npz")
    Recording.from_arrays({"x": np.ones(3)}).save(tmp_path / "forward_paddle.npz")
    assert run(["check", str(tmp_path), "--allow-unproven"]) == NOT_ALIGNED


PLAN = """
from reprod_log.steps.plan import Plan, Step
rates = lambda: [0.1] * 9
plan = Plan((Step("lr", rates, rates, {"steps": 9}),), apart=False)
"""


def test_plan_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.py").write_text(PLAN)
    out = ["-o", str(tmp_path / "out")]
    assert run(["align", str(tmp_path / "plan.py"), *out, "--report", str(tmp_path / "r.html")]) == NOT_PROVEN
    assert capsys.readouterr().out.startswith("NOT PROVEN: 0 of 1 step of")
    assert '<header class="UNPROVEN">' in (tmp_path / "r.html").read_text()
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["status"] == "UNPROVEN"
    assert run(["align", str(tmp_path / "plan.py"), *out, "--allow-unproven"]) == ALIGNED


def test_assert_aligned_raises_until_it_is_allowed() -> None:
    with pytest.raises(NotAligned, match="NOT PROVEN"):
        assert_aligned(LOSSES, LOSSES)
    assert assert_aligned(LOSSES, LOSSES, allow_unproven=True).doubts


def test_incomplete_comes_first() -> None:
    from dataclasses import replace

    cut = replace(Recording.from_arrays(LOSSES), complete=False)
    other = Recording.from_arrays(LOSSES)
    assert align(cut, other).status == "INCOMPLETE"
    assert align(cut, other, allow_unproven=True).status == "INCOMPLETE"
    assert align(cut, other, allow_incomplete=True).status == "UNPROVEN"
    assert align(cut, other, allow_incomplete=True, allow_unproven=True).passed
