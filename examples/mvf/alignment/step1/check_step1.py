"""Compares the logits; the report is forward_diff.log."""

import sys
from pathlib import Path

from reprod_log import ReprodDiffHelper

HERE = Path(__file__).resolve().parent


def main() -> int:
    helper = ReprodDiffHelper()
    torch_info = helper.load_info(str(HERE / "forward_torch.npy"))
    paddle_info = helper.load_info(str(HERE / "forward_paddle.npy"))
    helper.compare_info(torch_info, paddle_info)
    result = helper.report(diff_method="mean", diff_threshold=1e-6, path=str(HERE / "forward_diff.log"))
    return 0 if result else 1


if __name__ == "__main__":
    sys.exit(main())
