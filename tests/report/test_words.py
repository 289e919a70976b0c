"""The languages of the reports say the same things."""

import re
import string

import pytest

from reprod_log.errors import UsageError
from reprod_log.judge import CalibratedPolicy
from reprod_log.record.key import PHASES
from reprod_log.report.words import Name, known_languages, say, words

LANGUAGES = known_languages()


def test_there_are_english_and_chinese() -> None:
    assert LANGUAGES == ("en", "zh")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_sentences_with_the_same_placeholders(language: str) -> None:
    def fields(text: str) -> set[str]:
        # `{status}` is the word for all languages, `{word}` the same in running English.
        found = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
        return {"status" if name == "word" else name for name in found}

    english, other = words("en").sentences, words(language).sentences
    assert list(other) == list(english)
    assert {id: fields(text) for id, text in other.items()} == {id: fields(text) for id, text in english.items()}


def test_chinese_is_chinese() -> None:
    same = {id for id, text in words("zh").sentences.items() if not re.search("[\u4e00-\u9fff]", text)}
    assert same <= {
        "cosine_distance",
        "doubt.floor",
        "reason",
        "comma",
        "side.nan",
        "side.inf",
        "remark.side",
        "remark.of",
    }


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_has_advice(phase: str) -> None:
    assert words().get(f"advice.{phase}")


def test_names_are_shown_the_way_a_format_shows_code() -> None:
    what = say("last.agreement", key=Name("a.b"))
    assert words()(what, name=lambda text: f"<{text}>") == "last agreement before it: <a.b>"


def test_unknown_language_is_refused() -> None:
    with pytest.raises(UsageError, match="'en', 'zh'"):
        words("xx")


@pytest.mark.parametrize("name", [one for one, value in CalibratedPolicy().to_dict().items() if type(value) is float])
def test_every_factor_of_the_calibrated_policy_is_explained(name: str) -> None:
    assert words().get(f"policy.{name}")
