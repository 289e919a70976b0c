"""The scheduler is one step ahead."""

from zoo.bases import lstm
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    def make(model):
        optimizer, schedule = lstm.paddle_optimizer(model)
        schedule.step()
        return optimizer, schedule

    return trial.with_candidate_optimizer(make)


MISTAKE = Mistake(
    lstm.trial,
    plant,
    rules=("learning_rate",),
    words=("off by one", "0.9 times"),
    place=("/lr/",),
)
