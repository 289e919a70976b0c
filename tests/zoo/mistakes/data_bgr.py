"""Channels the other way round."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    def step(model, optimizer, inputs, targets):
        cnn.paddle_loss(model(**{**inputs, "x": inputs["x"].flip(1)}), targets).backward()
        optimizer.step()
        optimizer.clear_grad()

    return trial.with_candidate_step(step)


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("data",),
    words=("channels",),
    place=("data",),
    quick=True,
)
