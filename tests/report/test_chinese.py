"""Chinese reports: nothing that a reader sees is left in English, whatever is compared and wherever it is shown."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_alignments import calibrated, classic, fixed

from reprod_log import Alignment, Recording, align
from reprod_log.cli.app import exit_code_of
from reprod_log.messages import message
from reprod_log.recording.recording import ModuleInfo
from reprod_log.recording.stores import save
from reprod_log.report import render_report
from reprod_log.report.overview import markdown, write_overview
from reprod_log.report.serve.listing import Listing
from reprod_log.report.serve.pages import live_data
from reprod_log.steps.overview import Overview, StepResult

ENGLISH = re.compile(r"\b[a-z]+(?:[,;:]? [a-z]+){2,}\b")
FOREIGN = re.compile(r"`[^`]*`|<code>.*?</code>|python train_\w+\.py|reprod zoom|Linux x86_64")


def shown(text: str) -> str:
    """What is left of a page when its code, styles, scripts and the names of others are taken away."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    text = FOREIGN.sub(" ", text)
    return html.unescape(re.sub(r"<[^>]*>", " | ", text))


def incomparable() -> Alignment:
    """Missing partners, other shapes and kinds, NaN, mixed dtypes, text, empty tensors."""
    x = np.linspace(0, 1, 12, dtype=np.float32)
    both = {"ok": x, "empty": x[:0], "integers": np.arange(4), "text": np.array(["a", "b"])}
    ours = {
        **both,
        "turned": x.reshape(3, 4),
        "kind": x,
        "nan": np.where(x > 0.5, np.nan, x),
        "only_here": x,
        "wide": x,
    }
    theirs = {**both, "turned": x.reshape(4, 3), "kind": np.array(["a"] * 12), "nan": x, "only_heer": x}
    ours |= {"wide": x}
    theirs |= {"wide": x.astype(np.float64), "integers": np.arange(4) + 1, "text": np.array(["a", "c"])}
    return align(
        Recording.from_arrays(ours), Recording.from_arrays(theirs), accept=("text",), allow_unmatched=("only_heer",)
    )


def rearranged() -> Alignment:
    """Two models whose weights and outputs lie in different layouts."""
    rng = np.random.default_rng(0)
    weight, kernel, image = rng.normal(size=(6, 4)), np.ones((3, 3, 1, 1)), rng.normal(size=(2, 3, 4, 5))
    modules = [ModuleInfo("", "Net"), ModuleInfo("conv", "Conv2d", "conv2d", {"weight": (3, 3, 1, 1)})]
    linear = ModuleInfo("fc", "Linear", "linear", {"weight": (6, 4)}, "torch.nn.modules.linear.Linear")
    last = replace(modules[1], type="Conv2D", settings={"data_format": "NHWC"})
    turned = replace(linear, parameters={"weight": (4, 6)}, origin="paddle.nn.layer.common.Linear")
    ours = {"forward/conv#0:output": image, "parameter/fc.weight": weight, "loss/loss": np.ones(())}
    theirs = {
        "forward/conv#0:output": image.transpose(0, 2, 3, 1),
        "parameter/fc.weight": weight.T,
        "loss/loss": np.ones(1),
    }

    def side(values: dict[str, np.ndarray], *modules: ModuleInfo) -> Recording:
        arrays = {f"step0/{name}": value for name, value in {**values, "parameter/conv.weight": kernel}.items()}
        return replace(Recording.from_arrays(arrays), modules=modules)

    found = side(ours, *modules, linear), side(theirs, modules[0], last, turned)
    return align(*found, limits=["max_abs:1e-9"])


def sketched() -> Alignment:
    """Recordings without values, judged by estimates."""
    folder = Path(__file__).parents[1] / "fixtures" / "first_edition"
    return align(folder / "sketched", folder / "sketched_mistaken")


def mistaken() -> Alignment:
    """A real torch program against a port with mistakes, both recorded by the first edition."""
    folder = Path(__file__).parents[1] / "fixtures" / "first_edition"
    return align(folder / "reference", folder / "mistaken")


KINDS = (calibrated, classic, fixed, incomparable, mistaken, rearranged, sketched)


@pytest.mark.parametrize("format", ["text", "markdown", "junit", "html"])
@pytest.mark.parametrize("made", KINDS, ids=lambda made: made.__name__)
def test_chinese_report_has_no_english_sentence(made: Callable[[], Alignment], format: str) -> None:
    alignment = made()
    assert ENGLISH.findall(shown(render_report(alignment, format=format, language="zh", full=True))) == []
    assert ENGLISH.search(shown(render_report(alignment, format=format, full=True)))


def test_views_of_the_made_alignment_are_there() -> None:
    views = {row.view.id for row in rearranged().comparison.rows if row.view is not None}
    assert views == {"view.channels_last", "view.one_number", "view.of_kind"}


def overview(tmp_path: Path) -> Overview:
    problem = message(
        "reason.several", reasons=(message("plan.skipped"), message("check.failed", answer="", key="", reason=""))
    )
    steps = (
        StepResult("forward", None, None, None, calibrated()),
        StepResult("loss", None, None, None, fixed(wrong=False)),
        StepResult("lost", None, None, None, problem=problem),
        StepResult("later", None, None, None, skipped=True),
    )
    return Overview("plan", "port", tmp_path, steps)


def test_chinese_overview_has_no_english_sentence(tmp_path: Path) -> None:
    page = write_overview(overview(tmp_path), tmp_path / "plan.html", language="zh").read_text(encoding="utf-8")
    assert ENGLISH.findall(shown(page)) == []
    assert ENGLISH.findall(shown(markdown(overview(tmp_path), language="zh", full=True))) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    x = {"loss_0": np.ones(3), "loss_1": np.ones(3)}
    save(Recording.from_arrays(x), tmp_path / "a.npz")
    save(Recording.from_arrays({**x, "loss_1": np.zeros(3)}), tmp_path / "b.npz")
    return tmp_path


@pytest.mark.parametrize("command", ["compare", "zoom"])
@pytest.mark.parametrize("other", ["a.npz", "b.npz"])
def test_chinese_screen_has_no_english_sentence(
    command: str, other: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [command, str(folder / "a.npz"), str(folder / other), "--language", "zh"]
    arguments += ["-o", str(folder / "zoomed"), "--yes"] if command == "zoom" else ["-o", str(folder / "r.md")]
    exit_code_of(arguments)
    out = capsys.readouterr().out.replace(str(folder), "")
    assert ENGLISH.findall(shown(out)) == []


@pytest.mark.parametrize("command", [["show", "a.npz", "--values"], ["convert", "a.npz", "c.npz"], ["doctor"]])
def test_chinese_facts_have_no_english_sentence(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert exit_code_of([*command, "--language", "zh"]) == 0
    chinese = capsys.readouterr().out
    assert re.search("[一-鿿]", chinese)
    assert ENGLISH.findall(chinese.partition("下一步")[0]) == []


def test_served_pages_have_their_sentences_in_every_language(folder: Path) -> None:
    align(folder / "a.npz", folder / "b.npz").save(folder / "alignment.json")
    (item,) = (one for one in Listing(folder).items() if one.kind == "alignment")
    assert item.says["en"].startswith("NOT ALIGNED")
    assert item.says["zh"].startswith("未对齐")
    noted = replace(Recording.from_arrays({"x": np.ones(1)}), notes=(message("note.recording.nothing", why="x"),))
    save(noted, folder / "noted.npz")
    (note,) = live_data(folder / "noted.npz")["notes"]
    assert ENGLISH.findall(note["zh"]) == []
    assert note["en"].startswith("nothing was recorded")
