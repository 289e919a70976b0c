"""Makes fake_data.npy (token ids) and fake_label.npy, the same for both sides and both sizes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from settings import Settings, read_settings

HERE = Path(__file__).resolve().parent


def gen_fake_data(settings: Settings) -> None:
    """Writes the two files."""
    rng = np.random.default_rng(settings.data_seed)
    ids = rng.integers(1, settings.id_limit, (settings.batch, settings.length), dtype=np.int64)
    np.save(HERE / "fake_data.npy", ids)
    np.save(HERE / "fake_label.npy", np.array([0, 1, 1, 0], dtype=np.int64))


if __name__ == "__main__":
    gen_fake_data(read_settings(__doc__))
