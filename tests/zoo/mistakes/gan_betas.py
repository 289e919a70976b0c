"""The discriminator's Adam with the default beta1."""

from zoo.bases import gan
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda models: gan.paddle_optimizers(models, discriminator={"beta1": 0.9}))


MISTAKE = Mistake(
    gan.trial,
    plant,
    rules=("optimizer_setting",),
    words=("beta1",),
    place=("update", "optimizer/", "parameter"),
)
