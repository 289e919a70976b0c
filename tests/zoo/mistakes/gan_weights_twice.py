"""Generator's last layer loaded with the first's numbers in another order."""

from zoo.bases import gan
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    change_weight(trial.candidate["discriminator"][2].weight, lambda w: w[::-1])


MISTAKE = Mistake(
    gan.trial,
    plant,
    rules=("weights",),
    words=("permuted",),
    place=("discriminator",),
)
