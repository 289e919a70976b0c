"""Recordings behind URLs: the same entries as from a file here, and no more bytes than are asked for."""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from reprod_log import align
from reprod_log.cli import run
from reprod_log.errors import MissingPackage, UnreadableFile, UsageError
from reprod_log.recording import Recording
from reprod_log.recording.stores import load, save

NAMES = ("recording.safetensors", "recording.npz", "recording.npy", "recording")
LARGE = 600_000


@pytest.fixture(scope="module")
def recording() -> Recording:
    rng = np.random.default_rng(0)
    arrays = {f"step{i}/forward/layer{i}#0:output": rng.standard_normal((4, 5)).astype(np.float32) for i in range(3)}
    arrays["step3/forward/large#0:output"] = rng.standard_normal(LARGE).astype(np.float32)
    arrays["step3/parameter/word:raw"] = np.array(["a", "bc"])
    return Recording.from_arrays(arrays)


class Shelf:
    """A web server over a folder that answers for ranges and counts what it sends."""

    def __init__(self, folder: Path, *, ranges: bool) -> None:
        self.sent = 0
        shelf = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, *, body: bool) -> None:
                path = folder / self.path.lstrip("/")
                if not path.is_file():
                    self.send_error(404)
                    return
                data = path.read_bytes()
                found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                part = data[int(found[1]) : int(found[2]) + 1] if found and ranges else data
                self.send_response(206 if found and ranges else 200)
                if ranges:
                    self.send_header("Accept-Ranges", "bytes")
                if found and ranges:
                    self.send_header("Content-Range", f"bytes {found[1]}-{found[2]}/{len(data)}")
                self.send_header("Content-Length", str(len(part)))
                self.end_headers()
                if body:
                    shelf.sent += len(part)
                    self.wfile.write(part)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[functools.partial[Shelf]]:
    made: list[Shelf] = []

    def make(*, ranges: bool = True) -> Shelf:
        made.append(Shelf(tmp_path, ranges=ranges))
        return made[-1]

    yield make
    for shelf in made:
        shelf.server.shutdown()
        shelf.server.server_close()


def in_memory(source: Path, name: str) -> str:
    """The file or folder copied into fsspec's memory, and its URL."""
    from upath import UPath

    target = UPath(f"memory://recordings-of-tests/{name}")
    for file in [source] if source.is_file() else [one for one in source.rglob("*") if one.is_file()]:
        place = target if source.is_file() else target / file.relative_to(source).as_posix()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    return str(target)


def assert_same(got: Recording, wanted: Recording) -> None:
    assert got.keys == wanted.keys
    for key in wanted.keys:
        assert got[key].dtype == wanted[key].dtype
        np.testing.assert_array_equal(got[key].array(), wanted[key].array())


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_the_same_when_it_is_read_by_url(name: str, recording: Recording, tmp_path: Path) -> None:
    path = save(recording, tmp_path / name)
    for url in (in_memory(path, name), path.as_uri(), Path(path.as_uri())):
        assert_same(load(url), recording)
    assert align(in_memory(path, name), path).passed


# A zip archive is read from its end, which a server without ranges cannot give.
@pytest.mark.parametrize(
    ("name", "ranges"), [(name, ranges) for name in NAMES for ranges in (True, False) if ranges or name[-1] != "z"]
)
def test_a_recording_is_the_same_when_a_web_server_has_it(
    name: str, ranges: bool, recording: Recording, tmp_path: Path, shelves: functools.partial[Shelf]
) -> None:
    save(recording, tmp_path / name)
    assert_same(load(f"{shelves(ranges=ranges).url}/{name}"), recording)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(".npy")])
def test_one_entry_is_fetched_alone_when_others_are_large(
    name: str, recording: Recording, tmp_path: Path, shelves: functools.partial[Shelf]
) -> None:
    save(recording, tmp_path / name)
    shelf = shelves()
    far = load(f"{shelf.url}/{name}")
    np.testing.assert_array_equal(far[recording.keys[1]].array(), recording[recording.keys[1]].array())
    assert 0 < shelf.sent < LARGE * 4 // 2


def test_compare_takes_urls_when_called_from_the_command_line(
    recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(recording, tmp_path / "here.safetensors")
    url = in_memory(path, "there.safetensors")
    assert run(["compare", str(path), url]) == 0
    assert url in capsys.readouterr().out


def test_the_package_is_named_when_a_url_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingPackage, match="pip install s3fs"):
        load("s3://bucket/recording")
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(MissingPackage, match=r"pip install 'reprod_log\[remote\]'"):
        load("memory://recording")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense://x/y", "not a kind of URL that fsspec knows"),
        ("memory://nowhere/recording.npz", "nothing is at memory://nowhere/recording.npz"),
        ("memory://", "nothing is at memory://"),
        ("http://127.0.0.1:9/recording.npz", "127.0.0.1:9/recording.npz"),
    ],
)
def test_what_is_wrong_is_said_when_a_url_leads_nowhere(url: str, message: str) -> None:
    with pytest.raises((UsageError, UnreadableFile), match=message):
        load(url)


def test_a_remote_file_that_is_no_recording_is_refused_with_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing to see here")
    with pytest.raises(UnreadableFile, match="starts with b'nothing to see"):
        load(in_memory(tmp_path / "notes.txt", "notes.txt"))


def test_saving_to_a_url_is_refused(recording: Recording) -> None:
    with pytest.raises(UsageError, match="not to memory://"):
        save(recording, "memory://x/recording.npz")
