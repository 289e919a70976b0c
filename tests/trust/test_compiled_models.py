"""Compiled models: what was compiled is what is compared, and it is compiled as before afterwards."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from reprod_log import align_models
from reprod_log.errors import UsageError


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    """A process compiles one function only so many times, whoever asked before."""
    torch._dynamo.reset()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 4))


def backend(factor: float, runs: list[int]) -> Any:
    """A compiler that multiplies every result, and counts the runs of what it made."""

    def compile_graph(graph: Any, _: Any) -> Any:
        def run(*given: Any) -> Any:
            runs.append(1)
            return tuple(one * factor if one.is_floating_point() else one for one in graph(*given))

        return run

    return compile_graph


def aligned(candidate: Any, reference: Any = None) -> Any:
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    return align_models(
        model() if reference is None else reference, candidate, inputs, loss=lambda out: out.square().mean()
    )


def test_what_a_compiler_gets_wrong_is_found():
    runs: list[int] = []
    alignment = aligned(torch.compile(model(), backend=backend(1.001, runs)))
    assert runs
    assert not alignment.passed
    assert str(alignment.verdict.first_divergence.key) == "step0/forward/#0:output"


def test_a_right_compiler_passes_though_nothing_inside_was_seen():
    runs: list[int] = []
    alignment = aligned(torch.compile(model(), backend=backend(1.0, runs)))
    assert runs
    assert alignment.passed, str(alignment)
    assert any(note.id == "note.capture.opaque" for note in alignment.candidate.notes)


def test_a_part_may_be_compiled_on_either_side():
    runs: list[int] = []
    whole = model()
    part = copy.deepcopy(whole)
    part[2] = torch.compile(part[2], backend=backend(1.0, runs))
    assert aligned(part, whole).passed
    assert aligned(whole, part).passed
    assert runs


def test_a_model_stays_compiled():
    runs: list[int] = []
    compiled = torch.compile(model(), backend=backend(1.0, runs))
    compiled(torch.randn(5, 6))
    aligned(compiled)
    before = len(runs)
    compiled(torch.randn(5, 6))
    assert len(runs) == before + 1


def test_a_model_compiled_in_place_is_refused_since_its_copy_would_not_be():
    one = model()
    one.compile(backend="eager")
    with pytest.raises(UsageError, match="compiled in place"):
        aligned(one)
