"""Right ports that say the same thing in another way: every one must be called aligned, with no map."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Status, align_models

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def squares(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets) ** 2).mean()


def torch_adam(model: Any) -> Any:
    return torch.optim.Adam(model.parameters(), 1e-2)


def paddle_adam(model: Any) -> Any:
    return paddle.optimizer.Adam(1e-2, parameters=model.parameters())


def compared(reference: Any, candidate: Any, inputs: Any, targets: Any, **options: Any) -> Any:
    makers = [torch_adam if isinstance(one, torch.nn.Module) else paddle_adam for one in (reference, candidate)]
    options = {"optimizer": tuple(makers), "loss": squares, "steps": 2, "quick": True, **options}
    return align_models(reference, candidate, inputs, targets=targets, **options)


class TorchCell(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = getattr(torch.nn, kind)(5, 6)
        self.long = kind == "LSTMCell"

    def forward(self, x: Any) -> Any:
        state = (x[0, :, :1].repeat(1, 6),) * 2 if self.long else x[0, :, :1].repeat(1, 6)
        for one in x:
            state = self.cell(one, state)
        return state[0] + state[1] if self.long else state


class PaddleCell(paddle.nn.Layer):
    """The state as paddle gives it: after the output, which is h again."""

    def __init__(self, kind: str, *, swapped: bool = False) -> None:
        super().__init__()
        self.step = getattr(paddle.nn, kind)(5, 6)
        self.long, self.swapped = kind == "LSTMCell", swapped

    def forward(self, x: Any) -> Any:
        h = x[0, :, :1].tile([1, 6])
        state = (h, h) if self.long else h
        for one in x:
            _, state = self.step(one, state[::-1] if self.swapped else state)
        return state[0] + state[1] if self.long else state


@pytest.mark.parametrize(
    ("ours", "theirs"), [("GRUCell", "GRUCell"), ("LSTMCell", "LSTMCell"), ("RNNCell", "SimpleRNNCell")]
)
def test_recurrent_cells_are_aligned_when_one_returns_its_output_before_the_state(ours: str, theirs: str) -> None:
    found = compared(TorchCell(ours), PaddleCell(theirs), (array(3, 2, 5),), array(2, 6))
    assert found.passed, str(found)
    # Both states of the cell are looked at, alone as well as in the model.
    keys = {one.key for one in found.verdict.judgements}
    last = "output.1" if ours == "LSTMCell" else "output"
    assert {f"step1/backward/cell#2:{last}", f"isolated@step0/forward/cell#0:{last}"} <= keys


def test_exchanged_states_of_a_cell_are_found() -> None:
    found = compared(TorchCell("LSTMCell"), PaddleCell("LSTMCell", swapped=True), (array(3, 2, 5),), array(2, 6))
    assert not found.passed
    assert str(found.first_divergence.key).startswith("step0/forward/cell#1")


def torch_normed(norm: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(norm(torch.nn.Conv1d(4, 6, 3)), torch.nn.Tanh(), norm(torch.nn.Conv1d(6, 2, 1)))


def paddle_normed(norm: Any) -> Any:
    return paddle.nn.Sequential(norm(paddle.nn.Conv1D(4, 6, 3)), paddle.nn.Tanh(), norm(paddle.nn.Conv1D(6, 2, 1)))


PARAMETRIZED = torch.nn.utils.parametrizations.weight_norm
OLD = torch.nn.utils.weight_norm


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize(
    "pair",
    [
        lambda: (torch_normed(PARAMETRIZED), paddle_normed(paddle.nn.utils.weight_norm)),
        lambda: (paddle_normed(paddle.nn.utils.weight_norm), torch_normed(PARAMETRIZED)),
        lambda: (torch_normed(PARAMETRIZED), torch_normed(OLD)),
        lambda: (torch_normed(torch.nn.utils.spectral_norm), paddle_normed(paddle.nn.utils.spectral_norm)),
    ],
    ids=["parametrized and paddle", "paddle and parametrized", "parametrized and old", "spectral and paddle"],
)
def test_normed_weights_are_aligned_when_kept_in_another_form(pair: Any) -> None:
    reference, candidate = pair()
    found = compared(reference, candidate, (array(2, 4, 9),), array(2, 2, 7))
    assert found.passed, str(found)
    phases = {
        one.key.phase for one in found.verdict.judgements if "0.weight_" in one.key.path or "0.param" in one.key.path
    }
    assert {"gradient", "update", "parameter", "optimizer"} <= phases


class TorchTied(torch.nn.Module):
    def __init__(self, *, bias: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.mix = torch.nn.Embedding(11, 6), torch.nn.Linear(6, 6)
        self.head = torch.nn.Linear(6, 11, bias=bias)
        self.head.weight = self.words.weight

    def forward(self, ids: Any) -> Any:
        return self.head(torch.tanh(self.mix(self.words(ids))))


class PaddleTied(paddle.nn.Layer):
    """No head of its own: a product with the embedding's weight."""

    def __init__(self, *, bias: bool = False, untied: bool = False) -> None:
        super().__init__()
        self.table, self.dense = paddle.nn.Embedding(11, 6), paddle.nn.Linear(6, 6)
        self.head_bias = self.create_parameter([11], is_bias=True) if bias else None
        if untied:
            self.head = paddle.nn.Linear(6, 11, bias_attr=False)

    def forward(self, ids: Any) -> Any:
        hidden = paddle.tanh(self.dense(self.table(ids)))
        if hasattr(self, "head"):
            return self.head(hidden)
        out = paddle.matmul(hidden, self.table.weight, transpose_y=True)
        return out if self.head_bias is None else out + self.head_bias


@pytest.mark.parametrize("bias", [False, True])
def test_tied_head_is_aligned_when_the_other_side_multiplies_by_the_embedding(bias: bool) -> None:
    ids = RNG.integers(0, 11, (3, 4))
    found = compared(TorchTied(bias=bias), PaddleTied(bias=bias), (ids,), array(3, 4, 11))
    assert found.passed, str(found)


def test_untied_head_is_reported() -> None:
    ids = RNG.integers(0, 11, (3, 4))
    found = compared(TorchTied(), PaddleTied(untied=True), (ids,), array(3, 4, 11))
    assert not found.passed
    assert "step0/parameter/head.weight" in {
        one.key for one in found.verdict.judgements if one.status is Status.UNMATCHED
    }


class TorchTagger(torch.nn.Module):
    """Packs its sequences, so that the recurrent layer sees no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = torch.nn.Embedding(12, 5)
        self.rnn = torch.nn.LSTM(5, 4, batch_first=True, bidirectional=True)
        self.out = torch.nn.Linear(8, 3)

    def forward(self, ids: Any, lengths: Any) -> Any:
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        packed = pack_padded_sequence(self.emb(ids), lengths, batch_first=True, enforce_sorted=False)
        padded, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=ids.shape[1])
        return self.out(padded)


class PaddleTagger(paddle.nn.Layer):
    """Tells the recurrent layer how long the sequences are."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake
        self.e = paddle.nn.Embedding(12, 5)
        self.lstm = paddle.nn.LSTM(5, 4, direction="bidirect")
        self.fc = paddle.nn.Linear(8, 3)

    def forward(self, ids: Any, lengths: Any) -> Any:
        hidden, _ = self.lstm(self.e(ids), sequence_length=None if self.mistake == "no lengths" else lengths)
        if self.mistake == "cut graph":
            hidden = hidden.detach()
        if self.mistake == "directions":
            hidden = paddle.concat(paddle.split(hidden, 2, -1)[::-1], -1)
        return self.fc(hidden)


@pytest.mark.parametrize("mistake", ["", "no lengths", "directions", "cut graph"])
def test_packed_sequences_are_aligned_with_padded_ones_unless_there_is_a_mistake(mistake: str) -> None:
    torch.manual_seed(0)
    lengths, targets = np.array([6, 2, 4, 1]), array(4, 7, 3)
    inputs = {"ids": np.random.default_rng(1).integers(1, 12, (4, 7)), "lengths": lengths}
    alignment = compared(TorchTagger(), PaddleTagger(mistake), inputs, targets)
    assert alignment.passed is (not mistake), str(alignment)
