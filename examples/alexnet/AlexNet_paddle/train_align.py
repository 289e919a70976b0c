"""Step 5: top-1 accuracy on held-out pictures after a short training, saved as train_align_paddle.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dataclasses import replace

import inputs
import paddle
from models.alexnet_paddle import build_model
from recipe_paddle import build_loss, build_optimizer, top1
from settings import read_settings

from reprod_log import ReprodLogger


def main() -> None:
    # He's start: with the default one a network this deep does not begin to learn in so few batches.
    settings = replace(read_settings(__doc__), init="he08")
    # Eval mode all through: with dropout on, each framework draws its own masks.
    model = build_model(settings, inputs.load_weights(settings))
    optimizer = build_optimizer(model, settings, lr=settings.train_lr)
    criterion = build_loss()
    count = settings.train_batches * settings.train_batch_size
    pictures, labels = inputs.training_pictures(settings, count, stream=1)
    for start in range(0, count, settings.train_batch_size):
        batch = slice(start, start + settings.train_batch_size)
        image = paddle.to_tensor(pictures[batch]).astype(model.parameters()[0].dtype)
        loss = criterion(model(image), paddle.to_tensor(labels[batch]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()

    pictures, labels = inputs.training_pictures(settings, settings.held_out, stream=2)
    with paddle.no_grad():
        accuracy = top1(model(paddle.to_tensor(pictures).astype(model.parameters()[0].dtype)), paddle.to_tensor(labels))
    print(f"last loss {loss.item():.6f}, top1 {accuracy.item():.4f}")
    logger = ReprodLogger()
    logger.add("top1", accuracy.numpy())
    logger.save(str(Path(__file__).with_name("train_align_paddle.npy")))


if __name__ == "__main__":
    main()
