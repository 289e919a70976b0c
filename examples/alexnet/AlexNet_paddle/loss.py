"""Step 3: the cross entropy of one fake picture, saved as loss_paddle.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import inputs
import paddle
from models.alexnet_paddle import build_model
from recipe_paddle import build_loss
from settings import read_settings

from reprod_log import ReprodLogger


def main() -> None:
    settings = read_settings(__doc__)
    model = build_model(settings, inputs.load_weights(settings))
    data = inputs.load_data(settings)
    with paddle.no_grad():
        logits = model(paddle.to_tensor(data["fake_data"]).astype(model.parameters()[0].dtype))
        loss = build_loss()(logits, paddle.to_tensor(data["fake_label"]))
    logger = ReprodLogger()
    logger.add("loss", loss.numpy())
    logger.save(str(Path(__file__).with_name("loss_paddle.npy")))


if __name__ == "__main__":
    main()
