"""Makes the golden files with the real reprod_log 1.0.1, to which ours is compared.

Run in an environment of its own (same import name as ours):  pip install reprod_log==1.0.1 paddlepaddle numpy
    python tests/classic/golden/make.py
"""

import contextlib
import io
import logging
from pathlib import Path

import numpy as np

from reprod_log import ReprodDiffHelper, ReprodLogger

HERE = Path(__file__).parent
METHODS = {"mean": "mean", "max": "max", "min": "min", "all": "all", "list": ["max", "min"]}


def arrays(side: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    noise = np.random.default_rng(side + 10)

    def near(values: np.ndarray, scale: float) -> np.ndarray:
        return (values + scale * noise.normal(size=values.shape)).astype(values.dtype)

    return {
        "logits": near(rng.normal(size=(4, 1000)).astype(np.float32), 1e-6),
        "loss_0": np.array(np.float32(6.9077) + np.float32(side * 9.5367431640625e-07)),
        "loss_1": np.array([2.5 + side * 1e-9]),
        "features": near(rng.normal(size=(2, 64, 7, 7)).astype(np.float32), 3e-7),
        "length": np.array(1281167),
        "labels": np.arange(8) + side,
        "double": near(rng.normal(size=37), 1e-12),
        "spectrum": near(rng.normal(size=(5, 5)), 1e-9).astype(np.complex64) * (1 + 1j),
        "equal": np.ones((3, 3), np.float32),
    }


def main() -> None:
    for side, name in enumerate(("torch", "paddle")):
        logger = ReprodLogger()
        for key, value in arrays(side).items():
            logger.add(key, value)
        logger.save(str(HERE / f"forward_{name}.npy"))
    nested = [{"encoder": {key: value for key, value in arrays(side).items() if key[0] == "l"}} for side in (0, 1)]
    helper = ReprodDiffHelper()
    info = [helper.load_info(str(HERE / f"forward_{name}.npy")) for name in ("torch", "paddle")]
    for title, method in METHODS.items():
        write(helper, info, method, HERE / f"diff_{title}.log")
    write(helper, nested, "mean", HERE / "diff_nested.log")


def write(helper: ReprodDiffHelper, info: list[dict], method: object, path: Path) -> None:
    # 1.0.1 leaves its handlers on the root logger, so that the next report would be written twice.
    for handler in logging.getLogger("root").handlers[:]:
        logging.getLogger("root").removeHandler(handler)
    helper.compare_info(*info)
    with contextlib.redirect_stdout(io.StringIO()):
        helper.report(diff_method=method, diff_threshold=1e-6, path=str(path))


if __name__ == "__main__":
    main()
