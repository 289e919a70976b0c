"""Correct ports: as they were written for the bases, and written by hand with other operators in another order."""

import math

import paddle
import paddle.nn.functional as PF
from paddle import nn

from zoo.bases import bert, cnn, gan, lstm, mlp, resnet, unet
from zoo.lines import Line as L
from zoo.programs import (
    anchors,
    codebook,
    diffusion,
    experts,
    llama,
    mobile,
    nodes,
    policies,
    rays,
    scans,
    seqs,
    shapes,
    students,
    tcn,
    towers,
    vae,
    vit,
    windows,
)
from zoo.trial import Healthy, Trial


def cross_entropy(outputs, targets):
    """By logsumexp, summed by hand."""
    logs = outputs - paddle.logsumexp(outputs, axis=-1, keepdim=True)
    return -(logs * PF.one_hot(targets, outputs.shape[-1]).astype(logs.dtype)).sum() / targets.size


def written_again(model, classes: dict[type, type]) -> None:
    """Give every layer of one of the classes the class that stands for it."""
    for layer in model.sublayers():
        layer.__class__ = classes.get(type(layer), type(layer))


class BertLayer(bert.PaddleLayer):
    """Softmax by exp and sum, gelu by erf, scores scaled by a power."""

    def activate(self, x):
        return 0.5 * x * (1.0 + paddle.erf(x / math.sqrt(2.0)))

    def weights(self, scores):
        powers = paddle.exp(scores - scores.max(axis=-1, keepdim=True))
        return powers / powers.sum(axis=-1, keepdim=True)

    def scaled(self, scores):
        return scores * (bert.WIDTH // bert.HEADS) ** -0.5


def bert_by_hand(seed: int) -> Trial:
    trial = bert.trial(seed)
    written_again(trial.candidate, {bert.PaddleLayer: BertLayer})
    return trial


class Cnn(cnn.PaddleNet):
    """Activations as functions instead of modules."""

    def branch(self, x):
        y = self.bn2(self.conv2(x))
        return paddle.maximum(y, 0.1 * y)

    def squash(self, x):
        return 2.0 * PF.sigmoid(2.0 * x) - 1.0


def cnn_by_hand(seed: int) -> Trial:
    trial = cnn.trial(seed)
    trial.candidate.__class__ = Cnn
    return trial.with_candidate_loss(cross_entropy)


class Leaky(nn.LeakyReLU):
    def forward(self, x):
        return paddle.maximum(x, self._negative_slope * x)


def softplus(x):
    return paddle.log(1.0 + paddle.exp(-x.abs())) + (x + x.abs()) / 2


def gan_step(models, optimizers, inputs, targets):
    """The step of the base with losses by log and exp."""
    generator, discriminator = models["generator"], models["discriminator"]
    fake = generator(inputs["noise"])
    real = softplus(-discriminator(inputs["image"])).mean()
    (real + softplus(discriminator(fake.detach())).mean()).backward()
    optimizers["discriminator"].step()
    optimizers["discriminator"].clear_grad()
    softplus(-discriminator(fake)).mean().backward()
    optimizers["generator"].step()
    optimizers["generator"].clear_grad()
    optimizers["discriminator"].clear_grad()


def gan_by_hand(seed: int) -> Trial:
    trial = gan.trial(seed)
    for model in trial.candidate.values():
        written_again(model, {nn.LeakyReLU: Leaky})
    return trial.with_candidate_step(gan_step)


class Reader(lstm.PaddleReader):
    """ELU by expm1."""

    def activate(self, x):
        return paddle.where(x > 0, x, paddle.expm1(paddle.minimum(x, paddle.zeros_like(x))))


def lstm_by_hand(seed: int) -> Trial:
    trial = lstm.trial(seed)
    trial.candidate.__class__ = Reader
    return trial.with_candidate_loss(cross_entropy)


class Mlp(mlp.PaddleMlp):
    """The gate by tanh, the last activation by exp."""

    def gate(self, y):
        return 0.5 * (1.0 + paddle.tanh(0.5 * y))

    def last(self, y):
        return y / (1.0 + paddle.exp(-y))


def mlp_by_hand(seed: int) -> Trial:
    trial = mlp.trial(seed)
    trial.candidate.__class__ = Mlp
    return trial


class Unfolded(nn.Conv2D):
    """A convolution by unfolding: other sums in another order."""

    def forward(self, x):
        given, _, height, width = self.weight.shape
        columns = PF.unfold(x, [height, width], strides=self._stride, paddings=self._padding)
        y = paddle.matmul(self.weight.reshape([given, -1]), columns)
        if self.bias is not None:
            y = y + self.bias.reshape([1, -1, 1])
        size = [(x.shape[-1 - axis] + 2 * self._padding - (height, width)[axis]) // self._stride[axis] + 1
                for axis in (1, 0)]  # fmt: skip
        return y.reshape([x.shape[0], given, *size])


class ResNet(resnet.PaddleNet):
    """The mean of the picture by sum and division."""

    def features(self, x):
        y = self.blocks(x)
        return y.sum(axis=[2, 3]) / (y.shape[2] * y.shape[3])


def resnet_by_hand(seed: int) -> Trial:
    trial = resnet.trial(seed)
    trial.candidate.__class__ = ResNet
    written_again(trial.candidate, {nn.Conv2D: Unfolded})
    return trial.with_candidate_loss(cross_entropy)


class Norm(nn.GroupNorm):
    def forward(self, x):
        groups = x.reshape([x.shape[0], self._num_groups, -1])
        mean = groups.mean(axis=-1, keepdim=True)
        variance = (groups * groups).mean(axis=-1, keepdim=True) - mean * mean
        y = ((groups - mean) / paddle.sqrt(variance + self._epsilon)).reshape(x.shape)
        return y * self.weight.reshape([1, -1, 1, 1]) + self.bias.reshape([1, -1, 1, 1])


class Act(nn.Silu):
    def forward(self, x):
        return x / (1.0 + paddle.exp(-x))


def squared_error(outputs, targets):
    return ((outputs - targets) ** 2).sum() / outputs.size


def unet_by_hand(seed: int) -> Trial:
    trial = unet.trial(seed)
    written_again(trial.candidate, {nn.GroupNorm: Norm, nn.Silu: Act})
    return trial.with_candidate_loss(squared_error)


SEEDS = tuple(range(10))
PROGRAMS = (
    anchors, codebook, diffusion, experts, llama, mobile, nodes, policies, rays, scans, seqs, shapes, students, tcn,
    towers, vae, vit, windows,
)  # fmt: skip

PORTS = (
    Healthy("bert_as_ported", bert.trial, SEEDS),
    Healthy("bert_by_hand", bert_by_hand, SEEDS),
    # Batch norm in train mode.
    Healthy("cnn_as_ported", cnn.trial, SEEDS, quick=True),
    Healthy("cnn_by_hand", cnn_by_hand, SEEDS),
    Healthy("gan_as_ported", gan.trial, SEEDS, quick=True),
    Healthy("gan_by_hand", gan_by_hand, SEEDS),
    Healthy("lstm_as_ported", lstm.trial, SEEDS),
    Healthy("lstm_by_hand", lstm_by_hand, SEEDS),
    Healthy("mlp_as_ported", mlp.trial, SEEDS, quick=True),
    Healthy("mlp_by_hand", mlp_by_hand, SEEDS),
    # float32 chaos behind kinks, and nothing wrong.
    Healthy("resnet_as_ported", resnet.trial, SEEDS),
    Healthy("resnet_by_hand", resnet_by_hand, SEEDS),
    Healthy("unet_as_ported", unet.trial, SEEDS),
    Healthy("unet_by_hand", unet_by_hand, SEEDS),
    *(Healthy(one.__name__.rpartition(".")[2], one.trial, SEEDS[:3]) for one in PROGRAMS),
)


REWRITTEN = (
    L("tcn", "hypot", "length = (self.way**2).sum([1, 2], keepdim=True).sqrt()",
      "length = paddle.linalg.norm(self.way.flatten(1), axis=1).reshape([-1, 1, 1])", ()),
    L("tcn", "huber by clip", "near = paddle.where(far <= 0.5, 0.5 * far**2, 0.5 * (far - 0.25))",
      "near = 0.5 * far.clip(max=0.5) ** 2 + 0.5 * (far - far.clip(max=0.5))", ()),
    L("experts", "masked softmax", "shares = paddle.put_along_axis(paddle.zeros_like(chances), which, best, -1)",
      "shares = (PF.one_hot(which, EXPERTS).astype(best.dtype) * best.unsqueeze(-1)).sum(1)", ()),
    L("experts", "mixed by einsum", "mixed = mixed * shares.unsqueeze(1)\n" "        x = x + mixed.sum(-1)",
      "x = x + paddle.einsum('bwe,be->bw', mixed, shares)", ()),
    L("nodes", "diagonal matrices", "even = root.unsqueeze(1) * edges * root",
      "even = paddle.diag(root) @ edges @ paddle.diag(root)", ()),
    L("windows", "rolled by concat", "y = y.roll((-self.shift, -self.shift), (1, 2))",
      "y = paddle.concat([y[:, self.shift :], y[:, : self.shift]], 1)\n"
      "        y = paddle.concat([y[:, :, self.shift :], y[:, :, : self.shift]], 2)", ()),
    L("scans", "matmul read", "made.append((state * read[:, time].unsqueeze(1)).sum(-1))\n" "        y",
      "made.append((state @ read[:, time].unsqueeze(-1)).squeeze(-1))\n" "        y", ()),
    L("codebook", "expanded distance", "far = (x.unsqueeze(-2) - self.codes.weight).pow(2).sum(-1)",
      "far = x.pow(2).sum(-1, keepdim=True) - 2 * x @ self.codes.weight.T + self.codes.weight.pow(2).sum(-1)", ()),
    L("rays", "logs of light", "left = paddle.cumprod(through, -1)",
      "left = paddle.exp(-paddle.cumsum(density * apart, -1))", ()),
    L("students", "cosine", "one, other = PF.normalize(one, axis=-1), PF.normalize(other, axis=-1)\n"
      "    return 2 - 2 * (one * other).sum(-1).mean()",
      "return 2 - 2 * PF.cosine_similarity(one, other, axis=-1).mean()", ()),
    L("policies", "plain exp", "entropy = -(logs.exp() * logs).sum(-1).mean()\n" "    wrong",
      "entropy = -(PF.softmax(logs, -1) * logs).sum(-1).mean()\n" "    wrong", ()),
    L("shapes", "dice by mask", "both = (chance * hot).sum([0, 2, 3])\n" "    size",
      "both = paddle.einsum('bchw,bchw->c', chance, hot)\n" "    size", ()),
)  # fmt: skip
"""Lines of the programs that compute the same in another way."""


def all_healthy() -> dict[str, Healthy]:
    """Every correct port by its name, in alphabetical order."""
    rewritten = [Healthy(line.name, line.mistake().base) for line in REWRITTEN]
    return {port.name: port for port in (*PORTS, *rewritten)}
