"""Every subject's file has the same functions, and the guides' order knows every subject."""

import inspect

import pytest

from reprod_log.errors import UsageError
from reprod_log.steps import GUIDE_ORDER, subject_module, subjects

NAMES = [subject.name for subject in subjects()]


@pytest.mark.parametrize("name", NAMES)
def test_subject_file_has_record_compare_and_run(name: str) -> None:
    module = subject_module(name)
    assert module.SUBJECT.name == name
    assert module.__name__.endswith(f".{name}")
    for function in ("record", "compare", "run"):
        parameters = list(inspect.signature(getattr(module, function)).parameters.values())
        positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        assert positional == (["side"] if function == "record" else ["reference", "candidate"])
        assert inspect.getdoc(getattr(module, function))


@pytest.mark.parametrize("name", NAMES)
def test_run_takes_the_keywords_of_compare(name: str) -> None:
    module = subject_module(name)
    assert set(inspect.signature(module.compare).parameters) <= set(inspect.signature(module.run).parameters)


def test_the_guides_order_has_every_subject() -> None:
    assert list(GUIDE_ORDER) == NAMES


def test_words_mean_one_subject_each() -> None:
    words = [word for subject in subjects() for word in subject.words]
    assert len(words) == len(set(words))


def test_unknown_subject_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'lr'"):
        subject_module("learning_rate")
