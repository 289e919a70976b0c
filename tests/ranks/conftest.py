"""Launches that serve the tests of several files."""

import os
from pathlib import Path

import pytest
from filelock import FileLock
from made_ranks import launched


def once(tmp_path_factory: pytest.TempPathFactory, name: str, *command: str, program: str) -> Path:
    """What a launch wrote. The processes that run the tests share it: whoever comes first launches, the others wait."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "launched").exists():
            folder.mkdir(exist_ok=True)
            launched(*command, "--log_dir", str(folder / "log"), program=program, folder=folder)
            (folder / "launched").touch()
    return folder


@pytest.fixture(scope="session")
def torch_ranks(tmp_path_factory):
    """All runs of train_torch.py on two ranks, those of train_sharded.py included."""
    import train_torch

    return once(tmp_path_factory, "torchrun", "torch.distributed.run", "--standalone", program=train_torch.__file__)


@pytest.fixture(scope="session")
def paddle_ranks(tmp_path_factory):
    """All runs of train_paddle.py on two ranks, those of train_paddle_sharded.py included."""
    import train_paddle

    command = ("paddle.distributed.launch", "--backend", "gloo")
    return once(tmp_path_factory, "launch", *command, program=train_paddle.__file__)
