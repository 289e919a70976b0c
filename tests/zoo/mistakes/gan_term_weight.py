"""One term of the loss has another weight."""

from zoo.bases import gan
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    def step(models, optimizers, inputs, targets):
        gan.paddle_step(models, optimizers, inputs, targets, scale=0.5)

    return trial.with_candidate_step(step)


MISTAKE = Mistake(
    gan.trial,
    plant,
    rules=("loss_function",),
    words=("another weight",),
    place=("loss", "backward", "gradient"),
)
