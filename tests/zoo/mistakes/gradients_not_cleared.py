"""Gradients are never cleared."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    def step(model, optimizer, inputs, targets):
        cnn.paddle_loss(model(**inputs), targets).backward()
        optimizer.step()

    return trial.with_candidate_step(step)


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("gradients_kept",),
    words=("cleared",),
    place=("step1/gradient",),
    quick=True,
)
