"""The examples of docs/frameworks run as they stand."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from blocks import ROOT, blocks

PAGES = sorted((ROOT / "docs" / "frameworks").glob("*.md"))
OURS = "make test-frameworks runs it"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run_as_they_stand(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("batch.npz", x=np.ones((3, 8), np.float32))
    ran = 0
    for block in blocks(page):
        if block.remarks.get("not run") != OURS:
            continue
        ran += 1
        if block.language == "python":
            exec(compile(block.text, block.place, "exec"), {"__name__": "page"})
        else:
            command = block.text.removeprefix("$ ").strip()
            words = shlex.split(command.replace("reprod ", f"{sys.executable} -m reprod_log ", 1))
            subprocess.run(words, check=True, capture_output=True)
    assert ran or page.stem in ("index", "mindspore")
