"""reprod serve, asked over HTTP: what it lists, who may look, and what cannot be reached."""

import http.client
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from made_alignments import HOSTILE, classic

from reprod_log import Recording, align
from reprod_log.errors import UsageError
from reprod_log.recording import Provenance
from reprod_log.recording.recorder import Recorder
from reprod_log.report.formats import html
from reprod_log.report.serve import Server, listing, serving
from reprod_log.report.serve.server import Access, is_loopback
from reprod_log.report.writing import plain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "runs"
    classic().save(made / "results" / "first.json")
    for name, shift in (("torch", 0.0), ("paddle", 0.5)):
        Recording.from_arrays({f"loss_{step}": np.array(2.0 - step + shift) for step in range(3)}).save(
            made / f"{name}.npz"
        )
    (made / "other.json").write_text('{"not": "ours"}')
    (made / "notes.txt").write_text("text")
    (tmp_path / "secret.npz").write_bytes((made / "torch.npz").read_bytes())
    os.symlink(tmp_path / "secret.npz", made / "link.npz")
    return made


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    yield from running(serving(folder))


def running(made: Server) -> Iterator[Server]:
    thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(5)


def get(server: Server, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), dict(answer.getheaders())
    connection.close()
    return found


def test_list_names_alignments_and_recordings_and_nothing_else(server: Server) -> None:
    status, text, _ = get(server, "/items.json")
    assert status == 200
    items = {one["name"]: one for one in json.loads(text)}
    assert set(items) == {"results/first.json", "torch.npz", "paddle.npz"}
    assert items["results/first.json"]["status"] == "FAIL"
    assert items["results/first.json"]["first"] == "loss_7"
    page = get(server, "/")[1]
    assert "NOT ALIGNED: 1 fail, 2 unmatched" in page
    assert "torch.npz" in page
    assert "link.npz" not in page


def test_trend_follows_alignments_of_the_same_sides(folder: Path, server: Server) -> None:
    theirs = {f"loss_{step}": np.array(2.0 - step) for step in range(3)}
    for name, wrong in (("a", 2), ("b", 1), ("other", 1)):
        changed = {key: value + (at < wrong) for at, (key, value) in enumerate(theirs.items())}
        candidate = folder / ("paddle.npz" if name != "other" else "third.npz")
        Recording.from_arrays(changed).save(candidate)
        saved = align(folder / "torch.npz", candidate).save(folder / f"{name}.json")
        os.utime(saved, (ord(name[0]), ord(name[0])))
    trends = {one["name"]: one["trend"] for one in json.loads(get(server, "/items.json")[1])}
    assert (trends["a.json"], trends["b.json"], trends["other.json"]) == ([2], [2, 1], [1])
    assert "<td>2 → 1<td>" in get(server, "/")[1]


def test_alignment_is_opened_as_the_report(server: Server) -> None:
    status, page, headers = get(server, "/alignment?name=results/first.json")
    assert status == 200
    assert "loss_7" in page
    assert "script-src &#39;sha256-" in page
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_two_recordings_are_compared_on_the_spot(server: Server) -> None:
    page = get(server, "/compare?reference=torch.npz&candidate=paddle.npz")[1]
    assert "NOT ALIGNED: 3 fail; 0 of 3 entries pass" in page
    assert "NOT PROVEN: all 3 entries pass" in get(server, "/compare?reference=torch.npz&candidate=torch.npz")[1]


def test_recording_gives_its_curves_alone_and_beside_another(server: Server) -> None:
    alone = json.loads(get(server, "/recording.json?name=torch.npz")[1])
    assert alone["curves"] == [{"name": "loss_*", "values": [[0, 2], [1, 1], [2, 0]], "other": []}]
    both = json.loads(get(server, "/recording.json?name=torch.npz&with=paddle.npz")[1])
    assert both["curves"][0]["other"] == [[0, 2.5], [1, 1.5], [2, 0.5]]


def test_growing_recording_is_followed(server: Server, folder: Path) -> None:
    recorder = Recorder(folder / "live", provenance=Provenance(framework="torch", seeds={"torch": 0}))

    def step(number: int) -> None:
        recorder.add(f"step{number}/loss/loss", np.array(1.0 / (number + 1)))
        recorder.end_step()

    step(0)
    step(1)
    item = next(one for one in json.loads(get(server, "/items.json")[1]) if one["name"] == "live")
    assert (item["growing"], item["steps"], item["sides"][0]) == (True, 2, "torch")
    found = json.loads(get(server, "/recording.json?name=live")[1])
    assert (found["complete"], found["entries"], len(found["curves"][0]["values"])) == (False, 2, 2)
    assert found["provenance"]["seeds"] == "torch=0"
    step(2)
    assert len(json.loads(get(server, "/recording.json?name=live")[1])["curves"][0]["values"]) == 3
    recorder.close()
    assert json.loads(get(server, "/recording.json?name=live")[1])["complete"] is True
    item = next(one for one in json.loads(get(server, "/items.json")[1]) if one["name"] == "live")
    assert item["growing"] is False


def test_new_and_changed_files_appear(server: Server, folder: Path) -> None:
    assert "later.json" not in get(server, "/items.json")[1]
    classic().save(folder / "later.json")
    assert "later.json" in get(server, "/items.json")[1]
    (folder / "later.json").unlink()
    assert "later.json" not in get(server, "/items.json")[1]


@pytest.mark.parametrize(
    "path",
    [
        "/alignment?name=../secret.npz",
        "/recording?name=../secret.npz",
        "/recording?name=link.npz",
        "/recording?name=/etc/passwd",
        "/recording.json?name=results/first.json",
        "/compare?reference=torch.npz&candidate=../secret.npz",
        "/compare",
        "/../secret.npz",
        "/torch.npz",
        "/nothing",
        "/%2e%2e/secret.npz",
    ],
)
def test_only_what_is_listed_can_be_reached(server: Server, path: str) -> None:
    status, text, _ = get(server, path)
    assert status == 404
    assert "root:" not in text


def test_broken_files_are_named_and_break_nothing(server: Server, folder: Path) -> None:
    (folder / "broken.json").write_text('{"schema": "reprod_log alignment", ')
    (folder / "broken.npz").write_bytes(b"no zip")
    (folder / "plain.npy").write_bytes(b"\x93NUMPY rubbish")
    page = get(server, "/")[1]
    assert "not valid JSON" in page
    status, text, _ = get(server, "/recording.json?name=broken.npz")
    assert status == 422
    assert "broken.npz" in text
    assert get(server, "/recording.json?name=plain.npy")[0] == 422
    assert get(server, "/alignment?name=broken.json")[0] == 422


def test_hostile_names_are_text(server: Server, folder: Path) -> None:
    name = "<img src=x onerror=alert(1)> & \u202e.npz"
    Recording.from_arrays({one: np.ones(1) for one in HOSTILE[:5]}).save(folder / name)
    page = get(server, "/")[1]
    assert "<img" not in page
    assert "\u202e" not in re.sub(r'value="[^"]*"', "", page)
    assert plain(name) in [one["title"] for one in json.loads(get(server, "/items.json")[1])]
    assert get(server, f"/recording?name={quote(name)}")[0] == 200
    found = json.loads(get(server, f"/recording.json?name={quote(name)}")[1])
    assert [one[0] for one in found["keys"]] == [plain(one) for one in HOSTILE[:5]]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "192.168.0.7", ""])
def test_name_of_another_host_is_refused_on_loopback(server: Server, host: str) -> None:
    assert get(server, "/", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1:80", "[::1]:80"])
def test_loopback_names_are_served(server: Server, host: str) -> None:
    assert get(server, "/", Host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_but_reading_is_possible(server: Server, method: str) -> None:
    assert get(server, "/", method=method)[0] == 501


def test_head_answers_without_a_body(server: Server) -> None:
    status, text, headers = get(server, "/", method="HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 1000


def test_token_is_asked_for_and_becomes_a_cookie(folder: Path) -> None:
    for server in running(serving(folder, token="s3cret")):
        assert server.address.endswith("/?token=s3cret")
        for path in ("/", "/items.json", "/recording?name=torch.npz", "/serve.js", "/?token=wrong", "/?token="):
            assert get(server, path)[0] == 403
        assert get(server, "/", Cookie="reprod_log_token=wrong")[0] == 403
        status, _, headers = get(server, "/?token=s3cret")
        assert (status, headers["Location"]) == (303, "/")
        assert "HttpOnly" in headers["Set-Cookie"]
        assert "SameSite=Strict" in headers["Set-Cookie"]
        assert get(server, "/", Cookie=headers["Set-Cookie"].split(";")[0])[0] == 200
        assert get(server, "//evil.example/?token=s3cret")[2]["Location"] == "/evil.example/"


def test_address_that_others_reach_always_has_a_token() -> None:
    assert Access.for_host("127.0.0.1").token == ""
    assert Access.for_host("localhost").token == ""
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org", ""):
        assert len(Access.for_host(host).token) >= 32
    assert Access.for_host("0.0.0.0", "given").token == "given"
    assert not Access("token").allows(host="localhost", cookie="", given="")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("10.0.0.1", False),
     ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("0.0.0.0", False)],
)  # fmt: skip
def test_loopback_is_told_from_the_rest(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_missing_folder_and_taken_port_are_said(folder: Path, server: Server) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        serving(folder / "missing")
    with pytest.raises(UsageError, match="cannot listen"):
        serving(folder, port=server.server_port)


@pytest.mark.parametrize(
    "host", ["[::1].evil.example", "[::1]evil", "[::1]:80.evil", "127.0.0.1:80:evil", "evil[::1]", "[::1", ""]
)
def test_host_that_only_begins_with_an_address_of_this_machine_is_refused(server: Server, host: str) -> None:
    assert not Access().allows(host=host, cookie="", given="")
    assert get(server, "/items.json", Host=host or "evil")[0] == 403
    assert Access().allows(host="[::1]:8642", cookie="", given="")


def test_name_that_is_not_utf_8_can_be_opened(folder: Path, server: Server) -> None:
    (folder / "torch.npz").rename(folder / "caf\udce9.npz")
    assert get(server, "/")[0] == 200
    (name,) = (one["name"] for one in json.loads(get(server, "/items.json")[1]) if one["name"].startswith("caf"))
    for page in ("recording", "recording.json"):
        assert get(server, f"/{page}?name={quote(name)}")[0] == 200
    assert get(server, f"/compare?reference={quote(name)}&candidate=paddle.npz")[0] == 200


def test_single_values_that_are_not_numbers_have_no_curve(folder: Path, server: Server) -> None:
    values = {f"b_{n}": np.array([b"ab"]) for n in range(3)} | {f"d_{n}": np.array(["2020"], "M8[Y]") for n in range(3)}
    np.save(folder / "odd.npy", values, allow_pickle=True)  # type: ignore[arg-type]
    status, text, _ = get(server, "/recording.json?name=odd.npy")
    assert (status, json.loads(text)["curves"]) == (200, [])


def test_a_large_alignment_is_listed_at_once_and_read_in_the_background(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, rendered = threading.Event(), []
    load, render = listing.Alignment.load, html.render

    def slow(path: Path) -> object:
        assert begin.wait(20)
        return load(path)

    monkeypatch.setattr(listing, "_READ_AT_ONCE", 1)
    monkeypatch.setattr(listing.Alignment, "load", slow)
    monkeypatch.setattr(html, "render", lambda *given: rendered.append(given[0]) or render(*given))
    for server in running(serving(folder)):
        first = json.loads(get(server, "/items.json")[1])
        waiting = next(one for one in first if one["kind"] == "alignment")
        assert (waiting["mark"], waiting["headline"], waiting["status"]) == ("…", "being read", "")
        begin.set()
        for _ in range(200):
            found = next(one for one in json.loads(get(server, "/items.json")[1]) if one["kind"] == "alignment")
            if found["status"]:
                break
            time.sleep(0.05)
        assert found["status"] == "FAIL"
        assert len(rendered) == 1
        # The page was made ready with the list.
        assert get(server, f"/alignment?name={quote(found['name'])}")[0] == 200
        assert len(rendered) == 1
