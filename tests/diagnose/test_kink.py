"""An activation on the other side of zero is counted and placed, and a real difference is not taken for one."""

import torch
from torch import nn

from reprod_log import align, watch
from reprod_log.alignment import Alignment


class AsModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.second = nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)

    def activate(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.activate(self.first(x)))


class AsFunction(AsModule):
    def activate(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def compared(kind: type[AsModule], shift: float, *, step: int = 0) -> Alignment:
    """Two models of which one unit is `shift` above zero for the first sample in one and below it in the other."""
    recordings = []
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 4, generator=generator)
    for side in (1, -1):
        torch.manual_seed(1)
        model = kind()
        with torch.no_grad():
            model.first.weight[2] = 0
            model.first.weight[2, 0] = 1
            model.first.bias[2] = -x[0, 0]
        with watch(model) as watched:
            for now in range(step + 1):
                given = x.clone()
                given[0, 0] += side * shift if now == step else 1.0
                model(given).sum().backward()
                model.zero_grad()
        recordings.append(watched.recording)
    return align(*recordings, limits=["mean_abs:1e-5"])


def kinks(alignment: Alignment) -> list[str]:
    return [str(one.cause) for one in alignment.findings if one.rule == "kink"]


def test_flip_before_a_layer_is_counted_and_placed() -> None:
    assert kinks(compared(AsModule, 1e-6)) == ["1 of 30 activations crossed zero at step 0, layer first: rounding"]


def test_flip_in_a_function_is_placed_at_the_layer_before_it() -> None:
    assert kinks(compared(AsFunction, 1e-6)) == ["1 of 30 activations crossed zero at step 0, layer first: rounding"]


def test_flip_at_a_later_step_is_found_there() -> None:
    """Inputs of layers are recorded in the first step only; later ones are seen by what comes out."""
    for kind in (AsModule, AsFunction):
        found = kinks(compared(kind, 1e-6, step=2))
        assert found == ["1 of 30 activations crossed zero at step 2, layer first: rounding"]


def test_large_values_of_other_sign_are_no_flip() -> None:
    assert kinks(compared(AsModule, 0.5)) == []


def test_agreeing_sides_have_no_flip() -> None:
    assert kinks(compared(AsModule, 0.0)) == []
