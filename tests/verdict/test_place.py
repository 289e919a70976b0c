"""Where two sides first part, and where they last agreed, from judgements made by hand."""

from __future__ import annotations

import pytest

from reprod_log.recording import Key
from reprod_log.verdict import Judgement, Status, Verdict

PASS, FAIL, ALONE, ACCEPTED = Status.PASS, Status.FAIL, Status.UNMATCHED, Status.ACCEPTED
A, B, C = (f"step0/forward/{name}#0:output" for name in "abc")


def judgements(*rows: tuple[str, Status]) -> tuple[Judgement, ...]:
    return tuple(Judgement(Key.parse(key), status) for key, status in rows)


def places(*rows: tuple[str, Status]) -> tuple[str | None, str | None]:
    """The keys of the last agreement and of the first divergence."""
    verdict = Verdict(FAIL, judgements(*rows))
    last, first = verdict.last_agreement, verdict.first_divergence
    return last and last.key, first and first.key


def test_place_lies_between_the_last_that_passed_and_the_first_that_did_not() -> None:
    assert places((A, PASS), (B, FAIL), (C, FAIL)) == (A, B)
    assert places((A, FAIL), (B, PASS)) == (None, A)
    assert places((A, PASS), (B, PASS)) == (None, None)
    assert places() == (None, None)


def test_what_was_accepted_is_neither_agreement_nor_divergence() -> None:
    assert places((A, PASS), (B, ACCEPTED), (C, FAIL)) == (A, C)
    assert places((A, Status.SUSPECT), (B, Status.PRECISION)) == (A, B)


def test_entry_without_partner_is_no_place_unless_it_is_a_lost_gradient() -> None:
    assert places((A, PASS), (B, ALONE)) == (None, None)
    assert places((A, PASS), ("step0/backward/b#0:output", ALONE)) == (None, None)


@pytest.mark.parametrize(
    ("lost", "both"),
    [
        ("step0/backward/b#0:output", B),
        ("step0/gradient/b.weight:raw", "step0/parameter/b.weight"),
    ],
)
def test_gradient_that_one_side_lacks_is_a_divergence_when_both_have_what_it_is_of(lost: str, both: str) -> None:
    assert places((both, PASS), (lost, ALONE))[1] == lost
    # Of another step, of another run, or itself of another run, it says nothing.
    assert places((both.replace("step0", "step1"), PASS), (lost, ALONE))[1] is None
    assert places((f"isolated@{both}", PASS), (lost, ALONE))[1] is None
    assert places((both, PASS), (f"isolated@{lost}", ALONE))[1] is None
    assert places((both, ALONE), (lost, ALONE))[1] is None


def test_lost_gradient_and_a_difference_are_told_in_the_order_of_the_program() -> None:
    lost, parameter = "step0/gradient/b.weight:raw", "step0/parameter/b.weight"
    assert places((parameter, FAIL), (lost, ALONE)) == (None, lost)
    assert places(("step0/loss/loss", FAIL), (parameter, PASS), (lost, ALONE)) == (None, "step0/loss/loss")
    # At the same moment the one that was compared comes first.
    same = "step0/gradient/a.weight:raw"
    assert places((same, FAIL), (parameter, PASS), (lost, ALONE))[1] == same
    # A layer that is wrong alone is nearer to the mistake than anything in the free run.
    alone = "isolated@step1/forward/b#0:output"
    assert places((alone, FAIL), (parameter, PASS), (lost, ALONE))[1] == alone


def test_earliest_of_several_lost_gradients_is_named() -> None:
    late, early = "step1/backward/b#0:output", "step0/gradient/b.weight:raw"
    both = ((B.replace("step0", "step1"), PASS), ("step0/parameter/b.weight", PASS))
    assert places(*both, (late, ALONE), (early, ALONE))[1] == early
    assert places(*both, (early, ALONE), (late, ALONE))[1] == early


def test_last_agreement_before_a_lost_gradient_is_the_latest_that_ran_before_it() -> None:
    lost = "step1/backward/b#0:output"
    before, loss = B.replace("step0", "step1"), "step1/loss/loss"
    at_the_same_time = "step1/backward/a#0:output"
    rows = (
        ("isolated@step1/loss/loss", PASS),
        (before, PASS),
        (loss, PASS),
        (loss + "2", PASS),
        ("step1/loss/loss3", ACCEPTED),
        ("step0/metric/accuracy", PASS),
        (at_the_same_time, PASS),
        ("step1/parameter/b", PASS),
        (lost, ALONE),
    )
    # Of several at the last moment, the last.
    assert places(*rows) == (loss + "2", lost)
    assert places(("step1/forward/b#0:output", ACCEPTED), (lost, ALONE)) == (None, lost)


def test_name_that_is_no_key_of_ours_comes_at_the_end_of_the_first_step() -> None:
    lost = "step0/gradient/b.weight:raw"
    parameter = "step0/parameter/b.weight"
    assert places((parameter, PASS), ("fc1", FAIL), (lost, ALONE))[1] == lost
    later = lost.replace("step0", "step1"), parameter.replace("step0", "step1")
    assert places((later[1], PASS), ("fc1", FAIL), (later[0], ALONE))[1] == "fc1"
    assert places((later[1], PASS), ("fc1", PASS), (later[0], ALONE)) == ("fc1", later[0])


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_last_agreement_before_a_layer_that_is_wrong_alone_is_where_the_program_reaches_it(phase: str) -> None:
    wrong = f"isolated@step0/{phase}/b#0:output"
    alone = (("isolated@step0/forward/a#0:output", PASS), (wrong, FAIL))
    free = ((A, PASS), ("step0/forward/other#0:output", ALONE), (B, FAIL), (C, PASS))
    assert places(*alone, *free) == (A, wrong)
    assert places(*alone, ("step0/parameter/b", PASS), *free) == (A, wrong)
    # Reached first of all: what passed before it among the layers alone.
    assert places(*alone, (B, FAIL), (C, PASS)) == ("isolated@step0/forward/a#0:output", wrong)
    # Accepted ones and those of other passes are no agreement.
    assert places(*alone, ("injected@step0/forward/x#0:output", PASS), (A, PASS), (C, ACCEPTED), (B, FAIL)) == (
        A,
        wrong,
    )


def test_last_agreement_before_what_is_no_layer_is_what_was_judged_before_it() -> None:
    wrong = "isolated@step0/gradient/b.weight:of b"
    assert places(("isolated@x", PASS), (wrong, FAIL), (A, PASS), (B, FAIL)) == ("isolated@x", wrong)
    assert places(("injected@step0/x", PASS), ("injected@step0/forward/b#0:output", FAIL), (A, PASS), (B, FAIL)) == (
        "injected@step0/x",
        "injected@step0/forward/b#0:output",
    )
    # Never reached as it runs: everything that passed there came before.
    missing = "isolated@step0/forward/gone#0:output"
    assert places((missing, FAIL), (A, PASS), (B, PASS)) == (B, missing)
