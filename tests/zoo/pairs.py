"""Two independent mistakes in one port: rows of the tables of `mistakes/`, planted together."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.lines import planted
from zoo.mistakes import all_mistakes, architectures
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
lines   tcn_norm_not_taken+tcn_huber_of_one tcn_mean_for_largest+tcn_restarts_of_one_length
        experts_no_residual+experts_beta1_of_old experts_three_experts+experts_rise_from_zero
        experts_weight_of_the_balance+experts_decay_a_quarter nodes_slope+nodes_momentum
        nodes_degree_not_rooted+nodes_all_nodes windows_no_places+windows_merged_in_rows
        windows_scale+windows_rates_fall_faster scans_gate_by_sigmoid+scans_each_of_a_token
        scans_no_direct_way+scans_eps_of_lamb codebook_squared_error+codebook_beta2_of_adam
        rays_waves_of_pi+rays_black_background rays_skip_first+rays_rates_by_a_tenth
        students_swish_for_mish+students_not_halved policies_sign_of_the_entropy+policies_clips_at_one
        policies_eps_of_policy+policies_rates_to_a_tenth shapes_dilation+shapes_dice_not_smoothed
        shapes_branches_exchanged+shapes_no_nesterov shapes_momentum_of_the_norm+shapes_parts_not_halved
"""
"""By their base, or as changed lines of one program: each in another part, so that neither undoes the other."""

_LINES = {line.name: line for line in architectures.LINES}


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
        if {self.first.name, self.second.name} <= _LINES.keys():
            return planted((_LINES[self.first.name], _LINES[self.second.name]), seed)
        trial = self.first.planted(seed)
        return self.second.plant(trial) or trial


def all_pairs() -> dict[str, TwoMistakes]:
    """Every pair by its name, in alphabetical order."""
    known = all_mistakes()
    names = sorted(word for word in _TOGETHER.split() if "+" in word)
    return {name: TwoMistakes(*(known[part] for part in name.split("+"))) for name in names}
