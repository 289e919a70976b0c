"""Every subject has the same three functions, and the guides' order knows every subject."""

import pytest

from reprod_log import steps
from reprod_log.errors import UsageError
from reprod_log.steps import SUBJECTS, subject_named
from reprod_log.steps.subject import Subject

subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)


@subjects
def test_subject_is_an_attribute_of_its_name_with_record_compare_and_run(subject: Subject) -> None:
    assert getattr(steps, subject.name) is subject is subject.SUBJECT is subject_named(subject.name)
    for function in (subject.record, subject.compare, subject.run):
        assert callable(function)


@subjects
def test_what_is_special_about_a_subject_is_explained(subject: Subject) -> None:
    for function in (subject.record, subject.limits_of, subject.together):
        assert function is None or function.__doc__


@subjects
def test_run_takes_the_keywords_of_compare(subject: Subject) -> None:
    assert set(subject.keywords("compare")) <= set(subject.keywords("run"))


@subjects
def test_unknown_keyword_is_refused_with_the_known_ones(subject: Subject) -> None:
    with pytest.raises(UsageError, match="has no keyword 'sept'; it takes .*'limits'"):
        subject.run(None, None, sept=1)
    with pytest.raises(UsageError, match="has no keyword 'sept'; it takes .*'limits'"):
        subject.compare("a", "b", sept=1)


def test_words_mean_one_subject_each() -> None:
    words = [word for subject in SUBJECTS for word in subject.words]
    assert len(words) == len(set(words))


def test_unknown_subject_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'lr'"):
        subject_named("learning_rate")
