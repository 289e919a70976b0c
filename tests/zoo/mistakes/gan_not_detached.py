"""The fake image is not detached for the discriminator."""

from zoo.bases import gan
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    def step(models, optimizers, inputs, targets):
        gan.paddle_step(models, optimizers, inputs, targets, detach=False)

    return trial.with_candidate_step(step)


MISTAKE = Mistake(
    gan.trial,
    plant,
    rules=("cut_graph",),
    words=("cut",),
    place=("generator",),
)
