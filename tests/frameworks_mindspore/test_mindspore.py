"""MindSpore: recorded in an environment of its own, compared here with torch. `make test-mindspore` builds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reprod_log import Status, align, load

HERE = Path(__file__).parent
THEIRS = os.environ.get("MINDSPORE_PYTHON", "")


@pytest.fixture(scope="module")
def torch_side(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torch")
    command = [
        sys.executable,
        "-m",
        "reprod_log",
        "run",
        "--float64",
        "-o",
        "rec",
        str(HERE / "torch_net.py"),
        "net.npz",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def recorded(torch_side, folder, mistake=""):
    assert THEIRS, "MINDSPORE_PYTHON is the interpreter of MindSpore's environment; make test-mindspore sets it"
    command = [THEIRS, str(HERE / "net.py"), str(torch_side / "net.npz"), str(folder / "rec"), mistake]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "rec"


def test_right_port_is_aligned_by_the_reference_s_float64(torch_side, tmp_path):
    theirs = recorded(torch_side, tmp_path)
    found = align(torch_side / "rec", theirs)
    assert found.status is Status.PASS, str(found)
    phases = {one.key.phase for one in found.verdict.judgements}
    assert phases >= {"forward", "loss", "backward", "gradient", "lr", "update", "parameter", "optimizer"}
    # MindSpore has no convolution in float64: the evidence is the reference's alone, and the report tells.
    assert {str(one.evidence) for one in found.verdict.judgements if one.key.phase == "forward"} == {
        "reference in float64"
    }
    assert load(theirs).provenance.framework == "mindspore"


@pytest.mark.parametrize(
    ("mistake", "path"),
    [("eps", "bn"), ("slope", "act"), ("gelu", "gelu"), ("padding", "conv"), ("rate", "optimizer")],
)
def test_wrong_port_is_placed(torch_side, tmp_path, mistake, path):
    found = align(torch_side / "rec", recorded(torch_side, tmp_path, mistake))
    assert found.status is Status.FAIL, str(found)
    assert found.verdict.first_divergence.key.path == path, str(found)
