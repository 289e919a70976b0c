"""Half of the loss is backpropagated."""

from zoo.bases import lstm
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_loss(lambda outputs, targets: 0.5 * lstm.paddle_loss(outputs, targets))


MISTAKE = Mistake(
    lstm.trial,
    plant,
    rules=("loss_scale",),
    words=("0.5",),
    place=("loss/loss", "backward", "gradient"),
)
