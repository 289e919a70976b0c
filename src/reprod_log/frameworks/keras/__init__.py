"""Keras 3 on its backends jax, tensorflow and torch: calls are recorded, gradients come from the backend's own."""

from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.keras.programs import KerasPrograms, KerasTensors

FRAMEWORK = Framework("keras", KerasTensors(), programs=KerasPrograms())
