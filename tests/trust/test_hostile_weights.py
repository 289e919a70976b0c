"""Weight files of strangers: torch's own format with claims beyond the file, and mutated ones."""

import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.test_readers import mutated, mutation
from reprod_log.errors import ReprodLogError, UnreadableFile
from reprod_log.transfer.files import read_weights
from trust.test_hostile_files import Runs


def test_tensor_that_repeats_one_number_a_billion_times_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1).expand(10**9)}, tmp_path / "w.pth")
    with pytest.raises(UnreadableFile, match="would unfold to 4000000000 bytes"):
        read_weights(tmp_path / "w.pth")


def test_compressed_checkpoint_that_unpacks_to_much_more_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(20_000_000)}, tmp_path / "whole.pth")
    source = zipfile.ZipFile(tmp_path / "whole.pth")
    with source, zipfile.ZipFile(tmp_path / "w.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name))
    with pytest.raises(UnreadableFile, match="would unfold to"):
        read_weights(tmp_path / "w.pth")


def test_lists_that_hold_each_other_are_refused(tmp_path: Path) -> None:
    value: list[object] = []
    for _ in range(60):
        value = [value, value]
    torch.save({"w": torch.zeros(1), "x": value}, tmp_path / "w.pth")
    with pytest.raises(UnreadableFile, match="more items than bytes"):
        read_weights(tmp_path / "w.pth")


def test_weights_that_are_shared_are_read(tmp_path: Path) -> None:
    weight = torch.arange(2000.0)
    torch.save({f"w{n}": weight for n in range(8)}, tmp_path / "w.pth")
    assert len(read_weights(tmp_path / "w.pth")) == 8


@pytest.mark.parametrize("new", [True, False], ids=["archive", "before torch 1.6"])
def test_mutated_checkpoint_is_refused_or_read(tmp_path: Path, new: bool) -> None:
    path = tmp_path / "w.pth"
    torch.save({"w": torch.arange(4.0), "b": torch.ones(2, dtype=torch.int8)}, path, _use_new_zipfile_serialization=new)
    whole = path.read_bytes()
    outcomes = set()

    @settings(max_examples=80, deadline=None)
    @given(st.lists(mutation, min_size=1, max_size=3))
    def holds(changes: list[tuple[int, int, bytes | None]]) -> None:
        path.write_bytes(mutated(whole, changes))
        try:
            outcomes.add(len(read_weights(path)))
        except ReprodLogError:
            outcomes.add(0)

    holds()
    assert 0 in outcomes


@pytest.mark.parametrize("suffix", [".pdparams", ".pth"])
def test_no_code_of_a_weight_file_runs(tmp_path: Path, suffix: str) -> None:
    mark, path = tmp_path / "ran", tmp_path / f"evil{suffix}"
    path.write_bytes(pickle.dumps({"x": Runs(mark)}, 2))
    with pytest.raises(ReprodLogError):
        read_weights(path)
    assert not mark.exists()
    pickle.loads(path.read_bytes())
    assert mark.exists(), "the file would have left its mark"
