"""The page of promises names only tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


def test_every_test_that_is_named_exists() -> None:
    assert len(NAMED) > 30
    for path, name in NAMED:
        source = ROOT / path
        assert source.is_file(), path
        assert not name or f"def {name}(" in source.read_text(encoding="utf-8"), f"{path}::{name}"


def test_every_promise_has_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and "promise" not in line and "---" not in line]
    promised = [row for row in rows if "`tests/" in row]
    assert len(promised) > 20
    tables = PAGE.split("| promise | held by |")[1:]
    for table in tables:
        for row in table.strip().splitlines()[1:]:
            if not row.startswith("|"):
                break
            assert "`tests/" in row, row


def test_sums_of_the_page_are_right() -> None:
    fuzzed = PAGE.split("| target | inputs |")[-1].split("\n\n")[0]
    numbers = [int(one.replace(",", "")) for one in re.findall(r"\b\d[\d,]{5,}\b", fuzzed)]
    (total,) = re.findall(r"([\d,]+) inputs\. None of them", PAGE)
    assert sum(numbers) == int(total.replace(",", ""))
