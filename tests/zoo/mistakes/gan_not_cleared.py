"""The discriminator keeps the generator's gradients."""

from zoo.bases import gan
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    def step(models, optimizers, inputs, targets):
        gan.paddle_step(models, optimizers, inputs, targets, clear=False)

    return trial.with_candidate_step(step)


MISTAKE = Mistake(
    gan.trial,
    plant,
    rules=("gradients_kept",),
    words=("cleared",),
    place=("gradient/discriminator",),
)
