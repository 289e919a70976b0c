"""The report of several steps: page, Markdown, GitHub; and the options that all commands share."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from made_alignments import HOSTILE, classic, fixed, hostile

from reprod_log import Recording, align
from reprod_log.cli import run
from reprod_log.diagnose import Finding
from reprod_log.messages import Message, Name, message, words
from reprod_log.report.formats.markdown import LIMIT
from reprod_log.report.overview import markdown, overview_answer, rows_of, summary_of, write_overview
from reprod_log.steps.overview import Overview, StepResult
from reprod_log.verdict import Status


def step(name: str, **known: object) -> StepResult:
    return StepResult(name, None, None, None, **known)  # type: ignore[arg-type]


def overview(*steps: StepResult) -> Overview:
    return Overview("plan", "a plan", Path("out"), steps)


def odd() -> StepResult:
    idle = Finding("made", message("cause.constant_sequence", name=Name("lr")), kind="doubt")
    return step("lr", alignment=replace(fixed(wrong=False), findings=(idle,)))


ALL = (
    step("forward", alignment=fixed(wrong=False)),
    odd(),
    step("loss", alignment=classic()),
    step("backward", problem="its process ended with code 9"),
    step("training", skipped=True),
)


def test_every_step_has_its_line_and_colour() -> None:
    found = overview(*ALL)
    rows = rows_of(found)
    assert [row.word for row in rows] == ["PASS", "UNPROVEN", "FAIL", "ERROR", "SKIPPED"]
    assert [row.status.value for row in rows] == ["PASS", "UNPROVEN", "FAIL", "NOTHING", "NOTHING"]
    assert words()(summary_of(found)) == "NOT ALIGNED: 1 of 5 steps of a plan pass"
    assert words("zh")(summary_of(found)) == "未对齐：a plan 的 5 个步骤中有 1 个通过"
    assert words("zh")(rows[1].answer) == "学习率 lr 从未变化"


def test_line_of_a_failure_is_its_cause_and_not_a_doubt() -> None:
    doubt, cause = (Finding("made", Message.from_dict(kind), kind=kind) for kind in ("doubt", "cause"))
    (row,) = rows_of(overview(step("forward", alignment=replace(fixed(), findings=(doubt, cause)))))
    assert words()(row.answer) == "cause"
    (row,) = rows_of(overview(step("forward", alignment=replace(fixed(), findings=(doubt,)))))
    assert words()(row.answer) != "doubt"


def test_steps_that_prove_nothing_are_amber_until_they_are_allowed() -> None:
    found = overview(ALL[0], odd(), step("training", skipped=True))
    assert found.status is Status.UNPROVEN
    told = words()(summary_of(found))
    assert told == "NOT PROVEN: 1 of 3 steps of a plan pass, the others prove nothing"
    assert markdown(found).startswith(f"# ! {told}")
    assert overview(*ALL).status is Status.FAIL
    allowed = overview(ALL[0], odd().allowing_unproven())
    assert allowed.status is Status.PASS
    assert rows_of(allowed)[1].status is Status.UNPROVEN
    told = words()(summary_of(allowed))
    assert told == "ALIGNED: 2 of 2 steps of a plan pass, 1 of them allowed to pass without proving anything"


def test_nothing_done_does_not_pass() -> None:
    assert not overview().passed


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_leads_to_each_step(tmp_path: Path) -> None:
    path = write_overview(overview(*ALL), tmp_path / "all.html")
    page = Page(path.read_text(encoding="utf-8"))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == ["all_steps/forward.html", "all_steps/lr.html", "all_steps/loss.html"]
    assert all((tmp_path / str(link)).stat().st_size > 10_000 for link in links)


def test_hostile_names_stay_text_on_the_page(tmp_path: Path) -> None:
    steps = [step(name, alignment=hostile() if place == 0 else classic()) for place, name in enumerate(HOSTILE)]
    content = write_overview(overview(*steps, step("x", problem=HOSTILE[0])), tmp_path / "all.html").read_text("utf-8")
    tags = {tag for tag, _ in Page(content).tags}
    assert not tags & {"b", "img", "iframe", "object"}
    assert content.count("<script") == 2
    assert len(list((tmp_path / "all_steps").glob("*.html"))) == len(HOSTILE)


def test_markdown_fits_a_comment_and_says_what_it_left_out() -> None:
    text = markdown(overview(*(step(f"s{place}", alignment=fixed()) for place in range(40))), full=True)
    assert len(text) <= LIMIT
    assert re.search(r"the reports of \d+ steps are omitted here", text)
    assert markdown(overview(*ALL)).startswith("# ✗ NOT ALIGNED: 1 of 5 steps of a plan pass")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name, loss in (("ref", 1.0), ("same", 1.0), ("off", 1.5)):
        arrays = {"step0/forward/fc#0:output": np.arange(9.0, dtype=np.float32), "step0/loss/loss": np.array(loss)}
        Recording.from_arrays(arrays).save(tmp_path / f"{name}.npz")
    Recording.from_arrays({"logits": np.ones(4)}).save(tmp_path / "log" / "forward_torch.npy")
    Recording.from_arrays({"logits": np.ones(4) * 2}).save(tmp_path / "log" / "forward_paddle.npy")
    return tmp_path


@pytest.mark.parametrize("command", ["compare", "judge", "report", "check"])
def test_commands_tell_github(
    command: str, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(logs)
    align("ref.npz", "off.npz").save("saved.json")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(logs / "summary.md"))
    arguments = {"compare": ["ref.npz", "off.npz"], "check": ["log"]}.get(command, ["saved.json"])
    assert run([command, *arguments]) == 1
    assert "::error title=reprod_log::NOT ALIGNED" in capsys.readouterr().out
    assert "✗ NOT ALIGNED" in (logs / "summary.md").read_text(encoding="utf-8")


def test_compare_has_language_tree_and_full(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = [str(logs / "ref.npz"), str(logs / "off.npz")]
    assert run(["compare", *pair, "--language", "zh", "--tree"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("未对齐：1 项 FAIL")
    assert "✗ FAIL (loss)" in out
    assert run(["compare", *pair, "--all", "--report", str(logs / "all.md")]) == 1
    assert "step 0 · forward · fc · output" in (logs / "all.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", [["--language", "xx"], ["--report", "x.pdf"]])
def test_bad_report_options_are_refused_before_the_work(
    option: list[str], logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", str(logs / "ref.npz"), str(logs / "missing.npz"), *option]) == 2
    err = capsys.readouterr().err
    assert "known are" in err or "is not one of 'en', 'zh'" in err


def test_check_writes_a_report(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(logs / "log"), "--report", str(logs / "all.html")]) == 1
    assert "0 of 1 step passes" in capsys.readouterr().out
    assert (logs / "all_steps" / "forward.html").exists()


def test_log_without_its_partner_is_unmatched_on_the_screen_and_in_the_report(logs: Path, capsys) -> None:
    Recording.from_arrays({"acc": np.ones(1)}).save(logs / "log" / "metric_paddle.npy")
    assert run(["check", str(logs / "log"), "--report", str(logs / "all.md")]) == 1
    said = capsys.readouterr().out
    assert "UNMATCHED  metric" in said
    assert f"written: {logs / 'all.md'}" in said
    assert "| metric | ∅ UNMATCHED |" in (logs / "all.md").read_text(encoding="utf-8")


def test_absent_steps_and_unused_files_stand_in_every_report(tmp_path: Path) -> None:
    found = replace(overview(ALL[0]), kind="hand_in", absent=("loss", "training"), unused=("notes/own.npy",))
    told = ["no logs of these steps: loss, training", "notes/own.npy"]
    page = write_overview(found, tmp_path / "all.html").read_text(encoding="utf-8")
    plain = re.sub(r"<[^>]+>", "", page)
    assert all(text in plain for text in told)
    assert all(text.replace("_", r"\_") in markdown(found) for text in told)
    read = overview_answer(found)
    assert (read["absent"], read["unused"]) == (["loss", "training"], ["notes/own.npy"])
    assert [(one["name"], one["status"], one["passed"]) for one in read["steps"]] == [("forward", "PASS", True)]
    assert read["status"] == "PASS"
