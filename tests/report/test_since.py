"""What changed since the last comparison: entries, causes, and the first divergence."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_alignments import finding_of

from reprod_log import Alignment, Recording, align
from reprod_log.cli import run
from reprod_log.messages import Name, message
from reprod_log.report import render_report
from reprod_log.report.since import since

KEYS = [f"step0/forward/layer{at}#0:output" for at in range(4)]


def made(*wrong: int, causes: tuple[str, ...] = ()) -> Alignment:
    ours = {key: np.ones(3) for key in KEYS}
    theirs = {key: np.full(3, 2.0) if at in wrong else value for at, (key, value) in enumerate(ours.items())}
    found = align(Recording.from_arrays(ours), Recording.from_arrays(theirs))
    return replace(found, findings=tuple(finding_of("made_up", one, confidence="explained") for one in causes))


def test_entries_causes_and_divergence_that_changed_are_named() -> None:
    found = since(made(1, 2, causes=("a", "b")), made(2, 3, causes=("b", "c")), "last.json")
    assert found.entries["fixed"] == (KEYS[1],)
    assert found.entries["broken"] == (KEYS[3],)
    assert [str(one) for one in found.messages] == [
        "since last time (last.json): 1 more entry passes, 1 entry that passed now fails",
        "fixed: a",
        "new cause: c",
        "the first divergence moved from step 0 · forward · layer1 · output to step 0 · forward · layer2 · output",
    ]


def test_cause_at_another_layer_is_the_same_mistake() -> None:
    def at(layer: str) -> Alignment:
        cause = message("advice.forward", path=Name(layer))
        return replace(made(1), findings=(replace(finding_of("made_up", "x", confidence="explained"), cause=cause),))

    found = since(at("layer1"), at("layer2"), "last.json")
    assert (found.causes["fixed"], found.causes["new"], len(found.causes["moved"])) == ((), (), 1)
    assert since(at("layer1"), at("layer1"), "last.json").causes["moved"] == ()


def test_a_pass_has_fixed_every_cause() -> None:
    found = since(made(1, causes=("a",)), made(causes=("a",)), "last.json")
    assert [str(one) for one in found.messages] == ["since last time (last.json): 1 more entry passes", "fixed: a"]


def test_nothing_changed_is_told_too() -> None:
    (line,) = since(made(1), made(1), "last.json").messages
    assert str(line) == "since last time (last.json): no entry changed from pass to fail or back"


@pytest.mark.parametrize("format", ["html", "markdown", "text"])
def test_reports_show_what_changed_and_a_saved_alignment_keeps_it(format: str, tmp_path: Path) -> None:
    before, now = made(1, 2, causes=("a",)), made(2)
    now.after(before, since(before, now, "last.json").messages).save(tmp_path / "now.json")
    loaded = Alignment.load(tmp_path / "now.json")
    shown = render_report(loaded, format=format)
    assert "1 more entry passes" in shown
    assert "fixed: a" in shown
    # Under another policy other entries may pass.
    assert not loaded.judged_by(loaded.policy).since


def test_command_compares_with_what_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Recording.from_arrays({key: np.ones(3) for key in KEYS}).save("ref.npz")
    Recording.from_arrays({key: np.zeros(3) for key in KEYS}).save("cand.npz")
    line = ["compare", "ref.npz", "cand.npz", "--json", "last.json"]
    assert run(line) == 1
    assert "since" not in capsys.readouterr().out
    Recording.from_arrays({key: np.ones(3) for key in KEYS}).save("cand.npz")
    assert run([*line[:3], "--since", "last.json", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["since"]["entries_fixed"] == KEYS
    assert run([*line, "--language", "zh"]) == 0
    assert "与上次（last.json）相比：新通过 4 项" in capsys.readouterr().out


def test_saved_alignment_remembers_how_those_it_replaced_came_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Recording.from_arrays({key: np.ones(3) for key in KEYS}).save("ref.npz")
    for wrong in (3, 1, 0):
        theirs = {key: np.full(3, 2.0 if at < wrong else 1.0) for at, key in enumerate(KEYS)}
        Recording.from_arrays(theirs).save("cand.npz")
        run(["compare", "ref.npz", "cand.npz", "--json", "last.json", "--allow-unproven"])
    found = Alignment.load("last.json")
    assert [(one.status.value, one.passing, one.total) for one in found.history] == [("FAIL", 1, 4), ("FAIL", 3, 4)]
    assert found.passed


def test_another_file_under_that_name_is_no_last_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ref.npz", "cand.npz", "other.npz"):
        Recording.from_arrays({key: np.ones(3) for key in KEYS}).save(name)
    Path("last.json").write_text("{}")
    for other in ("cand.npz", "other.npz"):
        assert run(["compare", "ref.npz", other, "--json", "last.json"]) == 0
        assert "since" not in capsys.readouterr().out
    Path("broken.json").write_text("{}")
    assert run(["compare", "ref.npz", "cand.npz", "--since", "broken.json"]) == 2
