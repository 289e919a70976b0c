"""axe-core on every kind of page: nothing serious. `make test` installs it if there is npm, else they skip."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_alignments import calibrated, classic
from test_languages_and_steps import CAUSE

from reprod_log import write_report
from reprod_log.report.overview import write_overview
from reprod_log.steps.overview import Overview, StepResult

ROOT = Path(__file__).parents[2]
FOUND = """axe.run().then((found) => found.violations.filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`))"""


@pytest.fixture(scope="session")
def axe() -> str:
    folder = Path(os.environ.get("REPROD_AXE", ROOT / ".venv" / "axe"))
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        pytest.skip("axe-core is not installed: rm .venv/browser && make test")
    return script.read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_and_its_entries_have_no_serious_findings(browser: Any, tmp_path: Path, axe: str, scheme: str) -> None:
    for made in (replace(calibrated(), findings=(CAUSE,)), classic()):
        path = write_report(made, tmp_path / "report.html")
        context = browser.new_context(color_scheme=scheme)
        for at in ("", "#entry-3"):
            page = context.new_page()
            page.goto(path.as_uri() + at)
            page.locator("#entry h1" if at else "#depth-chart").wait_for()
            page.evaluate(axe)
            assert page.evaluate(FOUND) == []
        context.close()


def test_page_of_several_steps_has_no_serious_findings(page: Any, tmp_path: Path, axe: str) -> None:
    steps = (StepResult("forward", None, None, None, alignment=calibrated()),)
    page.goto(write_overview(Overview("plan", "my port", tmp_path, steps), tmp_path / "plan.html").as_uri())
    page.evaluate(axe)
    assert page.evaluate(FOUND) == []
