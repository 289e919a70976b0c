"""Step 2: top-1 accuracy on sixteen made pictures, saved as metric_paddle.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import inputs
import paddle
from models.alexnet_paddle import build_model
from recipe_paddle import top1
from settings import read_settings

from reprod_log import ReprodLogger


def main() -> None:
    settings = read_settings(__doc__)
    model = build_model(settings, inputs.load_weights(settings))
    data = inputs.load_data(settings)
    with paddle.no_grad():
        logits = model(paddle.to_tensor(data["metric_data"]).astype(model.parameters()[0].dtype))
        accuracy = top1(logits, paddle.to_tensor(data["metric_label"]))
    print(f"top1 {accuracy.item():.4f}")
    logger = ReprodLogger()
    logger.add("top1", accuracy.numpy())
    logger.save(str(Path(__file__).with_name("metric_paddle.npy")))


if __name__ == "__main__":
    main()
