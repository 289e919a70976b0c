"""Every store keeps every kind of entry; opening reads no tensor data."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from reprod_log.errors import NewerFormat, RecordingError, UnreadableFile, UsageError
from reprod_log.messages import Foreign, Name, message
from reprod_log.recording import ModuleInfo, Provenance, Recording, current_provenance, entry_of
from reprod_log.recording.stores import all_stores, load, save

RNG = np.random.default_rng(0)
ARRAYS = {
    "loss_0": np.array(3.5, np.float32),
    "step0/forward/fc#0:output": RNG.normal(size=(3, 4)).astype(np.float32),
    "step0/gradient/fc.weight:raw": RNG.normal(size=(4, 3)),
    "step1/forward/fc#0:output": RNG.normal(size=(3, 4)).astype(np.float16),
    "bfloat16": np.arange(5).astype(ml_dtypes.bfloat16),
    "float8": np.arange(5).astype(ml_dtypes.float8_e4m3fn),
    "odd float8": np.arange(5).astype(ml_dtypes.float8_e4m3b11fnuz),
    "complex64": np.array([[1 + 2j], [3 - 1j]], np.complex64),
    "complex128": np.array([1 + 2j]),
    "integers": np.array([[-1], [2**62]], np.int64),
    "bytes": np.arange(7, dtype=np.uint8),
    "flags": np.array([True, False]),
    "text": np.array(["loss", "Ärger 损失"]),
    "nothing": np.array([None], dtype=object),
    "empty": np.zeros((0, 3), np.float32),
    "big endian": np.arange(4, dtype=">i4"),
    "strided": np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2],
    "fortran": np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
}
LOSSLESS = [".safetensors", ".npz", ""]
NOTE = message("note.recording.stopped", key=Name("step0/loss/loss"), why=Foreign("No space left on device"))


def saved(tmp_path: Path, suffix: str) -> Path:
    recording = Recording(
        entries=tuple(entry_of(key, array) for key, array in ARRAYS.items()),
        provenance=Provenance(framework="torch", framework_version="2.13.0", seeds={"torch": 7}),
        modules=(ModuleInfo("fc", "Linear", "linear", {"weight": (4, 3)}, "torch.nn.Linear"),),
        notes=("a note", NOTE),
    )
    return save(recording, tmp_path / f"recording{suffix}")


def test_notes_are_english_for_readers_of_the_first_edition_and_have_their_ids_beside_them(tmp_path: Path) -> None:
    manifest = saved(tmp_path, "") / "manifest.json"
    written = json.loads(manifest.read_text(encoding="utf-8"))
    assert written["notes"] == ["a note", "recording stopped at 'step0/loss/loss': No space left on device"]
    assert written["note_ids"][0] is None
    assert written["note_ids"][1]["id"] == "note.recording.stopped"
    del written["note_ids"]
    manifest.write_text(json.dumps(written), encoding="utf-8")
    assert load(manifest.parent).notes == tuple(written["notes"])


@pytest.mark.parametrize(
    "damaged",
    [
        "text",
        [None],
        [None, 5],
        [None, {"id": ["a"], "arguments": {}}],
        [None, {"id": "note.measure.sketches", "arguments": {"least": {"number": 1, "form": ".99999999f"}}}],
        [None, {"id": "note.measure.sketches", "arguments": {"least": {"number": "x", "form": ".1f"}}}],
    ],
)
def test_damaged_ids_of_notes_are_refused(damaged: object, tmp_path: Path) -> None:
    manifest = saved(tmp_path, "") / "manifest.json"
    written = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**written, "note_ids": damaged}), encoding="utf-8")
    with pytest.raises(UnreadableFile, match="damaged"):
        load(manifest.parent)


@pytest.mark.parametrize(
    "later",
    [
        {"id": "note.recording.of_a_later_version", "arguments": {}},
        {"id": "note.recording.stopped"},
        {"id": "note.recording.stopped", "arguments": {"key": {"unknown": "x"}, "why": "x"}},
    ],
)
def test_note_of_a_later_version_is_shown_in_english(later: object, tmp_path: Path) -> None:
    manifest = saved(tmp_path, "") / "manifest.json"
    written = json.loads(manifest.read_text(encoding="utf-8"))
    written["note_ids"][1] = later
    manifest.write_text(json.dumps(written), encoding="utf-8")
    assert str(load(manifest.parent).notes[1]) == written["notes"][1]


@pytest.mark.parametrize("suffix", LOSSLESS)
def test_recording_survives_when_saved_and_loaded(tmp_path: Path, suffix: str) -> None:
    loaded = load(saved(tmp_path, suffix))
    assert loaded.keys == tuple(ARRAYS)
    assert loaded.provenance.framework_version == "2.13.0"
    assert loaded.provenance.seeds == {"torch": 7}
    assert loaded.modules[0].parameters == {"weight": (4, 3)}
    assert loaded.notes == ("a note", NOTE)
    assert loaded.complete
    for key, array in ARRAYS.items():
        read = loaded[key].array()
        assert loaded[key].shape == array.shape == read.shape
        if array.dtype.kind not in "UO":
            assert read.dtype.newbyteorder("=") == array.dtype.newbyteorder("="), key
        np.testing.assert_array_equal(read, array)


def test_classic_file_keeps_values_when_saved_and_loaded(tmp_path: Path) -> None:
    loaded = load(saved(tmp_path, ".npy"))
    assert loaded.keys == tuple(ARRAYS)
    for key, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[key].array(), array, err_msg=key)
    # Readers of the classic file may not have ml_dtypes.
    assert loaded["bfloat16"].dtype == "float32"


def test_every_store_is_covered_by_these_tests() -> None:
    assert {suffix for store in all_stores() for suffix in store.SUFFIXES} == {*LOSSLESS, ".npy"}


@pytest.mark.parametrize("suffix", [".safetensors", ""])
def test_opening_maps_the_data_and_reads_none(tmp_path: Path, suffix: str) -> None:
    big = np.zeros(1 << 22, np.float32)
    path = save(Recording.from_arrays({"big": big}), tmp_path / f"big{suffix}")
    array = load(path)["big"].array()
    owner = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    # numpy looks at the file through a memoryview of the map.
    assert type(getattr(owner, "obj", owner)).__name__ == "mmap"
    assert not array.flags.writeable


def test_safetensors_library_reads_what_we_write(tmp_path: Path) -> None:
    from safetensors import safe_open

    with safe_open(saved(tmp_path, ".safetensors"), framework="numpy") as theirs:
        assert set(theirs.keys()) == set(ARRAYS)
        for key in ("step0/gradient/fc.weight:raw", "strided", "integers", "complex64", "flags", "empty"):
            np.testing.assert_array_equal(theirs.get_tensor(key), ARRAYS[key])


def test_file_of_the_safetensors_library_opens(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"b": np.arange(3.0), "a": np.eye(2, dtype=np.float32)}, tmp_path / "theirs.safetensors")
    loaded = load(tmp_path / "theirs.safetensors")
    assert set(loaded.keys) == {"a", "b"}
    np.testing.assert_array_equal(loaded["a"].array(), np.eye(2))


def test_numpy_archive_of_others_opens(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "theirs.npz", x=np.arange(3.0), y=np.array(2))
    loaded = load(tmp_path / "theirs.npz")
    assert loaded.keys == ("x", "y")
    np.testing.assert_array_equal(loaded["x"].array(), [0.0, 1.0, 2.0])


def test_plain_npy_opens_as_one_entry(tmp_path: Path) -> None:
    np.save(tmp_path / "fake_data.npy", np.arange(6.0).reshape(2, 3))
    loaded = load(tmp_path / "fake_data.npy")
    assert loaded.keys == ("array",)
    assert loaded["array"].shape == (2, 3)


def test_nested_classic_dict_is_flattened_with_slashes(tmp_path: Path) -> None:
    np.save(tmp_path / "nested.npy", {"a": {"b": np.ones(2), "c": {"d": np.zeros(1)}}, "e": 3.0})
    assert load(tmp_path / "nested.npy").keys == ("a/b", "a/c/d", "e")


def test_name_without_suffix_finds_the_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "forward.npy", {"x": np.ones(1)})
    assert load(tmp_path / "forward").keys == ("x",)


def test_unknown_key_is_answered_with_near_names(tmp_path: Path) -> None:
    recording = Recording.from_arrays({"logits": np.ones(2)})
    with pytest.raises(UsageError, match="Near names: 'logits'"):
        recording["logit"]


def test_same_key_twice_is_refused() -> None:
    with pytest.raises(RecordingError, match="duplicate key: 'x'"):
        Recording.from_arrays([("x", np.ones(1)), ("x", np.ones(1))])


def test_key_that_is_not_text_is_refused() -> None:
    with pytest.raises(UsageError, match="must be a string, not int"):
        Recording.from_arrays([(3, np.ones(1))])  # type: ignore[list-item]


def test_arrays_are_copied_when_a_recording_is_made() -> None:
    array = np.ones(3)
    recording = Recording.from_arrays({"x": array})
    array[:] = 7
    np.testing.assert_array_equal(recording["x"].array(), 1.0)


def test_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    path = saved(tmp_path, "")
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 99'))
    with pytest.raises(NewerFormat, match="format version 99.*reads up to 1.*Upgrade"):
        load(path)


def test_folder_without_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnreadableFile, match="a folder without a manifest.json"):
        load(tmp_path / "folder")


def test_missing_file_is_answered_with_what_is_there(tmp_path: Path) -> None:
    np.save(tmp_path / "forward_paddle.npy", {"x": np.ones(1)})
    with pytest.raises(UnreadableFile, match=r"no such file.*forward_torch.*similar: 'forward_paddle.npy'"):
        load(tmp_path / "forward_torch.npy")


def test_unknown_suffix_is_refused_when_saving(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="suffix"):
        Recording.from_arrays({"x": np.ones(1)}).save(tmp_path / "x.h5")


def test_provenance_of_this_process_says_when_and_with_what() -> None:
    found = current_provenance(framework="numpy")
    assert found.python.startswith("3.")
    assert found.numpy == np.__version__
    assert found.time.endswith("+00:00")
    assert found.command
    assert found.framework == "numpy"


def test_provenance_differences_name_the_fields() -> None:
    left, right = Provenance(framework="torch", device="cpu"), Provenance(framework="paddle", device="cpu")
    assert left.differences(right) == {"framework": ("torch", "paddle")}
