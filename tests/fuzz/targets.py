"""One target per reader: takes any bytes, lets nothing out but what a reader may not do.

A target returns quietly when the bytes were read or refused with an error of `reprod_log.errors`. Any other exception,
an array far larger than the bytes it came from, or a hang is a defect, and leaves the target as an exception.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import numpy as np

from fuzz.changed import changed
from reprod_log.alignment import Alignment, align
from reprod_log.classic.diff_helper import ReprodDiffHelper
from reprod_log.cli import INTERNAL_ERROR
from reprod_log.cli.app import exit_code_of
from reprod_log.errors import ReprodLogError
from reprod_log.recording import Key, Recording
from reprod_log.recording.pickles import read_pickle
from reprod_log.recording.stores import load
from reprod_log.report.formats import json as json_format
from reprod_log.report.formats import junit, markdown, text
from reprod_log.transfer.files import read_weights
from reprod_log.verdict import Limit

PART = b"\xff--\xff"
"""Separates the parts of an input that describes a folder or an archive."""
SEEDS = Path(__file__).with_name("corpus")
ROOM = 1 << 20
"""Bytes that reading may cost beyond sixteen times the input."""

Target = Callable[[bytes], None]


def _folder() -> tempfile.TemporaryDirectory[str]:
    # In memory where the system has such a place: the disk would be the slowest part of a run.
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="reprod_fuzz.", dir=memory if os.access(memory, os.W_OK) else None)


_PLACE = _folder()
_HOME = Path(_PLACE.name)


def _file(name: str, content: bytes) -> Path:
    path = _HOME / name
    path.write_bytes(content)
    return path


def read_whole(path: Path, size: int) -> Recording | None:
    """Open the recording and read every entry; None when it was refused."""
    try:
        recording = load(path)
    except ReprodLogError:
        return None
    for entry in recording:
        str(entry.key)
        with contextlib.suppress(ReprodLogError):
            check_size(entry.array(), size)
    recording.provenance.to_dict()
    return recording


def check_size(array: np.ndarray, size: int) -> None:
    """Raise when an array is far larger than the bytes it was read from."""
    if array.nbytes > 16 * size + ROOM:
        raise MemoryError(f"{size} bytes became an array of {array.nbytes}")


def pickle(data: bytes) -> None:
    with contextlib.suppress(ReprodLogError):
        read_pickle(memoryview(data), where="input")


def npy(data: bytes) -> None:
    read_whole(_file("input.npy", data), len(data))


def classic(data: bytes) -> None:
    """The classic face on a `.npy` whose header is right, so that the pickle inside gets the attention."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|O", "fortran_order": False, "shape": ()})
    path = _file("classic.npy", head.getvalue() + data)
    read_whole(path, len(data))
    with contextlib.suppress(ReprodLogError):
        ReprodDiffHelper().load_info(path)


def npz(data: bytes) -> None:
    """Either a raw archive, or members given one after the other (so that checksums fit)."""
    if data[:1] != b"m":
        read_whole(_file("input.npz", data), len(data))
        return
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number, part in enumerate(data[1:].split(PART)[:8]):
            name = "__reprod_log__.json" if number == 0 and part[:1] == b"{" else f"m{number}.npy"
            archive.writestr(zipfile.ZipInfo(name), part)
    read_whole(_file("input.npz", content.getvalue()), len(data))


def safetensors(data: bytes) -> None:
    read_whole(_file("input.safetensors", data), len(data))


def described(data: bytes) -> None:
    """A safetensors file whose header is sound and whose description of the entries is the input."""
    read_whole(_file("input.safetensors", _shard(data)), len(data))


def _shard(data: bytes) -> bytes:
    description, _, payload = data.partition(PART)
    tensors = {
        name: {"dtype": "U8", "shape": [len(part)], "data_offsets": [0, 0]}
        for name, part in zip("xyz", payload.split(PART), strict=False)
    }
    position = 0
    for entry in tensors.values():
        entry["data_offsets"] = [position, position + entry["shape"][0]]
        position += entry["shape"][0]
    header = {"__metadata__": {"reprod_log": description.decode("utf-8", "replace")}, **tensors}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(payload.split(PART)[: len(tensors)])


def folder(data: bytes) -> None:
    """A manifest and up to three shards."""
    manifest, *shards = data.split(PART + PART)
    place = _HOME / "recording"
    (place / "shards").mkdir(parents=True, exist_ok=True)
    (place / "manifest.json").write_bytes(manifest)
    for number in range(3):
        shard = place / "shards" / f"{number:06d}.safetensors"
        if number < len(shards):
            shard.write_bytes(_shard(shards[number]))
        else:
            shard.unlink(missing_ok=True)
    read_whole(place, len(data))


def alignment(data: bytes) -> None:
    """A saved alignment: read, judged again, and shown."""
    try:
        found = Alignment.load(_file("alignment.json", data))
    except ReprodLogError:
        return
    for render in (json_format.render, text.render, markdown.render, junit.render):
        render(found)


def alignment_parts(data: bytes) -> None:
    """A saved alignment with parts of it replaced; the first byte chooses which alignment."""
    saved = sorted(path.read_bytes() for path in SEEDS.joinpath("alignment").glob("[a-z]*ed"))
    alignment(changed(saved[data[0] % len(saved)] if data else saved[0], data[1:]))


def description_parts(data: bytes) -> None:
    """The description of a recording with parts of it replaced, read and compared with itself."""
    text, _, payload = SEEDS.joinpath("described", "three").read_bytes().partition(PART)
    made = changed(text, data) + PART + payload
    described(made)
    compared(made)


def pdparams(data: bytes) -> None:
    with contextlib.suppress(ReprodLogError):
        for array in read_weights(_file("input.pdparams", data)).values():
            check_size(array, len(data))


def compared(data: bytes) -> None:
    """What was read is compared with itself: nothing a file says about its modules may break that."""
    with contextlib.suppress(ReprodLogError):
        recording = load(_file("compared.safetensors", _shard(data)))
        align(recording, recording)


def names(data: bytes) -> None:
    """Keys and limits, which come from files and from the command line."""
    given = data.decode("utf-8", "surrogateescape")
    key = Key.parse(given)
    # Numbers in a key may be written with zeros in front; what it is must not change.
    if astuple(Key.parse(str(key))) != astuple(key):
        raise AssertionError(f"{given!r} became {key!r}, then {Key.parse(str(key))!r}")
    keys, _, value = given.partition("|")
    # With a metric that exists: looking for the plugin that might have another one takes long.
    if not set("/=:") & set(value):
        with contextlib.suppress(ReprodLogError):
            Limit.parse(f"{keys}/mean_abs:{value}")


COMMANDS = {
    ".npy": (["show", "--values"], ["compare", ""]),
    ".npz": (["show", "--values", "--all"], ["compare", ""]),
    ".safetensors": (["show", "--values"], ["compare", "", "--allow-unmatched", "*"]),
    ".json": (["judge"], ["report", "-o", str(_HOME / "report.md")]),
}
"""What is typed for a file of each kind; an empty argument is the file a second time."""


def commands(data: bytes) -> None:
    """A file given to the command itself, whose exit code 3 is a defect. The first byte chooses its kind."""
    suffix = sorted(COMMANDS)[(data[0] if data else 0) % len(COMMANDS)]
    path = _file(f"typed{suffix}", _shard(data[1:]) if suffix == ".safetensors" else data[1:])
    for words in COMMANDS[suffix]:
        arguments = [words[0], str(path), *(word or str(path) for word in words[1:])]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            code = exit_code_of(arguments)
        if code == INTERNAL_ERROR:
            raise AssertionError(f"reprod {' '.join(words)} ended with 3: {errors.getvalue()}")


_ALL = (
    pickle, npy, classic, npz, safetensors, described, folder, alignment, pdparams, compared, names, alignment_parts,
    description_parts, commands,
)  # fmt: skip
TARGETS: dict[str, Target] = {one.__name__: one for one in _ALL}
