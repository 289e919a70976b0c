"""Five models, each written for torch and for paddle, with other names, nesting, registration and execution order.

`models_pairs.<name>` has `build_torch()`, `build_paddle()`, `make_inputs(seed)` (arrays by the parameter name of both
forward passes) and `LAYER_COUNT` (layers with parameters, the same on both sides). Building one side imports one
framework.
"""

NAMES = ("bert", "lstm_classifier", "resnet18", "unet", "vit")
