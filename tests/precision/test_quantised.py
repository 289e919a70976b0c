"""Candidates in int8 and with weights in float8: each layer is held to the scheme that it declares."""

from __future__ import annotations

import copy

import pytest
import quantised_models as quantised
import torch
from torch import nn
from torch.ao.nn.quantized.dynamic import Linear as DynamicLinear
from torch.ao.quantization import quantize_fx

from reprod_log import align_models
from reprod_log.errors import TransferError, UsageError
from reprod_log.frameworks.torch import FRAMEWORK
from reprod_log.verdict import Status


def _id(case: object) -> str:
    return getattr(case, "__name__", str(case))


def notes(alignment) -> list[str]:
    return [one.id for one in alignment.candidate.notes]


@pytest.mark.parametrize(("way", "kind"), quantised.PAIRS, ids=_id)
def test_a_correct_candidate_passes_and_the_report_has_its_cost(way, kind):
    reference, inputs = quantised.made(kind, 11)
    alignment = align_models(reference, quantised.quantised(way, reference), inputs)
    assert alignment.passed, str(alignment)
    assert not [one for one in alignment.findings if one.kind in ("cause", "hint", "doubt")]
    assert {"note.experiments.quantised", "note.experiments.quantised.logits"} <= set(notes(alignment))
    held = [one for one in alignment.floor.evidence if one.declared is not None and one.mode == "isolated"]
    assert held


def first_of(way, kind, name, table):
    """The first divergence of a candidate with one mistake, and the layer that the mistake is in."""
    reference, inputs = quantised.made(kind, 3)
    candidate = quantised.quantised(way, reference)
    with torch.no_grad():
        layer = table[name](candidate, reference)
    try:
        alignment = align_models(reference, candidate, inputs)
    except TransferError as refusal:
        return str(refusal), layer
    assert not alignment.passed
    return str(alignment.verdict.first_divergence.key), layer


@pytest.mark.parametrize(
    ("way", "kind", "name"),
    [
        ("dynamic", quantised.Mlp, "scale"),
        ("dynamic", quantised.Mlp, "no bias"),
        ("dynamic", quantised.Transformer, "activation"),
        ("per channel", quantised.Mlp, "axis of the scales"),
        ("per channel", quantised.Transformer, "weights of another layer"),
        ("static", quantised.Cnn, "zero point"),
        ("static", quantised.Cnn, "range too narrow"),
        ("static", quantised.Mlp, "skipped"),
        ("float8", quantised.Mlp, "scale"),
        ("float8", quantised.Transformer, "weights of another layer"),
    ],
    ids=_id,
)
def test_a_mistake_is_found_in_its_layer(way, kind, name):
    found, layer = first_of(way, kind, name, quantised.LOOKED_INTO)
    assert layer in found


def test_most_of_the_mistakes_that_nobody_looked_into_are_found_in_their_layer():
    cases = quantised.cases(quantised.SCORED_ONLY)[::8]
    found = [first_of(*case, quantised.SCORED_ONLY) for case in cases]
    placed = sum(layer in place for place, layer in found)
    assert placed >= 0.9 * len(cases)


def test_wrong_weights_are_told_from_a_range_that_does_not_fit():
    for name, cause in (("zero point", "cause.scheme.weights"), ("range too narrow", "cause.scheme.range")):
        reference, inputs = quantised.made(quantised.Cnn, 5)
        candidate = quantised.static(reference)
        quantised.LOOKED_INTO[name](candidate, reference)
        alignment = align_models(reference, candidate, inputs)
        assert [one.cause.id for one in alignment.findings if one.kind == "cause"] == [cause]


class Pretending(DynamicLinear):
    """Quantised by name, with the reference's weights in float32 inside."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.plain[0], self.bias())


def test_a_layer_that_does_not_run_in_its_precision_is_named():
    reference, inputs = quantised.made(quantised.Mlp, 6)
    candidate = quantised.dynamic(reference)
    candidate.second.plain = (reference.second.weight.detach().clone(),)
    candidate.second.__class__ = type("Linear", (Pretending,), {"__module__": DynamicLinear.__module__})
    alignment = align_models(reference, candidate, inputs)
    assert alignment.verdict.status is Status.FAIL
    assert "second" in str(alignment.verdict.first_divergence.key)
    assert "cause.scheme.unused" in [one.cause.id for one in alignment.findings]


def test_neither_model_is_changed_and_the_candidate_keeps_its_weights():
    reference, inputs = quantised.made(quantised.Mlp, 7)
    candidate = quantised.dynamic(reference)
    before, types = candidate(inputs), [type(one) for one in candidate.modules()]
    align_models(reference, candidate, inputs)
    assert torch.equal(candidate(inputs), before)
    assert [type(one) for one in candidate.modules()] == types


def test_a_layer_whose_scheme_is_not_known_is_refused():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]

    model = Recurrent().eval()
    candidate = torch.ao.quantization.quantize_dynamic(model, {nn.LSTM})
    with pytest.raises(UsageError, match=r"lstm .*LSTM\) is quantised in a way that is not known"):
        align_models(model, candidate, torch.randn(5, 2, 8))


def test_a_model_that_was_quantised_as_a_graph_is_refused():
    model, inputs = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), torch.randn(4, 8)
    mapping = torch.ao.quantization.get_default_qconfig_mapping("x86")
    prepared = quantize_fx.prepare_fx(model, mapping, (inputs,))
    prepared(inputs)
    with pytest.raises(UsageError, match="quantised as a graph"):
        align_models(model, quantize_fx.convert_fx(prepared), inputs)


def test_float8_weights_that_are_used_otherwise_than_stored_are_refused():
    class Divided(quantised.Float8Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.weight.to(x.dtype) / self.weight_scale, self.bias)

    reference, inputs = quantised.made(quantised.Mlp, 8)
    candidate = copy.deepcopy(reference)
    candidate.second = Divided(reference.second)
    with pytest.raises(UsageError, match="does not compute with the stored values times the scale"):
        align_models(reference, candidate, inputs)


def test_a_quantised_model_is_not_trained():
    reference, inputs = quantised.made(quantised.Mlp, 9)
    with pytest.raises(UsageError, match="is not trained"):
        align_models(reference, quantised.dynamic(reference), inputs, loss=lambda outputs: outputs.sum())


@pytest.mark.parametrize("way", ["dynamic", "per channel", "static"])
def test_the_declared_rounding_is_what_the_kernels_compute(way):
    reference, inputs = quantised.made(quantised.Mlp, 10)
    candidate = quantised.quantised(way, reference)
    found = FRAMEWORK.eager.readable(candidate, lambda model: model(inputs))
    FRAMEWORK.eager.set_rounding(found, "declared")
    ours, theirs = found(inputs), candidate(inputs)
    assert float((ours - theirs).norm() / theirs.norm()) < 1e-5
    FRAMEWORK.eager.set_rounding(found, "none")
    assert float((found(inputs) - theirs).norm() / theirs.norm()) > 1e-3
