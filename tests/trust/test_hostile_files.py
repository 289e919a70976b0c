"""Files made to hurt: bombs, links, pipes, claims. Each is refused at once, without the memory it asks for."""

import io
import json
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reprod_log import Alignment, ReprodDiffHelper, align
from reprod_log.errors import ReprodLogError, UnreadableFile, UntrustedFile, UsageError
from reprod_log.recording import Recording
from reprod_log.recording.stores import load, save
from reprod_log.verdict import Limit

MEGABYTE = 1 << 20
MARK, STOP = b"(", b"."


@contextmanager
def at_most(megabytes: int) -> Iterator[None]:
    """Fails when the block's peak of memory is above this."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < megabytes * MEGABYTE


def npy(path: Path, stream: bytes, **header: Any) -> Path:
    with open(path, "wb") as file:
        described = {"descr": "|O", "fortran_order": False, "shape": (), **header}
        np.lib.format.write_array_header_1_0(file, described)
        file.write(stream)
    return path


def doubled(levels: int) -> bytes:
    """Pickle code for a tuple that holds the one before twice, so many times: 2^levels leaves in a few bytes."""
    return b"K\x01" + b"2\x86" * levels


def shared(first: bytes, count: int) -> bytes:
    """A pickled dict of `count` keys whose values are all one and the same object."""
    keys = b"".join(b"X" + struct.pack("<I", 6) + f"k{n:05d}".encode() + b"h\x00" for n in range(count))
    return b"\x80\x03" + first + b"q\x000}" + MARK + keys + b"u" + STOP


PICKLES = {
    "hash of a tuple of tuples": b"\x80\x03}" + doubled(60) + b"K\x01s.",
    "hash of a very deep tuple": b"\x80\x03}K\x01" + b"\x85" * 50_000 + b"K\x01s.",
    "name of something outside": b"\x80\x03" + doubled(60) + b"Q.",
    "set of tuples": b"\x80\x04\x8f(" + doubled(60) + b"\x90.",
    "dtype called by a list": b"\x80\x03cnumpy\ndtype\n" + doubled(60) + b"\x85R.",
    "bytes that are only announced": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
    "text that is only announced": b"\x80\x04X" + struct.pack("<I", 0xFFFFFFF0) + b"x.",
    "frame that is only announced": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    "an integer of a million digits": b"\x80\x03\x8b" + struct.pack("<i", 500_000) + b"\x7f" * 500_000 + b".",
    "a call with everything as arguments": b"\x80\x03ccollections\nOrderedDict\n(" + b"N" * 100 + b"tR.",
    "an object made without its class's consent": b"\x80\x03cnumpy\ndtype\n)\x81.",
    "a persistent name": b"Pname\n.",
    "an extension": b"\x82\x01.",
    "five million marks": b"\x80\x03" + MARK * 5_000_000,
    "five million lists": b"\x80\x03" + b"]" * 5_000_000,
    "five million names for one value": b"\x80\x04N" + b"\x94" * 5_000_000,
    "five million tuples around one value": b"\x80\x03N" + b"\x85" * 5_000_000,
    "a value remembered under a number out of order": b"\x80\x03Nr\xff\xff\xff\x00.",
    "a negative number of a remembered value": b"Np0\ng-1\n.",
    "a key of 14,300 bits": b"\x80\x03}\x8b" + struct.pack("<i", 1788) + b"\x7f" * 1788 + b"Ns.",
}  # fmt: skip
ROOMY = {"five million marks", "five million lists", "five million names for one value"}
"""5 MB that may take 64 MB and 16 times their size; the others are refused with less."""


@pytest.mark.parametrize("name", PICKLES)
def test_hostile_pickle_is_refused(tmp_path: Path, name: str) -> None:
    path = npy(tmp_path / "hostile.npy", PICKLES[name])
    with (
        at_most(144 if name in ROOMY else 64 if "five million" in name else 40),
        pytest.raises(ReprodLogError, match=r"hostile\.npy"),
    ):
        load(path)


def test_bytes_that_stand_in_many_places_are_not_copied_for_each(tmp_path: Path) -> None:
    one = b"B" + struct.pack("<I", MEGABYTE) + b"\1" * MEGABYTE
    path = npy(tmp_path / "bytes.npy", shared(one, 20_000))
    with at_most(300), pytest.raises(UnreadableFile):
        load(path)


def test_array_that_stands_in_many_places_stays_one(tmp_path: Path) -> None:
    array = np.arange(MEGABYTE / 8)
    path = tmp_path / "tied.npy"
    np.save(path, {f"k{n}": array for n in range(2000)}, allow_pickle=True)  # type: ignore[arg-type]
    with at_most(60):
        found = ReprodDiffHelper().load_info(path)
    np.testing.assert_array_equal(found["k1999"], array)
    assert found["k0"] is found["k1999"]


def test_list_that_would_become_a_huge_array_is_refused(tmp_path: Path) -> None:
    texts: list[Any] = ["x" * 100_000, *[""] * 20_000]
    for value in (texts, [np.zeros(10_000)] * 10_000):
        np.save(tmp_path / "list.npy", {"x": value}, allow_pickle=True)  # type: ignore[arg-type]
        with at_most(40), pytest.raises(UnreadableFile, match="would become an array of"):
            load(tmp_path / "list.npy")


@pytest.mark.parametrize("descr", ["|S0", "<U0", "|V0"])
def test_elements_of_no_size_are_refused(tmp_path: Path, descr: str) -> None:
    path = npy(tmp_path / "none.npy", b"", descr=descr, shape=(10**12,))
    with at_most(20), pytest.raises(UnreadableFile):
        load(path)


@pytest.mark.parametrize("shape", [[10**9], [1] * 63 + [10**8], [10**6, 0, 10**6], [2**62]])
def test_text_that_claims_more_items_than_it_has_is_refused(tmp_path: Path, shape: list[int]) -> None:
    path = described(tmp_path, {"key": "x", "dtype": "str", "shape": shape}, b'"a"')
    with at_most(20), pytest.raises(UnreadableFile):
        [entry.array() for entry in load(path)]


def test_one_long_text_among_many_is_refused(tmp_path: Path) -> None:
    stored = json.dumps(["x" * 100_000, *[""] * 30_000]).encode()
    path = described(tmp_path, {"key": "x", "dtype": "str", "shape": [30_001]}, stored)
    with at_most(40), pytest.raises(UnreadableFile, match="because one of them is so long"):
        load(path)["x"].array()


def described(folder: Path, entry: dict[str, Any], stored: bytes) -> Path:
    header = {
        "__metadata__": {"reprod_log": json.dumps({"version": 1, "entries": [entry]})},
        "x": {"dtype": "U8", "shape": [len(stored)], "data_offsets": [0, len(stored)]},
    }
    text = json.dumps(header).encode()
    path = folder / "claims.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + stored)
    return path


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("write", ["alignment", "manifest", "safetensors", "npz"])
def test_deeply_nested_json_is_refused(tmp_path: Path, write: str, opening: bytes) -> None:
    content = opening * 100_000
    if write == "alignment":
        (tmp_path / "a.json").write_bytes(content)
        read: Callable[[], object] = lambda: Alignment.load(tmp_path / "a.json")  # noqa: E731
    elif write == "manifest":
        (tmp_path / "rec").mkdir()
        (tmp_path / "rec" / "manifest.json").write_bytes(content)
        read = lambda: load(tmp_path / "rec")  # noqa: E731
    elif write == "safetensors":
        (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(content)) + content)
        read = lambda: load(tmp_path / "a.safetensors")  # noqa: E731
    else:
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("__reprod_log__.json", content)
        read = lambda: load(tmp_path / "a.npz")  # noqa: E731
    with at_most(60), pytest.raises(UnreadableFile, match="not valid JSON"):
        read()


def test_archive_that_unpacks_to_much_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array(member, np.zeros(8_600_000))
    with at_most(20), pytest.raises(UnreadableFile, match="would unpack from"):
        load(path)


def test_all_members_of_an_archive_share_one_allowance(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(20):
            with archive.open(f"x{number}.npy", "w") as member:
                np.lib.format.write_array(member, np.zeros(1_000_000))
    with at_most(20), pytest.raises(UnreadableFile, match="would unpack from"):
        load(path)
    assert len(load(path, trust=True)) == 20


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archive_in_a_compression_that_numpy_does_not_write_is_refused_unless_trusted(
    tmp_path: Path, method: int
) -> None:
    path = tmp_path / "other.npz"
    with zipfile.ZipFile(path, "w", method) as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array(member, np.zeros(10))
    with pytest.raises(UnreadableFile, match=r"savez_compressed.*trust=True"):
        load(path)
    np.testing.assert_array_equal(load(path, trust=True)["x"].array(), np.zeros(10))


def test_members_that_lie_over_each_other_are_refused(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("a.npy", "b.npy"):
            with archive.open(name, "w") as member:
                np.lib.format.write_array(member, np.zeros(1000))
    size = struct.pack("<I", archive.getinfo("a.npy").compress_size)
    path = tmp_path / "over.npz"
    path.write_bytes(content.getvalue().replace(size, struct.pack("<I", 10_000)))
    with pytest.raises(UnreadableFile, match="more than the file has"):
        load(path)


def test_archive_that_says_less_than_it_unpacks_to_is_refused(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array(member, np.zeros(8_600_000))
    size = struct.pack("<I", archive.getinfo("x.npy").file_size)
    path = tmp_path / "bomb.npz"
    path.write_bytes(content.getvalue().replace(size, struct.pack("<I", 5000)))
    with at_most(20), pytest.raises(UnreadableFile):
        [entry.array() for entry in load(path)]


def recording(folder: Path) -> Path:
    return save(Recording.from_arrays({f"step{n}/loss/loss": np.ones(3) * n for n in range(2)}), folder / "rec")


@pytest.mark.parametrize("what", ["shard", "shards", "manifest.json"])
def test_link_out_of_a_recording_is_refused_unless_trusted(tmp_path: Path, what: str) -> None:
    path = recording(tmp_path)
    inside = path / "shards" / "000000.safetensors" if what == "shard" else path / what
    inside.rename(tmp_path / "elsewhere")
    inside.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedFile, match=r"link out of its recording.*trust=True"):
        load(path)
    assert len(load(path, trust=True)) == 2


def test_link_to_a_whole_recording_opens(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(recording(tmp_path))
    assert len(load(tmp_path / "link")) == 2


def test_circle_of_links_is_refused(tmp_path: Path) -> None:
    path = recording(tmp_path)
    (path / "shards" / "000009.safetensors").symlink_to("000009.safetensors")
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["shards"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UnreadableFile):
        load(path)


@pytest.mark.parametrize(
    "name", ["../../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "x\\y.safetensors"]
)
def test_shard_that_is_named_by_a_path_is_refused(tmp_path: Path, name: str) -> None:
    path = recording(tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["shards"] = [name]
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UnreadableFile, match="not of paths"):
        load(path)


def test_shard_that_does_not_belong_to_the_recording_is_not_read(tmp_path: Path) -> None:
    path = recording(tmp_path)
    other = save(Recording.from_arrays({"step9/loss/loss": np.ones(1)}), tmp_path / "other")
    (other / "shards" / "000000.safetensors").rename(path / "shards" / "000007.safetensors")
    assert load(path).keys == ("step0/loss/loss", "step1/loss/loss")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipe_does_not_make_a_reader_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(UnreadableFile, match="device or pipe"):
        load(tmp_path / "pipe.npy")
    path = recording(tmp_path)
    (path / "shards" / "000000.safetensors").unlink()
    os.mkfifo(path / "shards" / "000000.safetensors")
    found = load(path)
    assert not found.complete
    assert found.keys == ("step1/loss/loss",)


@pytest.mark.parametrize("name", ["os.system", "../metrics", "", "..", "kernel", "mean_abs.os", "__init__"])
def test_metric_of_a_file_is_looked_up_and_never_imported_by_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no metric"):
        Limit(name, 1.0)
    made = align(Recording.from_arrays({"x": np.ones(2)}), Recording.from_arrays({"x": np.ones(2)}))
    data = json.loads(made.save(tmp_path / "a.json").read_text())
    data["policy"]["limits"][0]["metric"] = name
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(ReprodLogError):
        Alignment.load(tmp_path / "a.json")


def test_saved_alignment_cannot_claim_its_verdict(tmp_path: Path) -> None:
    made = align(Recording.from_arrays({"x": np.ones(2)}), Recording.from_arrays({"x": np.zeros(2)}))
    data = json.loads(made.save(tmp_path / "a.json").read_text())
    data |= {"status": "PASS", "passed": True, "first_divergence": None}
    for one in data["judgements"]:
        one["status"] = "PASS"
    (tmp_path / "a.json").write_text(json.dumps(data))
    assert not Alignment.load(tmp_path / "a.json").passed


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "fewer than no elements": {"count": -5},
    "more elements than the shape has": {"count": 3},
    "negative differences": {"max_abs": -1.0, "mean_abs": -1.0, "rmse": -1.0, "min_abs": -1.0},
    "a negative relative error": {"rel_l2": -1.0},
    "none differ, but by something": {"differing": 0},
    "a largest difference below the mean": {"max_abs": 1e-9},
    "no difference between different elements": {"max_abs": 0.0, "mean_abs": 0.0, "rmse": 0.0, "differing": 0},
    "fewer than no NaN": {"nonfinite_mismatched": -1},
    "more NaN than elements": {"nan_both": 3},
    "more beyond the limit than there are": {"beyond_limit": 3},
    "a least value above the largest": {"reference": {"min": 2.0, "max": 1.0}},
    "a negative spread": {"candidate": {"std": -1.0}},
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_numbers_of_a_saved_alignment_that_no_measurement_gives_are_refused(tmp_path: Path, name: str) -> None:
    sides = (Recording.from_arrays({"x": np.array([1.0, value])}) for value in (1.0, 2.0))
    path = align(*sides).save(tmp_path / "a.json")
    data = json.loads(path.read_text())
    measured = data["comparison"]["rows"][0]["measurement"]
    for field, value in CONTRADICTIONS[name].items():
        measured[field] = {**measured[field], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(data))
    with pytest.raises(UnreadableFile, match="damaged"):
        Alignment.load(path)


class Runs:
    """Would leave a mark if it were unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_no_code_of_a_file_runs_unless_trusted(tmp_path: Path, suffix: str) -> None:
    mark, path = tmp_path / "ran", tmp_path / f"evil{suffix}"
    if suffix == ".npy":
        np.save(path, {"x": Runs(mark)}, allow_pickle=True)  # type: ignore[arg-type]
    else:
        np.savez(path, x=np.array([Runs(mark)], dtype=object))
    with pytest.raises(ReprodLogError):
        load(path)
    with pytest.raises(ReprodLogError):
        ReprodDiffHelper().load_info(path)
    assert not mark.exists()
    if suffix == ".npy":
        load(path, trust=True)
        assert mark.exists()
