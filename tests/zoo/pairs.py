"""Two independent mistakes in one port: rows of the tables of `mistakes/`, planted together."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.mistakes import all_mistakes
from zoo.trial import Half, Mistake, Trial, half_of

_TOGETHER = """
cnn     bn_eps+momentum_missing leaky_slope+loss_sum pool_exclusive+decay_missing ln_eps+lr_double
        bn_momentum+label_smoothing weight_transposed+clip_missing weight_not_loaded+nesterov
        gelu_tanh_module+bn_eps flatten_order+momentum_missing squash_other+leaky_slope align_corners+double_softmax
        dropout_rate+lr_never_stepped conv_padding_mode+weight_transposed detached_branch+lr_double
        squash_other+loss_sum bn_eps+clip_per_tensor loss_sum+momentum_missing label_smoothing+lr_milestone
        bn_eps+decay_wrong dropout_eval+ln_eps bias_missing+leaky_slope data_bgr+leaky_slope
bert    attention_scale+gelu_tanh weights_swapped+adam_beta2 ln_eps_bert+decay_on_biases residual_missing+lr_warm_up
        softmax_axis+adam_eps mask_ignored+ln_eps_bert weight_scaled+gelu_tanh pool_last+adam_beta2
        positions_shifted+clip_other_norm gelu_tanh+adam_for_adamw padding_idx+attention_scale
unet    dilation+group_count concat_order+conv_flipped padding_one_sided+prelu_slope
gan     gan_slope+gan_betas gan_weights_twice+gan_term_weight gan_bn_momentum+gan_slope
lstm    elu_for_activation+lr_gamma lstm_gates+adam_beta1 loss_halved+adam_beta1 weight_float16+loss_halved
        reversed_sequence+adam_l2_missing
mlp     silu_for_gelu+lr_end gate_hard+loss_mse_sum bias_zero+smooth_l1 smooth_l1+lr_cycles
        silu_for_gelu+rmsprop_for_sgd
"""
"""By their base: each in another part of the port, so that neither undoes the other."""


@dataclass(frozen=True)
class TwoMistakes:
    """Two mistakes of one base, of which both are to be named."""

    first: Mistake
    second: Mistake

    @property
    def name(self) -> str:
        return f"{self.first.name}+{self.second.name}"

    @property
    def half(self) -> Half:
        return half_of(self.name)

    def planted(self, seed: int) -> Trial:
        """A trial of this seed with both in it."""
        trial = self.first.planted(seed)
        return self.second.plant(trial) or trial


def all_pairs() -> dict[str, TwoMistakes]:
    """Every pair by its name, in alphabetical order."""
    known = all_mistakes()
    names = sorted(word for word in _TOGETHER.split() if "+" in word)
    return {name: TwoMistakes(*(known[part] for part in name.split("+"))) for name in names}
