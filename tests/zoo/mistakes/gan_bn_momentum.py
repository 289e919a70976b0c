"""torch's momentum number in the generator."""

from zoo.bases import gan
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate["generator"][1]._momentum = 0.1


MISTAKE = Mistake(
    gan.trial,
    plant,
    rules=("layer_setting", "statistics"),
    words=("momentum", "share"),
    place=("generator.1",),
)
