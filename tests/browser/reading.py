"""What the browser tests do again and again: wait, read the table, wait for a chart."""

from collections.abc import Callable
from typing import Any

OpenPage = Callable[..., Any]
WRONG_KEY = "step0/forward/layer1.1.conv2#0:output"
WRONG = "step 0 · forward · layer1.1.conv2 · output"


def rows(page: Any) -> list[str]:
    found: list[str] = page.locator("#table tbody tr td:nth-child(2)").all_inner_texts()
    return found


def until(page: Any, condition: str) -> None:
    """Wait for the condition. The browser's own waiting is done by eval, which the page rightly forbids."""
    for _ in range(400):
        if page.evaluate(f"() => Boolean({condition})"):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition}")


def chart(page: Any, place: str) -> None:
    """Wait until the chart at `place` is drawn."""
    page.locator(place).scroll_into_view_if_needed()
    until(page, f"document.querySelector('{place} > div > *')?.shadowRoot")
