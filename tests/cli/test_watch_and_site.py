"""`reprod watch` and `reprod site`."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from reprod_log import align
from reprod_log.cli import run

SCRIPT = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
net(torch.ones(2, 4) * {factor})
"""


@pytest.mark.usefixtures("torch_is_loaded")
def test_watch_records_and_compares_again_when_the_script_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    port = tmp_path / "port" / "train.py"
    port.parent.mkdir()
    for file, factor in ((tmp_path / "train.py", 1), (port, 2)):
        file.write_text(SCRIPT.format(factor=factor))
    assert run(["run", "-o", "ref", "train.py"]) == 0
    last = tmp_path / "watched" / "last.json"

    def fix() -> None:
        for _ in range(1200):
            if last.exists():
                break
            time.sleep(0.1)
        port.write_text(SCRIPT.format(factor=1) + "# fixed\n")

    threading.Thread(target=fix).start()
    code = run(["watch", "-o", "watched", "--plain", "--rounds", "2", "ref", str(port)])
    out = capfd.readouterr().out
    assert "NOT ALIGNED" in out
    assert "since" in out
    assert code in (0, 4)


def test_watch_names_a_script_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "ref.npz", x=np.ones(2))
    assert run(["watch", str(tmp_path / "ref.npz"), str(tmp_path / "absent.py")]) == 2
    assert "absent.py is not a file" in capsys.readouterr().err


def test_site_has_a_page_for_every_saved_alignment(tmp_path: Path) -> None:
    for name, factor in (("one", 1.0), ("two", 1.5)):
        paths = [tmp_path / name / f"{side}.npz" for side in ("ref", "cand")]
        paths[0].parent.mkdir()
        for path, times in zip(paths, (1.0, factor), strict=True):
            np.savez(path, x=np.arange(5.0) * times, y=np.ones(3))
        align(*paths).save(tmp_path / name / "last.json")
    assert run(["site", str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    index = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    pages = sorted(path.name for path in (tmp_path / "out" / "index_steps").glob("*.html"))
    assert len(pages) == 2
    assert "1 of 2 runs pass" in index
    assert all(f"index_steps/{name}" in index for name in pages)


def test_site_without_alignments_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["site", str(tmp_path)]) == 2
    assert "--json FILE" in capsys.readouterr().err
