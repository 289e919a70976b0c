"""What a model computes between its layers, and what it gives no gradient to."""

import paddle
import paddle.nn.functional as PF

from zoo.bases import bert, cnn, lstm, mlp, resnet, unet
from zoo.plants import method
from zoo.trial import Mistake


def block_activated_before_the_sum(self, x):
    y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
    return self.join(PF.relu(y), x if self.short is None else self.short(x))


def not_scaled(self, scores):
    return scores


def joined_the_other_way_round(self, y, skip):
    return paddle.concat([skip, y], 1)


def branch_without_gradient(self, x):
    return cnn.PaddleNet.branch(self, x.detach())


def flat_without_gradient(self, x):
    return x.flatten(1).detach()


def activated_by_relu(self, x):
    return PF.relu(x)


def flat_with_channels_last(self, x):
    return x.transpose([0, 2, 3, 1]).flatten(1)


class Gate(paddle.autograd.PyLayer):
    """A gate whose backward pass is written by hand, and forgets a factor."""

    @staticmethod
    def forward(ctx, x):
        y = PF.sigmoid(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensor()
        return grad * y


def gate_by_hand(self, y):
    return Gate.apply(y)


def gate_of_straight_lines(self, y):
    return PF.hardsigmoid(y)


def activated_by_approximation(self, x):
    return PF.gelu(x, approximate=True)


def not_masked(self, scores, mask):
    return scores


def masked_the_other_way_round(self, scores, mask):
    return bert.PaddleLayer.masked(self, scores, 1.0 - mask)


def last_with_a_logarithm_of_zero(self, y):
    return mlp.PaddleMlp.last(self, y) + 0 * paddle.log(y - y)


def last_token(self, x):
    return x[:, -1]


def positions_from_one_on(self, ids):
    return (paddle.arange(ids.shape[1]) + 1).clip(max=6)


def sum_without_gradient(self, x, y):
    return x.detach() + y


def no_sum(self, x, y):
    return y


def backwards(self, x):
    return x[:, ::-1]


def last_by_gelu(self, y):
    return PF.gelu(y)


def weights_over_queries(self, scores):
    return PF.softmax(scores, axis=-2)


def squashed_by_sigmoid(self, x):
    return PF.sigmoid(x)


OPERATOR = ("between_layers", "operator")
WHOLE_MODEL = "isolated@step0/forward/#0"

MISTAKES = (
    # The activation of a residual block before the addition in place of after it.
    Mistake(
        "activation_before_sum", resnet.trial,
        method("blocks.2", resnet.PaddleBlock, forward=block_activated_before_the_sum),
        ("operator",), ("inside blocks.2",), ("blocks.2", "gap"),
    ),
    # Attention scores not scaled.
    Mistake(
        "attention_scale", bert.trial, method("layers.0", bert.PaddleLayer, scaled=not_scaled),
        OPERATOR, ("div", "scale", "times", "sqrt"), ("layers.0",), quick=True,
    ),
    # A skip connection joined the other way round.
    Mistake(
        "concat_order", unet.trial, method("", unet.PaddleUnet, join=joined_the_other_way_round),
        OPERATOR, ("cat", "order", "permut"), ("fuse", WHOLE_MODEL),
    ),
    # A branch whose gradient is cut.
    Mistake(
        "detached_branch", cnn.trial, method("", cnn.PaddleNet, branch=branch_without_gradient),
        ("cut_graph",), ("cut",), ("act1", "bn1", "backward/#0", "gradient"), quick=True,
    ),
    # The trunk cut before the head.
    Mistake(
        "detached_trunk", cnn.trial, method("", cnn.PaddleNet, flat=flat_without_gradient),
        ("cut_graph",), ("cut", "no gradient"), ("up", "pool", "conv", "bn", "backward", "gradient"),
    ),
    # ReLU in place of ELU.
    Mistake(
        "elu_for_activation", lstm.trial, method("", lstm.PaddleReader, activate=activated_by_relu),
        OPERATOR, ("relu",), ("head", WHOLE_MODEL),
    ),
    # Flattened with channels last.
    Mistake(
        "flatten_order", cnn.trial, method("", cnn.PaddleNet, flat=flat_with_channels_last),
        OPERATOR, ("another order", "permut", "transpos"), ("fc1", "drop", "cnn", WHOLE_MODEL),
    ),
    # A backward pass written by hand that forgets a factor; the report names the file.
    Mistake(
        "gate_backward", mlp.trial, method("", mlp.PaddleMlp, gate=gate_by_hand),
        ("wrong_backward",), ("gate, graphs.py",), ("backward", "gradient"),
    ),
    # A hard sigmoid in place of a sigmoid.
    Mistake(
        "gate_hard", mlp.trial, method("", mlp.PaddleMlp, gate=gate_of_straight_lines),
        OPERATOR, ("sigmoid",), ("third", WHOLE_MODEL),
    ),
    # GELU by its tanh approximation, as a function.
    Mistake(
        "gelu_tanh", bert.trial, method("layers.1", bert.PaddleLayer, activate=activated_by_approximation),
        OPERATOR, ("gelu",), ("layers.1",),
    ),
    # The padding mask is ignored.
    Mistake(
        "mask_ignored", bert.trial, method("layers.0", bert.PaddleLayer, masked=not_masked),
        OPERATOR, ("mask", "add", "mul"), ("layers.0",),
    ),
    # The padding mask with the wrong polarity.
    Mistake(
        "mask_inverted", bert.trial, method("layers.0", bert.PaddleLayer, masked=masked_the_other_way_round),
        OPERATOR, ("mask", "sub", "add", "mul"), ("layers.0",),
    ),
    # A logarithm of zero.
    Mistake(
        "nan_from_log", mlp.trial, method("", mlp.PaddleMlp, last=last_with_a_logarithm_of_zero),
        ("not_finite",), ("nan", "finite"), ("third", WHOLE_MODEL),
    ),
    # The last token pooled instead of the first.
    Mistake(
        "pool_last", bert.trial, method("", bert.PaddleBert, pool=last_token),
        OPERATOR, ("getitem", "slice", "index"), ("pooler", WHOLE_MODEL),
    ),
    # Positions that start at one.
    Mistake(
        "positions_shifted", bert.trial, method("", bert.PaddleBert, positions=positions_from_one_on),
        OPERATOR, ("places", "input"), ("places",),
    ),
    # A residual connection cut in the backward pass.
    Mistake(
        "residual_detached", bert.trial, method("layers.0", bert.PaddleLayer, residual=sum_without_gradient),
        ("cut_graph",), ("cut",), ("layers", "backward"),
    ),
    # A residual connection left out.
    Mistake(
        "residual_missing", bert.trial, method("layers.0", bert.PaddleLayer, residual=no_sum),
        OPERATOR, ("add", "resid"), ("layers.0",),
    ),
    # The sequence reversed between two recurrent layers.
    Mistake(
        "reversed_sequence", lstm.trial, method("", lstm.PaddleReader, between=backwards),
        OPERATOR, ("order", "revers", "permut"), ("gru",),
    ),
    # GELU in place of SiLU.
    Mistake(
        "silu_for_gelu", mlp.trial, method("", mlp.PaddleMlp, last=last_by_gelu),
        OPERATOR, ("silu", "gelu"), ("third", WHOLE_MODEL),
    ),
    # Softmax over another axis.
    Mistake(
        "softmax_axis", bert.trial, method("layers.0", bert.PaddleLayer, weights=weights_over_queries),
        OPERATOR, ("softmax",), ("layers.0",),
    ),
    # Sigmoid in place of tanh.
    Mistake(
        "squash_other", cnn.trial, method("", cnn.PaddleNet, squash=squashed_by_sigmoid),
        OPERATOR, ("sigmoid",), ("fc2", WHOLE_MODEL),
    ),
)  # fmt: skip
