"""The workflow and the hook of docs/testing.md, run as far as that is possible without their services."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from blocks import ROOT

from reprod_log import Recording

TRAIN = """import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), RATE)
for _ in range(2):
    loss = model(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def examples(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(encoding="utf-8"), re.DOTALL)


def reprod(line: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The line as a shell would run it, with the program that is tested."""
    name, *arguments = shlex.split(line)
    assert name == "reprod"
    return subprocess.run(
        [sys.executable, "-m", "reprod_log", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples find: a script, its baseline, and two recordings that match."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "train.py").write_text(TRAIN.replace("RATE", "0.1"))
    assert reprod("reprod baseline record baselines/net train.py", folder).returncode == 0
    for side in ("ref", "cand"):
        Recording.from_arrays({"logits": np.arange(6.0) / 7}).save(folder / "baselines" / side)
    return folder


def test_commands_of_the_workflow_pass_and_write_their_artifacts(repository: Path) -> None:
    workflow: Any = yaml.safe_load(examples("yaml")[0])
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    lines = [step["run"] for step in steps if step.get("run", "").startswith("reprod")]
    assert len(lines) == 2
    summary = repository / "summary.md"
    for line in lines:
        done = reprod(line, repository, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary))
        # The two recordings are of one program: nothing is proven about a port, and nothing differs.
        assert done.returncode in (0, 4), done.stdout + done.stderr
        assert "::notice" in done.stdout or "::warning" in done.stdout
    assert summary.read_text().count("## ") >= 2
    uploaded = [step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")]
    assert all((repository / name).is_file() for name in (*uploaded, "junit.xml"))


def test_hook_of_pre_commit_fails_when_the_program_computes_something_else(repository: Path) -> None:
    (hook,) = yaml.safe_load(examples("yaml")[1])["repos"][0]["hooks"]
    assert re.search(hook["files"], "train.py")
    (repository / "train.py").write_text(TRAIN.replace("RATE", "0.2"))
    assert reprod(hook["entry"], repository).returncode == 1
