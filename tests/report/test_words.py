"""The languages of the reports say the same things."""

import re
import string
from dataclasses import replace

import numpy as np
import pytest
from made_alignments import finding_of

from reprod_log import Recording, align
from reprod_log.errors import UsageError, counted
from reprod_log.messages import Message, Name, Number, known_languages, message, words
from reprod_log.recording.key import PHASES
from reprod_log.report.first_screen import FirstScreen
from reprod_log.verdict import CalibratedPolicy, Policy

LANGUAGES = known_languages()
ALLOWED = Policy.fixed(allow_unproven=True)


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
    def own(text: str) -> str:
        """What the row says itself, without what fills its places."""
        return re.sub(r"\{[^{}]*\}", "", text)

    rows = {id: own(text) for id, text in words("zh").sentences.items()}
    english = {id for id, text in rows.items() if re.search("[A-Za-z]", text) and not re.search("[一-鿿]", text)}
    assert english <= {
        "cosine_distance",
        "side.nan",
        "side.inf",
        "show.nan_inf",
        "doctor.python",
        "word.rank",
        "note.ranks.of_rank",
        "note.ranks.place",
    }


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_has_advice(phase: str) -> None:
    assert words().get(f"advice.{phase}")


def test_names_are_shown_the_way_a_format_shows_code() -> None:
    what = message("last.agreement", entry=message("place.step", step=0, name=Name("a.b")))
    assert words()(what, name=lambda text: f"<{text}>") == "last agreement before it: step 0 · <a.b>"


def test_unknown_language_is_refused() -> None:
    with pytest.raises(UsageError, match="'en', 'zh'"):
        words("xx")


@pytest.mark.parametrize("name", [one for one, value in CalibratedPolicy().to_dict().items() if type(value) is float])
def test_every_factor_of_the_calibrated_policy_is_explained(name: str) -> None:
    assert words().get(f"policy.{name}")


def test_number_and_noun_agree() -> None:
    assert [counted(count, "step") for count in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert counted(1, "the # entry passes", "all # entries pass") == "the 1 entry passes"
    assert counted(2, "entry is", "entries are") == "2 entries are"
    assert words()(message("headline.pass", total=1)) == "ALIGNED: 1 entry passes"
    assert words()(message("headline.pass", total=2)) == "ALIGNED: all 2 entries pass"
    assert words("zh")(message("headline.pass", total=1)) == "已对齐：全部 1 项通过"


def test_no_sentence_has_a_number_before_a_bare_plural() -> None:
    loose = re.compile(r"\{(count|total|entries|done|steps)\} (more )?(\w+s)\b")
    assert [text for text in words().sentences.values() if loose.search(text)] == []


def test_advice_after_a_pass_fits_what_was_found() -> None:
    same = Recording.from_arrays({f"loss_{step}": np.full(1, 1.0 + step / 7, "float32") for step in range(6)})
    odd = finding_of("made", "it could not fail", "", "explained", "", kind="doubt")
    whole = align(same, Recording.from_arrays({"loss_0": same["loss_0"].array()}), allow_unmatched="*")
    told = [words()(one) for one in FirstScreen(replace(whole, findings=(odd,))).advice]
    assert told == [words().get("advice.unproven")]
    let = [words()(one) for one in FirstScreen(replace(whole, policy=ALLOWED, findings=(odd,))).advice]
    assert let == [words().get("advice.allowed_unproven")]
    calm = [words()(one) for one in FirstScreen(replace(whole, findings=())).advice]
    assert calm == [words().get("advice.passed.fixed")]


def test_number_with_a_sign_is_read_back_from_a_file() -> None:
    shown = message("word.shifted_by", value=Number(0.5, "+.8g"))
    assert str(Message.from_dict(shown.to_dict())) == str(shown)
