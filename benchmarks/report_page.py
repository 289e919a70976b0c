"""How long the page of a large report takes to answer: search, sort, filter, language and one entry, in a real browser.

    python benchmarks/report_page.py [--entries 5000] [--rounds 7]

Processor time of the page's main thread, the best of all rounds; a plain loop of the same run says how fast the machine
is at the moment. The aim is 100 ms where the loop takes 10 ms.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from results import versions, write_section
from timing import machine, size_text, table

from reprod_log import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))
from made_alignments import many

AIM = 100.0
LOOP = "const seen = new Map(); for (let one = 0; one < 300000; one++) seen.set(one % 1000, String(one));"
"""Ten milliseconds on a quiet machine."""
ACTS = {
    "search": "document.getElementById('search').value = 'layer2'; "
    "document.getElementById('search').dispatchEvent(new Event('input'))",
    "sort": "document.querySelector('#table th[data-sort=max_abs] button').click()",
    "filter": "document.querySelector('#status-filter button').click()",
    "language": "switchLanguage()",
    "one entry": "state.entry = 100; drawEntry(100)",
}
_LAID_OUT = (
    "(act) => { new Function(act)(); document.body.offsetHeight; document.getElementById('entries').offsetHeight; }"
)


def measured(browser: Any, path: Path, rounds: int) -> tuple[float, float, dict[str, float]]:
    """Milliseconds until the first paint, of the plain loop, and of each act."""
    page = browser.new_context(bypass_csp=True).new_page()
    page.goto(path.as_uri())
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    page.evaluate("reading")
    page.evaluate("document.getElementById('layers').scrollIntoView()")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return 1000 * float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    def took(act: str) -> float:
        before = busy()
        page.evaluate(_LAID_OUT, act)
        return busy() - before

    def best(act: str) -> float:
        return min(took(act) for _ in range(rounds))

    return float(painted), best(LOOP), {name: best(act) for name, act in ACTS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = write_report(many(options.entries), Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        painted, loop, found = measured(browser, path, options.rounds)
        size = size_text(path.stat().st_size)
        browser.close()
    rows = [[name, f"{one:.0f} ms", f"{one / loop:.1f}"] for name, one in found.items()]
    text = f"""{versions("playwright", "reprod_log")}; {machine()}; {options.entries} entries in {size}.
First paint after {painted:.0f} ms. Processor time, best of {options.rounds}; the aim is {AIM:.0f} ms, or 10 times the
plain loop ({loop:.0f} ms here).

{table(["act", "processor time", "beside the loop"], rows)}
"""
    print(text)
    write_section("Pages of reports", text)


if __name__ == "__main__":
    main()
