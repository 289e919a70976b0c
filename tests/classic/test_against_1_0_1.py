"""The classic face against golden files that the real reprod_log 1.0.1 wrote (tests/classic/golden/make.py)."""

import re
from pathlib import Path

import numpy as np
import pytest

from reprod_log import ReprodDiffHelper, ReprodLogger

GOLDEN = Path(__file__).parent / "golden"
DATE = re.compile(r"^\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\]", re.MULTILINE)
METHODS = {"mean": "mean", "max": "max", "min": "min", "all": "all", "list": ["max", "min"]}
LINE = re.compile(r"(.*diff: check passed: )(True|False)(, value: )(.*)")


def undated(text: str) -> list[str]:
    return DATE.sub("[date]", text).splitlines()


def golden_pair() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    helper = ReprodDiffHelper()
    return helper.load_info(GOLDEN / "forward_torch.npy"), helper.load_info(str(GOLDEN / "forward_paddle.npy"))


def mended(line: str) -> str:
    """1.0.1 let one failed statistic fail all later ones of the same key; each stands by itself here."""
    found = LINE.fullmatch(line)
    if found is None:
        return line
    return f"{found[1]}{float(found[4]) <= 1e-6}{found[3]}{found[4]}"


@pytest.mark.parametrize("title", METHODS)
def test_report_text_equals_1_0_1(tmp_path: Path, capsys: pytest.CaptureFixture[str], title: str) -> None:
    helper = ReprodDiffHelper()
    helper.compare_info(*golden_pair())
    helper.report(diff_method=METHODS[title], diff_threshold=1e-6, path=str(tmp_path / "new" / "folder" / "diff.log"))
    written = (tmp_path / "new" / "folder" / "diff.log").read_text()
    assert undated(written) == [mended(line) for line in undated((GOLDEN / f"diff_{title}.log").read_text())]
    assert capsys.readouterr().out == written


def test_nested_report_text_equals_1_0_1(tmp_path: Path) -> None:
    infos = [{"encoder": {key: value for key, value in info.items() if key[0] == "l"}} for info in golden_pair()]
    helper = ReprodDiffHelper()
    helper.compare_info(*infos)
    helper.report(path=tmp_path / "diff.log")
    assert undated((tmp_path / "diff.log").read_text()) == undated((GOLDEN / "diff_nested.log").read_text())


def test_file_of_1_0_1_loads_in_order_with_its_dtypes() -> None:
    info, _ = golden_pair()
    plain = np.load(GOLDEN / "forward_torch.npy", allow_pickle=True).tolist()
    assert list(info) == list(plain)
    for key, value in plain.items():
        assert info[key].dtype == value.dtype
        np.testing.assert_array_equal(info[key], value)
        # Scripts change what they loaded; 1.0.1 gave arrays of their own.
        assert info[key].flags.writeable


def test_our_file_loads_the_way_1_0_1_loads(tmp_path: Path) -> None:
    logger = ReprodLogger()
    for key, value in golden_pair()[0].items():
        logger.add(key, value)
    logger.save(str(tmp_path / "sub" / "folder" / "log"))
    # This is 1.0.1's load_info, word for word in effect.
    loaded = np.load(tmp_path / "sub" / "folder" / "log.npy", allow_pickle=True).tolist()
    assert isinstance(loaded, dict)
    for key, value in logger.data.items():
        assert type(loaded[key]) is np.ndarray
        assert loaded[key].dtype == value.dtype
        np.testing.assert_array_equal(loaded[key], value)


def test_our_file_asks_for_numpy_only(tmp_path: Path) -> None:
    import pickletools

    import ml_dtypes

    logger = ReprodLogger()
    logger.add("bf16", np.ones(3, ml_dtypes.bfloat16))
    logger.add("x", np.ones(3, np.float32))
    logger.save(tmp_path / "log.npy")
    content = (tmp_path / "log.npy").read_bytes()
    stream = content[content.index(b"\n") + 1 :]
    globals_wanted = {arg for op, arg, _ in pickletools.genops(stream) if op.name in ("GLOBAL", "STACK_GLOBAL")}
    assert {str(one).split(".")[0].split(" ")[0] for one in globals_wanted if one} <= {"numpy"}
