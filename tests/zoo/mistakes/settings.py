"""Layers with another setting, another class, or left in another mode."""

import paddle

from zoo.bases import bert, cnn, gan, unet
from zoo.plants import eval_mode, layer, method, setting
from zoo.trial import Mistake, Trial


def narrow_forward(self, x):
    if x.dtype == paddle.float64:
        return paddle.nn.Linear.forward(self, x)
    rounded = x + (x.astype("bfloat16").astype(x.dtype) - x).detach()
    return paddle.nn.Linear.forward(self, rounded)


def running_variance_as_paddle_has_it(trial: Trial) -> None:
    for norm in (trial.candidate.bn1, trial.candidate.bn2):
        norm._forward_post_hooks.clear()


def average_pooling(trial: Trial) -> None:
    trial.candidate.pool = paddle.nn.AvgPool2D(3, stride=1, padding=1)


def leaky_activation(trial: Trial) -> None:
    trial.candidate.act1 = paddle.nn.LeakyReLU(0.01)


def reflecting_convolution():
    return paddle.nn.Conv2D(8, 8, 3, padding=1, bias_attr=False, padding_mode="reflect")


def convolution_padded_on_one_side():
    """Below and to the right only, as "same" padding with a stride has it elsewhere."""
    return paddle.nn.Conv2D(8, 12, 3, stride=2, padding=[0, 1, 0, 1])


SETTING = ("layer_setting",)
STATISTICS = ("layer_setting", "statistics")

MISTAKES = (
    # Upsampling with aligned corners.
    Mistake("align_corners", cnn.trial, setting("up", align_corners=True), SETTING, ("align_corners",), ("up",)),
    # One layer computed in bfloat16.
    Mistake(
        "bfloat16_layer", cnn.trial, method("fc1", paddle.nn.Linear, forward=narrow_forward),
        ("precision_cut",), ("bfloat16",), ("fc1",),
    ),
    # Running variance with the divisor N.
    Mistake(
        "bn_biased_variance", cnn.trial, running_variance_as_paddle_has_it,
        ("statistics",), ("biased",), ("bn1.running_var",),
    ),
    Mistake("bn_eps", cnn.trial, setting("bn1", _epsilon=1e-3), SETTING, ("eps",), ("bn1",), quick=True),
    Mistake("bn_eval", cnn.trial, eval_mode("bn2"), ("statistics", "mode"), ("eval",), ("bn2",)),
    # Batch norm on global statistics.
    Mistake(
        "bn_frozen", cnn.trial, setting("bn1", _use_global_stats=True),
        STATISTICS, ("use_global_stats", "frozen"), ("bn1",),
    ),
    # torch's momentum number copied.
    Mistake(
        "bn_momentum", cnn.trial, setting("bn2", _momentum=0.1), STATISTICS, ("momentum", "share"), ("bn2",)
    ),
    Mistake(
        "conv_padding_mode", cnn.trial, layer("conv2", reflecting_convolution),
        (*SETTING, "operator"), ("padding_mode", "pad3d"), ("conv2",),
    ),
    # A convolution without dilation, and with less padding.
    Mistake(
        "dilation", unet.trial, setting("fuse", _dilation=[1, 1], _padding=1, _updated_padding=[1, 1]),
        SETTING, ("dilation",), ("fuse",),
    ),
    Mistake("dropout_eval", cnn.trial, eval_mode("drop"), ("mode",), ("dropout", "eval"), ("drop",)),
    # Dropout without upscaling in training.
    Mistake(
        "dropout_mode", cnn.trial, setting("drop", mode="downscale_in_infer"),
        ("layer_setting", "constant_factor"), ("mode", "times"), ("drop",),
    ),
    Mistake("dropout_rate", cnn.trial, setting("drop", p=0.5), SETTING, ("p of drop",), ("drop",)),
    # torch's momentum number in the generator.
    Mistake(
        "gan_bn_momentum", gan.trial, setting("generator.1", _momentum=0.1),
        STATISTICS, ("momentum", "share"), ("generator.1",),
    ),
    Mistake(
        "gan_slope", gan.trial, setting("discriminator.1", _negative_slope=0.1),
        SETTING, ("negative_slope",), ("discriminator",),
    ),
    # GELU by its tanh approximation.
    Mistake("gelu_tanh_module", cnn.trial, setting("gelu", _approximate=True), SETTING, ("approximate",), ("gelu",)),
    Mistake("group_count", unet.trial, setting("norm2", _num_groups=2), SETTING, ("num_groups",), ("norm2",)),
    Mistake(
        "leaky_slope", cnn.trial, setting("act2", _negative_slope=0.01),
        SETTING, ("negative_slope",), ("act2",),
    ),
    Mistake("ln_eps", cnn.trial, setting("norm", _epsilon=1e-3), SETTING, ("eps",), ("norm",)),
    # 1e-5 in place of 1e-12.
    Mistake(
        "ln_eps_bert", bert.trial, setting("layers.1.norm1", _epsilon=1e-5), SETTING, ("eps",), ("layers.1.norm1",)
    ),
    Mistake("model_eval", cnn.trial, eval_mode(""), ("statistics", "mode"), ("eval",), ("bn1",)),
    # An embedding that trains its padding row.
    Mistake("padding_idx", bert.trial, setting("words", _padding_idx=-1), SETTING, ("padding_idx",), ("words",)),
    Mistake(
        "padding_one_sided", unet.trial, layer("down", convolution_padded_on_one_side),
        SETTING, ("padding of down",), ("down",),
    ),
    # Average pooling that does not count the padding.
    Mistake(
        "pool_exclusive", cnn.trial, setting("pool", exclusive=True),
        SETTING, ("count_include_pad",), ("pool",), quick=True,
    ),
    # Average in place of max pooling.
    Mistake(
        "pool_kind", unet.trial, average_pooling, ("other_layer", "operator"), ("pool",), ("pool", "forward/up#0:input")
    ),
    # LeakyReLU in place of ReLU.
    Mistake(
        "relu_for_leaky", cnn.trial, leaky_activation,
        ("other_layer", "operator"), ("leakyrelu", "leaky_relu"), ("act1", "conv2", "bn2"),
    ),
)  # fmt: skip
