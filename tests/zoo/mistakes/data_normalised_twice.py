"""Normalised twice."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    def step(model, optimizer, inputs, targets):
        cnn.paddle_loss(model(**{**inputs, "x": (inputs["x"] - 0.5) / 0.25}), targets).backward()
        optimizer.step()
        optimizer.clear_grad()

    return trial.with_candidate_step(step)


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("data",),
    words=("normalised",),
    place=("data",),
)
