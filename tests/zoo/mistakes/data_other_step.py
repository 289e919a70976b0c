"""Batches in another order from step 2 on."""

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    seen = []

    def step(model, optimizer, inputs, targets):
        seen.append(inputs)
        given = seen[-2] if len(seen) % 4 == 3 else inputs
        mlp.paddle_loss(model(**given), targets).backward()
        optimizer.step()
        optimizer.clear_grad()

    return trial.with_candidate_step(step)


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("data",),
    words=("batch of step",),
    place=("step2/data",),
)
