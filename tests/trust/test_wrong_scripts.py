"""Wrong ports as two scripts do not pass; the same programs without the change do."""

from __future__ import annotations

import pytest

from reprod_log import Recording, Status, align
from sampling import sampled
from trust.wrong_passes import joined, recorded
from trust.wrong_scripts import CHANGES, SCRIPTS

PAIRS = [(program, change) for program, changes in CHANGES.items() for change in changes]
ONCE_PASSED = [
    ("twins", "twins exchanged"),
    ("twins", "one twin used twice"),
    ("explained", "gradient of data cut in half"),
    ("explained", "gradient of one feature lost"),
]


def both_passes(framework: str, program: str, *changes: str) -> Recording:
    given = {"program": program, **dict.fromkeys(changes, True)}
    return joined(*(recorded(framework, wide, SCRIPTS, **given) for wide in (False, True)))


@pytest.mark.parametrize("program", sampled(CHANGES, 3))
def test_correct_port_passes_without_a_doubt(program: str) -> None:
    found = align(both_passes("torch", program), both_passes("paddle", program))
    assert (found.status, found.doubts) == (Status.PASS, ())


@pytest.mark.parametrize(("program", "change"), dict.fromkeys([*ONCE_PASSED, *sampled(PAIRS, 6)]))
def test_wrong_port_does_not_pass(program: str, change: str) -> None:
    assert not align(both_passes("torch", program), both_passes("paddle", program, change)).passed
