"""ONNX: graphs, run by ONNX Runtime as they are and by the reference evaluator of onnx in float64. No gradients."""

from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.onnx.programs import OnnxPrograms, OnnxTensors

FRAMEWORK = Framework("onnx", OnnxTensors(), programs=OnnxPrograms())
