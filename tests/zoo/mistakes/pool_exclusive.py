"""Average pooling that does not count the padding."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.pool.exclusive = True


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting",),
    words=("count_include_pad",),
    place=("pool",),
    quick=True,
)
