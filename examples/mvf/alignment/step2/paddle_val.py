"""Step 2: both accuracies on the mini data set in paddle, saved as metric_paddle.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse

import inputs
import numpy as np
import paddle
from mini_ucf import add_dataset_flag, load_mini_ucf
from models.mvf_paddle import build_model
from recipe_paddle import mean_class_accuracy, top1_accuracy
from settings import Settings, add_flags, from_flags

from reprod_log import ReprodLogger

HERE = Path(__file__).resolve().parent


def normalised(clips: np.ndarray, settings: Settings) -> paddle.Tensor:
    """Returns the clips as the model takes them: (batch, segments, 3, height, width), each colour scaled."""
    pixels = paddle.to_tensor(clips).astype(settings.dtype)
    mean = paddle.to_tensor(settings.pixel_mean, dtype=pixels.dtype)
    std = paddle.to_tensor(settings.pixel_std, dtype=pixels.dtype)
    return ((pixels - mean) / std).transpose([0, 1, 4, 2, 3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    add_dataset_flag(parser)
    flags = parser.parse_args()
    settings = from_flags(flags)

    model = build_model(settings, inputs.load_weights(settings))
    clips, labels = load_mini_ucf(flags.dataset_root, settings)
    with paddle.no_grad():
        logits = paddle.concat([model(normalised(clip[None], settings)) for clip in clips])
    truth = paddle.to_tensor(labels)
    accuracies = {"top1_acc": top1_accuracy(logits, truth), "mean_class_accuracy": mean_class_accuracy(logits, truth)}
    logger = ReprodLogger()
    for name, accuracy in accuracies.items():
        print(f"paddle {name}: {accuracy.item():.4f}")
        logger.add(name, accuracy.numpy())
    logger.save(str(HERE / "metric_paddle.npy"))


if __name__ == "__main__":
    main()
