"""Lists the ReLU inputs that are positive on one side and not on the other, the first ten in the order of computing.

Run both `train.sh --record-relu` first. Such an element has a gradient on one side and none on the other, so a
difference of rounding size in its value becomes one of gradient size in the weights.
"""

from pathlib import Path

import numpy as np

from reprod_log import ReprodDiffHelper

HERE = Path(__file__).resolve().parent
SHOWN = 10


def main() -> None:
    helper = ReprodDiffHelper()
    torch_info = helper.load_info(str(HERE / "AlexNet_torch" / "relu_inputs_torch.npy"))
    paddle_info = helper.load_info(str(HERE / "AlexNet_paddle" / "relu_inputs_paddle.npy"))
    lines = []
    for key, reference in torch_info.items():
        candidate = paddle_info[key]
        for index in np.argwhere((reference > 0) != (candidate > 0)):
            where = tuple(int(i) for i in index)
            lines.append(f"{key}{list(where)}: torch {reference[where]:+.3e}, paddle {candidate[where]:+.3e}")
    for line in lines[:SHOWN]:
        print(line)
    if len(lines) > SHOWN:
        print(f"and {len(lines) - SHOWN} more")
    total = sum(array.size for array in torch_info.values())
    print(f"{len(lines)} of {total} ReLU inputs lie on different sides of zero")


if __name__ == "__main__":
    main()
