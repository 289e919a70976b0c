"""The pages of reprod serve in a real Chromium: the list, a report, and a recording followed while it grows."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_alignments import HOSTILE, classic
from reading import until

from reprod_log import Recording
from reprod_log.recording import Provenance
from reprod_log.recording.recorder import Recorder
from reprod_log.report.serve import Server, serving
from reprod_log.report.writing import plain


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "runs"
    classic().save(folder / "first.json")
    for name, shift in (("torch", 0.0), ("paddle", 0.25)):
        Recording.from_arrays({f"step{step}/loss/loss": np.array(2.0 - step + shift) for step in range(3)}).save(
            folder / f"{name}.npz"
        )
    made = serving(folder)
    thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(5)


@pytest.fixture
def page(browser: Any, server: Server, watched: Any) -> Iterator[Any]:
    context = browser.new_context()
    made = context.new_page()
    made.set_default_timeout(20_000)
    watched.watch(made, allowed=server.address)
    made.goto(server.address)
    yield made
    context.close()


def test_list_leads_to_the_report(page: Any) -> None:
    assert "NOT ALIGNED" in page.locator("#alignments").inner_text()
    page.locator("#alignments a").click()
    until(page, "document.getElementById('table')")
    assert page.locator("#shown").inner_text() == "3 of 19 shown"


def test_list_shows_what_is_new_without_reloading(page: Any, server: Server) -> None:
    classic().save(server.listing.folder / "second.json")
    until(page, "document.querySelectorAll('#alignments tbody tr').length === 2")


def test_list_draws_how_often_the_same_comparison_failed(page: Any, server: Server) -> None:
    before = replace(classic(), reference=replace(classic().reference, source="torch.npz"))
    before = replace(before, candidate=replace(before.candidate, source="paddle.npz"))
    before.after(before, ()).save(server.listing.folder / "second.json")
    until(page, "document.querySelectorAll('.trend i').length === 2")
    assert page.locator(".trend").inner_text().strip() == "3 → 3"


def test_growing_recording_is_drawn_as_it_grows(page: Any, server: Server) -> None:
    recorder = Recorder(server.listing.folder / "live", provenance=Provenance(framework="torch"))
    for step in range(2):
        recorder.add(f"step{step}/loss/loss", np.array(1.0 / (step + 1)))
        recorder.end_step()
    until(page, "document.querySelector('#recordings').innerText.includes('growing')")
    page.locator("#recordings a", has_text="live").click()
    until(page, "document.querySelector('#curve-chart .bk-Figure')")
    assert page.locator("#curve").inner_text() == "loss (2)"
    recorder.add("step2/loss/loss", np.array(0.1))
    recorder.end_step()
    until(page, "document.querySelector('#curve').innerText === 'loss (3)'")
    assert "growing" in page.locator("#state").inner_text()
    recorder.close()
    until(page, "document.querySelector('#state').innerText.startsWith('complete')")


def test_two_recordings_are_drawn_beside_each_other_and_compared(page: Any) -> None:
    page.locator("#recordings a", has_text="torch.npz").click()
    until(page, "document.querySelector('#curve-chart .bk-Figure')")
    page.select_option("#with", "paddle.npz")
    page.wait_for_url("**with=paddle.npz")
    until(page, "latest !== null")
    assert page.evaluate("latest.curves[0].other.length") == 3
    page.get_by_role("link", name="compare").click()
    until(page, "document.querySelector('h1')?.innerText.includes('3 fail')")


def test_pages_speak_chinese_and_go_dark(page: Any) -> None:
    page.locator("#language").click()
    assert "对齐结果" in page.locator("h2").first.inner_text()
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 23, 28)"


def test_hostile_names_are_text(page: Any, server: Server) -> None:
    name = "<img src=x onerror=alert(1)> \u202e.npz"
    values = {one: np.ones(1) for one in HOSTILE[:5]} | {f"{HOSTILE[4]}_{step}": np.array(1.0) for step in range(3)}
    Recording.from_arrays(values).save(server.listing.folder / name)
    until(page, "document.querySelectorAll('#recordings tbody tr').length === 3")
    assert plain(name) in page.locator("#recordings").inner_text()
    page.locator("#recordings a", has_text="onerror").click()
    until(page, "document.querySelector('#curve-chart .bk-Figure')")
    assert page.locator("img").count() == 0
    assert plain(HOSTILE[0]) in page.locator("#keys").inner_text()


def test_server_that_goes_away_is_said(page: Any, server: Server, watched: Any) -> None:
    server.shutdown()
    server.server_close()
    until(page, "document.querySelector('#state').innerText.includes('does not respond')")
    watched.complaints.clear()
