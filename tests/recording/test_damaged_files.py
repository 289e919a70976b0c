"""Damaged and hostile files get a clear error that names the file; no code runs and nothing passes."""

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from reprod_log.errors import ReprodLogError, UnreadableFile, UntrustedFile
from reprod_log.recording import Recording
from reprod_log.recording.stores import load, save


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo ran > ran.txt",)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".npy"])
def test_truncated_file_is_named_wherever_it_was_cut(tmp_path: Path, suffix: str) -> None:
    whole = save(Recording.from_arrays({"x": np.arange(50.0), "y": np.ones(3, np.int32)}), tmp_path / f"whole{suffix}")
    content = whole.read_bytes()
    cut = tmp_path / f"cut{suffix}"
    for length in range(0, len(content) - 1, 7):
        cut.write_bytes(content[:length])
        with pytest.raises(UnreadableFile, match="cut"):
            [entry.array() for entry in load(cut)]


def test_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("evil.npy", {"x": Evil()}, allow_pickle=True)
    with pytest.raises(UntrustedFile, match=r"evil.npy asks Python for 'posix.system'.*trust=True"):
        load("evil.npy")
    assert not Path("ran.txt").exists()


def test_trust_lets_a_pickle_be_read_whole(tmp_path: Path) -> None:
    from fractions import Fraction

    np.save(tmp_path / "mine.npy", {"x": np.ones(2), "y": np.array([Fraction(1, 3)], dtype=object)})
    with pytest.raises(UntrustedFile, match=r"fractions\.Fraction"):
        load(tmp_path / "mine.npy")
    assert load(tmp_path / "mine.npy", trust=True).keys == ("x", "y")


@pytest.mark.parametrize(
    "setstate",
    [{"__code__": 1}, (None, {"__defaults__": (1,)}), {"call": print}],
)
def test_pickle_cannot_change_our_stand_ins(tmp_path: Path, setstate: object) -> None:
    # GLOBAL numpy dtype, state, BUILD: would set attributes on whatever the global gave.
    stream = b"\x80\x03cnumpy\ndtype\n" + pickle.dumps(setstate, 3)[2:-1] + b"b."
    stream = stream.replace(b"c__builtin__\nprint\n", b"K\x01").replace(b"cbuiltins\nprint\n", b"K\x01")
    path = tmp_path / "build.npy"
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": ()})
        file.write(stream)
    with pytest.raises(UnreadableFile, match="tries to change"):
        load(path)


def npy_with_pickle(path: Path, stream: bytes) -> Path:
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": ()})
        file.write(stream)
    return path


def test_pickle_that_unfolds_to_billions_of_items_is_refused(tmp_path: Path) -> None:
    value: object = []
    for _ in range(60):
        value = [value, value]
    with pytest.raises(UnreadableFile, match="more items than bytes"):
        load(npy_with_pickle(tmp_path / "laughs.npy", pickle.dumps({"x": value}, 3)))


def test_pickle_that_refers_to_itself_is_refused(tmp_path: Path) -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(UnreadableFile, match="nested deeper"):
        load(npy_with_pickle(tmp_path / "cycle.npy", pickle.dumps({"x": value}, 3)))


def test_array_that_claims_more_than_the_file_has_is_refused(tmp_path: Path) -> None:
    whole = pickle.dumps({"x": np.arange(3, dtype=np.float64)}, 3)
    stream = whole.replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85")
    assert stream != whole
    with pytest.raises(UnreadableFile, match="does not have its"):
        load(npy_with_pickle(tmp_path / "claims.npy", stream))


def test_plain_npy_with_a_claimed_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.npy"
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**12,)})
    with pytest.raises(UnreadableFile, match="needs 4000000000000 bytes"):
        load(path)


@pytest.mark.parametrize("numpy_core", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_files_of_old_and_new_numpy_open(tmp_path: Path, numpy_core: str) -> None:
    stream = pickle.dumps({"x": np.arange(3.0), "s": np.float64(2.5)}, 2)
    for name in ("numpy.core.multiarray", "numpy._core.multiarray"):
        stream = stream.replace(f"c{name}\n".encode(), f"c{numpy_core}\n".encode())
    loaded = load(npy_with_pickle(tmp_path / "old.npy", stream))
    np.testing.assert_array_equal(loaded["x"].array(), [0, 1, 2])
    assert loaded["s"].array() == 2.5


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols_give_the_same_values(tmp_path: Path, protocol: int) -> None:
    arrays = {
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(5000.0),
        "o": np.array([None, 1.5]),
    }
    loaded = load(npy_with_pickle(tmp_path / "p.npy", pickle.dumps(arrays, protocol)))
    for key, array in arrays.items():
        np.testing.assert_array_equal(loaded[key].array(), array)


def test_key_that_is_not_text_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "keys.npy", {0.5: np.ones(1)})
    with pytest.raises(ReprodLogError, match=r"keys.npy: the key 0.5 is a float, not text"):
        load(tmp_path / "keys.npy")


def test_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    for suffix in (".npy", ".npz", ".safetensors", ".dat"):
        path = tmp_path / f"text{suffix}"
        path.write_text("[2021/10/13 13:03:05] root INFO: loss_0: not a recording at all")
        with pytest.raises(UnreadableFile, match=path.name):
            load(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "does not fit"),
        ({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, "impossible"),
        ({"x": {"dtype": "F32", "shape": [10**30], "data_offsets": [0, 4]}}, "impossible"),
        ({"x": {"dtype": "Q7", "shape": [1], "data_offsets": [0, 4]}}, "Q7"),
        ({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, "does not fit|hole"),
        ({"x": [1, 2]}, "not described"),
        ({"__metadata__": {"a": 1}}, "text to text"),
        ([], "not a JSON object"),
    ],
)
def test_safetensors_header_that_lies_is_refused(tmp_path: Path, header: object, message: str) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "lies.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 4)
    with pytest.raises(UnreadableFile, match=message):
        load(path)


def test_zip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array(member, np.zeros(20_000_000, np.float64))
    with pytest.raises(UnreadableFile, match="would unpack from"):
        load(path)


def test_shard_that_points_outside_its_recording_is_refused(tmp_path: Path) -> None:
    path = save(Recording.from_arrays({"x": np.ones(2)}), tmp_path / "rec")
    shard = next((path / "shards").iterdir())
    content = shard.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    described = json.loads(header["__metadata__"]["reprod_log"])
    described["entries"][0]["at"] = ["../../secret.safetensors", "x"]
    header["__metadata__"]["reprod_log"] = json.dumps(described)
    text = json.dumps(header).encode()
    shard.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    assert "not part of this recording" in str(load(path).notes[0])
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["digests"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UnreadableFile, match="should be in shard"):
        load(path)


def test_missing_shard_is_said_and_the_rest_is_readable(tmp_path: Path) -> None:
    path = save(Recording.from_arrays({f"step{i}/loss/loss": np.ones(1) for i in range(3)}), tmp_path / "rec")
    (path / "shards" / "000001.safetensors").unlink()
    loaded = load(path)
    assert loaded.keys == ("step0/loss/loss", "step2/loss/loss")
    assert not loaded.complete
    assert "1 of 3 shards are missing" in str(loaded.notes[0])


def test_zip_without_arrays_is_not_taken_for_an_empty_recording(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pth", "w") as archive:
        archive.writestr("archive/data.pkl", b"weights")
    with pytest.raises(UnreadableFile, match="zip archive without arrays.*archive/data.pkl"):
        load(tmp_path / "model.pth")
