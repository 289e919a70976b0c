"""calibrate: what rounding alone does, measured and not assumed."""

from reprod_log.calibrate.evidence import Evidence
from reprod_log.calibrate.noise_floor import NoiseFloor, calibrate, layer_alone

__all__ = ["Evidence", "NoiseFloor", "calibrate", "layer_alone"]
