"""How DiscoGAN is trained in paddle: the losses and the two optimizers."""

from __future__ import annotations

from collections.abc import Mapping

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F
from paddle.optimizer import Adam
from settings import Settings


def build_optimizers(networks: Mapping[str, nn.Layer], settings: Settings) -> tuple[Adam, Adam]:
    """Returns one Adam for the two generators and one for the two discriminators."""
    generators = [*networks["generator_A"].parameters(), *networks["generator_B"].parameters()]
    discriminators = [*networks["discriminator_A"].parameters(), *networks["discriminator_B"].parameters()]
    beta1, beta2 = settings.betas
    options = {"learning_rate": settings.lr, "beta1": beta1, "beta2": beta2, "weight_decay": settings.weight_decay}
    return Adam(parameters=generators, **options), Adam(parameters=discriminators, **options)


def feature_loss(real: list[Tensor], fake: list[Tensor]) -> Tensor:
    """Returns the hinge embedding loss of the squared distance between the feature means, summed over the maps."""
    total = paddle.zeros([], dtype=real[0].dtype)
    for real_map, fake_map in zip(real, fake, strict=True):
        distance = (real_map.mean(0) - fake_map.mean(0)) ** 2
        total = total + F.hinge_embedding_loss(distance, paddle.ones_like(distance))
    return total


def gan_losses(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the discriminator's loss and the generator's loss."""
    ones, zeros = paddle.ones_like(real), paddle.zeros_like(fake)
    discriminator = F.binary_cross_entropy(real, ones) * 0.5 + F.binary_cross_entropy(fake, zeros) * 0.5
    return discriminator, F.binary_cross_entropy(fake, ones)


def both_losses(networks: Mapping[str, nn.Layer], a: Tensor, b: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """Returns the loss of the two generators and the loss of the two discriminators on the pictures a and b."""
    ab = networks["generator_B"](b)
    ba = networks["generator_A"](a)
    aba = networks["generator_A"](ab)
    bab = networks["generator_B"](ba)
    reconstruction_a = F.mse_loss(aba, a)
    reconstruction_b = F.mse_loss(bab, b)

    real_a, real_features_a = networks["discriminator_A"](a)
    fake_a, fake_features_a = networks["discriminator_A"](ba)
    discriminator_a, gan_a = gan_losses(real_a, fake_a)
    features_a = feature_loss(real_features_a, fake_features_a)

    real_b, real_features_b = networks["discriminator_B"](b)
    fake_b, fake_features_b = networks["discriminator_B"](ab)
    discriminator_b, gan_b = gan_losses(real_b, fake_b)
    features_b = feature_loss(real_features_b, fake_features_b)

    rate = settings.rate
    adversarial_b = gan_b * settings.gan_share + features_b * settings.feature_share
    adversarial_a = gan_a * settings.gan_share + features_a * settings.feature_share
    total_a = adversarial_b * (1.0 - rate) + reconstruction_a * rate
    total_b = adversarial_a * (1.0 - rate) + reconstruction_b * rate
    return total_a + total_b, discriminator_a + discriminator_b


def train_some_iterations(
    networks: Mapping[str, nn.Layer], a: Tensor, b: Tensor, settings: Settings
) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the generators' and the discriminators' loss of each iteration on the same pictures."""
    generator_optimizer, discriminator_optimizer = build_optimizers(networks, settings)
    generator_losses, discriminator_losses = [], []
    for iteration in range(settings.iterations):
        generator_loss, discriminator_loss = both_losses(networks, a, b, settings)
        # Only the stepped optimizer clears its gradients. What the other loss left behind adds to the next step of the
        # other networks: that is how the published training behaves, and a port has to keep it.
        if iteration % 2 == 0:
            discriminator_loss.backward()
            discriminator_optimizer.step()
            discriminator_optimizer.clear_grad()
        else:
            generator_loss.backward()
            generator_optimizer.step()
            generator_optimizer.clear_grad()
        generator_losses.append(generator_loss.detach())
        discriminator_losses.append(discriminator_loss.detach())
    return generator_losses, discriminator_losses
