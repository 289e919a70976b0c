"""Positions that do not count are not compared, and the report states how many these are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from reprod_log import Recording, align, align_models
from reprod_log.cli import run
from reprod_log.errors import UsageError
from reprod_log.recording.stores import save

MASK = np.arange(6) < np.array([[6], [4], [3]])


class Tagger(nn.Module):
    """Gives something else where there is only padding."""

    def __init__(self, padding: float = 0.0, factor: float = 1.0) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.padding, self.factor = padding, factor

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.mix(self.embed(tokens))) * self.factor
        return self.head(torch.where(mask[..., None], x, torch.full_like(x, self.padding)))


def both(**settings: float) -> tuple[nn.Module, nn.Module, tuple[np.ndarray, np.ndarray]]:
    torch.manual_seed(0)
    reference, candidate = Tagger().eval(), Tagger(**settings).eval()
    candidate.load_state_dict(reference.state_dict())
    return reference, candidate, (np.random.default_rng(1).integers(0, 11, (3, 6)), MASK)


def test_what_differs_at_padding_only_passes_with_a_mask() -> None:
    reference, candidate, inputs = both(padding=3.0)
    assert not align_models(reference, candidate, inputs).passed
    found = align_models(reference, candidate, inputs, counts=MASK)
    assert found.passed, str(found)
    note = next(one for one in found.comparison.notes if one.id == "note.counts")
    assert (note.arguments["some"], note.arguments["all"]) == (5, 18)
    assert "5 of 18 positions" in str(found)


def test_a_difference_elsewhere_is_found_with_a_mask() -> None:
    reference, candidate, inputs = both(padding=3.0, factor=1.001)
    found = align_models(reference, candidate, inputs, counts=MASK)
    assert not found.passed
    assert found.verdict.first_divergence.key.path == "head"


def test_recordings_and_the_command_take_a_mask(tmp_path, capsys) -> None:
    values = np.random.default_rng(2).standard_normal((3, 6, 4)).astype(np.float32)
    other = np.where(MASK[..., None], values, np.nan)
    ours, theirs = (Recording.from_arrays({"step0/forward/head#0:output": one, "loss": 1.0}) for one in (values, other))
    assert not align(ours, theirs).passed
    assert align(ours, theirs, counts=MASK, allow_unproven=True).passed
    assert not align(ours, theirs, counts=[~MASK]).passed
    save(ours, tmp_path / "ours")
    save(theirs, tmp_path / "theirs")
    np.save(tmp_path / "mask.npy", MASK)
    command = ["compare", str(tmp_path / "ours"), str(tmp_path / "theirs"), "--allow-unproven"]
    assert run(command) == 1
    assert run([*command, "--counts", str(tmp_path / "mask.npy")]) == 0
    assert "5 of 18 positions" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("counts", "why"),
    [(np.zeros((3, 6)), "nothing would be compared"), (np.full((3, 6), 2), "true and false"), (MASK[:2], "no tensor")],
    ids=["nothing", "numbers", "shape"],
)
def test_masks_that_compare_nothing_or_fit_nothing_are_refused(counts: np.ndarray, why: str) -> None:
    one = Recording.from_arrays({"step0/forward/head#0:output": np.ones((3, 6, 4))})
    with pytest.raises(UsageError, match=why):
        align(one, one, counts=counts)
