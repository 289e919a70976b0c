"""Query and key weights exchanged."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    layer = trial.candidate.layers[0]
    query, key = layer.query.weight.numpy(), layer.key.weight.numpy()
    layer.query.weight.set_value(key)
    layer.key.weight.set_value(query)


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("weights",),
    words=("swapped",),
    place=("layers.0.query", "layers.0.key"),
)
