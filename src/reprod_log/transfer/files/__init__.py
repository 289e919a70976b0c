"""Weights from file to file: torch checkpoints and safetensors to paddle's .pdparams and back."""
