"""Every format: what it holds, that hostile names stay text in it, and its gold file."""

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from made_alignments import HOSTILE, calibrated, classic, finding_of, fixed, hostile, many, provenance
from markdown_it import MarkdownIt

from reprod_log import Alignment, Policy, Recording, align, write_report
from reprod_log.errors import UsageError
from reprod_log.recording import Key
from reprod_log.report import all_formats, format_of, render_report
from reprod_log.report.formats import markdown
from reprod_log.report.formats.markdown import code, text
from reprod_log.report.writing import plain

GOLD = Path(__file__).with_name("gold")
SUFFIXES = {"text": ".txt", "json": ".json", "markdown": ".md", "junit": ".xml"}
SCRUBS = (
    (re.compile(r'"reprod_log": "[^"]+"'), '"reprod_log": "VERSION"'),
    (re.compile(r"(\d\.\d{3})\d+(e[+-]\d+)?"), r"\1…\2"),
)


def small() -> Alignment:
    """A comparison whose numbers are exact in binary, with a finding, a missing key and a shape that differs."""
    reference = {
        "step0/data/x": np.arange(4.0),
        "step0/forward/conv#0:output": np.array([[1.0, 2.0], [4.0, 8.0]]),
        "step0/forward/fc#0:output": np.ones(3),
        "step0/loss/loss": np.array(2.0),
        "step1/loss/loss": np.array(1.0),
        "only_here": np.ones(1),
    }
    candidate = {
        "step0/data/x": np.arange(4.0),
        "step0/forward/conv#0:output": np.array([[1.0, 2.5], [4.0, 8.0]]),
        "step0/forward/fc#0:output": np.ones(4),
        "step0/loss/loss": np.array(2.5),
        "step1/loss/loss": np.array(1.0),
    }
    found = align(
        Recording.from_arrays(reference, provenance=provenance("torch")),
        Recording.from_arrays(candidate, provenance=provenance("paddle", threads=4)),
    )
    cause = finding_of(
        "made_up", "conv has no bias", "the difference is 0.5", "explained", "add bias=True", (Key("conv"),)
    )
    return Alignment(**{**vars(found), "findings": (cause,)})


@pytest.mark.parametrize("name", SUFFIXES)
def test_report_is_the_gold_file(name: str) -> None:
    content = render_report(small(), format=name)
    for pattern, replacement in SCRUBS:
        content = pattern.sub(replacement, content)
    path = GOLD / f"small{SUFFIXES[name]}"
    if os.environ.get("UPDATE_GOLD"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    assert content == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(all_formats()))
def test_every_format_writes_every_kind_of_alignment(name: str, tmp_path: Path) -> None:
    for made in (small(), classic(), hostile(), align(Recording(()), Recording(()))):
        for full in (False, True):
            for language in ("en", "zh"):
                path = write_report(made, tmp_path / "report", format=name, full=full, language=language)
                assert path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(all_formats()))
def test_same_alignment_gives_the_same_bytes(name: str) -> None:
    assert render_report(small(), format=name) == render_report(small(), format=name)


@pytest.mark.parametrize(
    ("path", "name"), [("a.TXT", "text"), ("b.md", "markdown"), ("c.xml", "junit"), ("d.json", "json")]
)
def test_suffix_names_the_format(path: str, name: str) -> None:
    assert format_of(path) == name


def test_unknown_suffix_and_format_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'\.md'"):
        write_report(small(), tmp_path / "report.pdf")
    with pytest.raises(UsageError, match="'junit'"):
        write_report(small(), tmp_path / "report.md", format="pdf")


# Text


def test_text_has_no_control_character() -> None:
    content = render_report(hostile(), format="text", full=True)
    assert all(c.isprintable() or c == "\n" for c in content)
    for name in HOSTILE:
        assert plain(name) in content


# JSON


def test_json_is_read_back_and_judged_again_without_tensors(tmp_path: Path) -> None:
    for place, made in enumerate((small(), classic(), calibrated(), hostile())):
        loaded = Alignment.load(write_report(made, tmp_path / f"{place}.json"))
        assert loaded == made
    tighter = Alignment.load(tmp_path / "1.json").judged_by(Policy.fixed(["mean_abs:1e-9"]))
    assert sum(not one.status.passed for one in tighter.verdict.judgements) == 19
    looser = Alignment.load(tmp_path / "1.json").judged_by(Policy.fixed(["mean_abs:1"], allow_unmatched=["logit*"]))
    assert looser.passed


def test_json_holds_nan_and_infinity_by_name(tmp_path: Path) -> None:
    made = align(Recording.from_arrays({"x": np.array([np.nan, np.inf])}), Recording.from_arrays({"x": np.zeros(2)}))
    content = render_report(made, format="json")
    assert "NaN" not in content.replace("NaN or", "").replace("NaN,", "").replace("1 NaN", "")
    assert json.loads(content)["comparison"]["rows"][0]["samples"][0][0] == {"nonfinite": "nan"}
    loaded = Alignment.load(write_report(made, tmp_path / "a.json"))
    assert repr(loaded) == repr(made)


def test_json_has_one_line_per_row() -> None:
    lines = render_report(classic(), format="json").splitlines()
    assert sum(line.startswith('   {"key": "loss_') for line in lines) == 12


# Markdown


def cells(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def test_markdown_tables_keep_their_columns_whatever_the_names() -> None:
    content = render_report(hostile(), format="markdown", full=True)
    columns = None
    for line in content.splitlines():
        if not line.startswith("|"):
            columns = None
            continue
        columns = columns or cells(line)
        assert cells(line) == columns, line


def test_markdown_shows_hostile_names_only_as_code() -> None:
    content = render_report(hostile(), format="markdown", full=True)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", content)
    assert not re.search(r"(?<!\\)<(?!br>)", outside)
    assert not re.search(r"@\w", outside)
    assert not re.search(r"(?<!&)#\d", outside)
    assert "://" not in outside
    assert "\x1b" not in content


class Tags(HTMLParser):
    """The tags of a page, and the text inside code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.codes: list[str] = []
        self._in_code = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._in_code = tag == "code"
        if self._in_code:
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_code = self._in_code and tag != "code"

    def handle_data(self, data: str) -> None:
        if self._in_code:
            self.codes[-1] += data


def test_rendered_markdown_holds_nothing_but_our_own_tags_and_the_names_as_they_are() -> None:
    page = MarkdownIt("commonmark").enable("table").render(render_report(hostile(), format="markdown", full=True))
    found = Tags(page)
    assert found.tags == {"h2", "h3", "table", "thead", "tbody", "tr", "th", "td", "strong", "em", "code", "br"}
    for name in (HOSTILE[0], HOSTILE[1], HOSTILE[4]):
        assert name in found.codes


@pytest.mark.parametrize("name", ["a`b", "``", "`", " ", "a|b", "x" * 500, "\n", "a\\"])
def test_code_span_holds_any_name(name: str) -> None:
    span = code(name)
    fence = re.match("`+", span)
    assert fence is not None
    inner = span[len(fence.group()) : -len(fence.group())]
    assert fence.group() not in re.findall("`+", inner)
    assert "|" not in inner.replace("\\|", "")
    assert "\n" not in span
    assert len(span) < 200


def test_running_text_cannot_mention_link_or_emphasise() -> None:
    safe = text("@user #12 *x* _y_ [a](http://b) <i> | www.c.d &copy;")
    assert safe == ("@\u200buser #\u200b12 \\*x\\* \\_y\\_ \\[a\\](http&#58;//b) \\<i\\> \\| www&#46;c.d &amp;copy;")


def test_markdown_is_short_by_default_and_says_what_it_left_out() -> None:
    short, full = render_report(fixed(), format="markdown"), render_report(fixed(), format="markdown", full=True)
    assert len(short) < 8_000 < len(full)
    assert "185 of 205 rows are omitted here (short form)" in short
    assert "step 3 · parameter · fc.weight" in full
    assert "omitted" not in full


@pytest.mark.parametrize("full", [False, True])
def test_markdown_never_exceeds_a_comment_and_says_so(full: bool) -> None:
    content = render_report(many(1500), format="markdown", full=full)
    assert len(content) <= markdown.LIMIT
    if full:
        assert len(content) > 60_000
        assert "a GitHub comment holds 65,536 characters" in content
    assert "first divergence" in content
    assert "### Environment" in content


def test_markdown_has_a_loss_table_with_both_sides() -> None:
    content = render_report(small(), format="markdown")
    assert "| 0 | ✗ FAIL | 2 | 2.5 | 5.0e-1 |" in content


def test_markdown_of_a_calibrated_alignment_has_floors() -> None:
    assert "| status | × floor | entry |" in render_report(calibrated(), format="markdown")


def test_markdown_marks_the_environment_that_matters() -> None:
    assert "| **threads** | `1` | `4` | ⚠" in render_report(small(), format="markdown")


# JUnit


def junit(alignment: Alignment, **options: bool) -> ElementTree.Element:
    return ElementTree.fromstring(render_report(alignment, format="junit", **options))  # type: ignore[arg-type]


def test_junit_has_the_verdict_and_a_case_per_entry() -> None:
    top = junit(small())
    cases = {case.attrib["name"]: case for case in top.iter("testcase")}
    assert list(cases) == ["verdict", *(str(one.key) for one in small().verdict.judgements)]
    assert (top.attrib["tests"], top.attrib["failures"]) == ("7", "5")
    failure = cases["step0/forward/conv#0:output"].find("failure")
    assert failure is not None
    assert failure.attrib["type"] == "FAIL"
    assert "worst at [0, 1]: reference 2, candidate 2.5" in failure.attrib["message"]
    assert cases["step0/data/x"].find("failure") is None
    whole = top.find("testsuite[@name='alignment']/system-out")
    assert whole is not None
    assert whole.text is not None
    assert whole.text.startswith("NOT ALIGNED")


def test_junit_of_nothing_compared_is_no_green_run() -> None:
    assert junit(align(Recording(()), Recording(()))).attrib["failures"] == "1"


def test_junit_skips_what_was_allowed_to_be_unmatched() -> None:
    both = Recording.from_arrays({"x": np.ones(1)})
    more = Recording.from_arrays({"x": np.ones(1), "y": np.ones(1)})
    top = junit(align(more, both, allow_unmatched=["y"]))
    assert (top.attrib["failures"], top.attrib["skipped"]) == ("0", "1")


def test_junit_counts_agree_with_its_cases() -> None:
    for made in (small(), classic(), hostile(), calibrated()):
        for suite in junit(made).iter("testsuite"):
            assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
            assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))


def test_junit_of_thousands_has_a_case_per_phase_unless_full() -> None:
    keys = [f"step{step}/{phase}/x{i}" for step in range(2) for phase in ("forward", "gradient") for i in range(1300)]
    ours = Recording.from_arrays(dict.fromkeys(keys, np.ones(1)))
    theirs = Recording.from_arrays({key: np.full(1, 1 + key.endswith("7")) for key in keys})
    made = align(ours, theirs)
    assert junit(made).attrib["tests"] == "5"
    assert junit(made, full=True).attrib["tests"] == "5201"
    failure = junit(made).find("testsuite[@name='step0/forward']/testcase/failure")
    assert failure is not None
    assert failure.attrib["message"] == "130 of 1300 entries do not pass"


def test_junit_shows_hostile_names_as_text() -> None:
    names = [case.attrib["name"] for case in junit(hostile()).iter("testcase")]
    for name in (HOSTILE[0], HOSTILE[1], HOSTILE[4]):
        assert name in names
    assert any("\\u202e" in name for name in names)
