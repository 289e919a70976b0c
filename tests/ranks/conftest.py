"""Launches that serve the tests of several files."""

import pytest
from made_ranks import launched


@pytest.fixture(scope="session")
def torch_ranks(tmp_path_factory):
    """All runs of train_torch.py on two ranks, those of train_sharded.py included."""
    import train_torch

    folder = tmp_path_factory.mktemp("torchrun")
    return launched("torch.distributed.run", "--standalone", program=train_torch.__file__, folder=folder)


@pytest.fixture(scope="session")
def paddle_ranks(tmp_path_factory):
    """All runs of train_paddle.py on two ranks, those of train_paddle_sharded.py included."""
    import train_paddle

    folder = tmp_path_factory.mktemp("launch")
    options = ("--backend", "gloo", "--log_dir", str(folder / "log"))
    return launched("paddle.distributed.launch", *options, program=train_paddle.__file__, folder=folder)
