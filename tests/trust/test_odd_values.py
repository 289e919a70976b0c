"""Values that Python, numpy or a terminal cannot show: refused or shown as what they are, never a traceback."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reprod_log import align
from reprod_log.cli import ALIGNED, NOT_ALIGNED, NOT_PROVEN, WRONG_USE, run
from reprod_log.errors import ReprodLogError, UnreadableFile
from reprod_log.recording import Recording
from reprod_log.recording.stores import load

NO_CHARACTER = np.frombuffer(np.array([0x110000, 0x41], "<u4").tobytes(), "<U2")


def log(path: Path, **values: Any) -> Path:
    np.save(path, values, allow_pickle=True)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("form", ["array", "log", "npz"])
def test_text_with_a_number_that_no_character_has_is_refused(tmp_path: Path, form: str, byteorder: str) -> None:
    text = NO_CHARACTER.astype(NO_CHARACTER.dtype.newbyteorder("<")) if byteorder == "<" else NO_CHARACTER.byteswap()
    text = text.view(text.dtype.newbyteorder(byteorder))
    path = tmp_path / ("x.npz" if form == "npz" else "x.npy")
    if form == "npz":
        np.savez(path, x=text)
    elif form == "log":
        log(path, x=text)
    else:
        np.save(path, text)
    with pytest.raises(UnreadableFile, match="0x110000"):
        [entry.array() for entry in load(path)]
    other = log(tmp_path / "other.npy", x=np.array(["ab"]))
    assert run(["compare", str(path), str(other)]) in (NOT_ALIGNED, WRONG_USE)


@pytest.mark.parametrize("trust", [[], ["--trust"]])
def test_key_that_is_too_long_a_number_to_print_is_refused(tmp_path: Path, trust: list[str]) -> None:
    np.save(tmp_path / "x.npy", {1 << 14_300: np.ones(1)}, allow_pickle=True)  # type: ignore[arg-type]
    assert run(["compare", str(tmp_path / "x.npy"), str(tmp_path / "x.npy"), *trust]) == WRONG_USE


def test_entry_of_the_float64_pass_alone_ends_in_a_verdict() -> None:
    key = "float64@step0/forward/fc#0:output"
    found = align(Recording.from_arrays({key: np.array(["a"] * 3)}), Recording.from_arrays({key: np.ones(3)}))
    assert not found.passed


@pytest.mark.parametrize("value", [np.array([b"ab", b"c"]), b"abc", np.array(["2020-01-01"], "M8[D]"), "text"])
def test_values_that_are_not_numbers_are_shown_without_statistics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: Any
) -> None:
    path = log(tmp_path / "x.npy", x=value)
    assert run(["show", "--values", str(path)]) == 0
    assert load(path)["x"].dtype in capsys.readouterr().out


def test_bytes_compare_for_equality(tmp_path: Path) -> None:
    one, same = (log(tmp_path / f"{name}.npy", x=np.array([b"ab", b"c"])) for name in ("one", "same"))
    other = log(tmp_path / "other.npy", x=np.array([b"ab", b"d"]))
    assert align(one, same).passed
    assert not align(one, other).passed


ESCAPE = "\x1b[2J\x1b[31mALIGNED"


@pytest.mark.parametrize("command", [["show"], ["compare", "{}"], ["report"], ["judge"], ["check"]])
def test_escape_codes_of_a_file_name_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    path = log(tmp_path / f"{ESCAPE}_ref.npy", x=np.ones(2))
    folder = tmp_path / f"{ESCAPE}_folder"
    folder.mkdir()
    target = str(folder if command == ["check"] else path)
    run([command[0], *(part.format(target) for part in command[1:]), target])
    shown = capsys.readouterr()
    assert "ALIGNED" in shown.out + shown.err
    assert "\x1b" not in shown.out + shown.err


def test_escape_codes_of_a_dtype_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.npz"
    described = '{"version": 1, "entries": [{"key": "x", "dtype": "\\u001b[31mfloat32", "shape": [1]}]}'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__reprod_log__.json", described)
        with archive.open("x.npy", "w") as member:
            np.lib.format.write_array(member, np.ones((1, 1)))
    for command in (["show", "--values"], ["compare", str(path)]):
        run([*command, str(path)])
        shown = capsys.readouterr()
        assert "float32" in shown.out + shown.err
        assert "\x1b" not in shown.out + shown.err


def test_file_name_that_is_not_utf_8_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(Path(str(tmp_path / "x.npy")), x=np.ones(2)).rename(tmp_path / "caf\udce9_ref.npy")
    with pytest.raises(ReprodLogError):
        load(tmp_path / "nothing")
    assert run(["show", str(path)]) == 0
    assert run(["compare", str(path), str(path)]) in (ALIGNED, NOT_PROVEN)
    assert "udce9" in capsys.readouterr().out
