"""The loss is scaled by 8 for the backward pass and never unscaled."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    def step(model, optimizer, inputs, targets):
        loss = cnn.paddle_loss(model(**inputs), targets)
        (loss * 8).backward()
        optimizer.step()
        optimizer.clear_grad()

    return trial.with_candidate_step(step)


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("loss_scale",),
    words=("8",),
    place=("loss/loss", "backward", "gradient"),
)
