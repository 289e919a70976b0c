"""Recurrent: fused layers against cells and gates by hand, both directions, loops that depend on the data, scans."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
from paddle import nn as pn
from torch import nn as tn

from ports.port import (
    ENTROPY,
    SQUARE,
    Formulation,
    Port,
    State,
    floats,
    ints,
    lin,
    lins,
    paddle_entropy_by_hand,
    renamed,
    same,
    sames,
)

LEAVES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def cell(w: State, old: str, new: str, suffix: str = "_l0") -> State:
    """The four weights of one direction of one layer, as a cell has them."""
    return {f"{new}.{leaf}": w[f"{old}.{leaf}{suffix}"] for leaf in LEAVES}


# LSTM.


class FusedLSTM(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = tn.Embedding(14, 5)
        self.lstm = tn.LSTM(5, 6, batch_first=True)
        self.fc = tn.Linear(6, 3)

    def forward(self, ids: Any) -> Any:
        return self.fc(self.lstm(self.words(ids))[0][:, -1])


class LSTMFramework(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.fc = pn.Embedding(14, 5), pn.LSTM(5, 6), pn.Linear(6, 3)

    def forward(self, ids: Any) -> Any:
        return self.fc(self.lstm(self.words(ids))[1][0][-1])


class LSTMCells(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.cell, self.emb = pn.Linear(6, 3), pn.LSTMCell(5, 6), pn.Embedding(14, 5)

    def forward(self, ids: Any) -> Any:
        x = self.emb(ids)
        state = (paddle.zeros([x.shape[0], 6], x.dtype), paddle.zeros([x.shape[0], 6], x.dtype))
        for t in range(x.shape[1]):
            out, state = self.cell(x[:, t], state)
        return self.fc(out)


class LSTMGates(pn.Layer):
    """A linear layer for each gate, input and state side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.table = pn.Embedding(14, 5)
        self.forget, self.enter, self.new, self.leave = (pn.Linear(11, 6) for _ in range(4))
        self.head = pn.Linear(6, 3)

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        h = c = paddle.zeros([x.shape[0], 6], x.dtype)
        for t in range(x.shape[1]):
            both = paddle.concat([x[:, t], h], axis=1)
            c = PF.sigmoid(self.forget(both)) * c + PF.sigmoid(self.enter(both)) * PF.tanh(self.new(both))
            h = PF.sigmoid(self.leave(both)) * PF.tanh(c)
        return self.head(h)


def lstm_gates(w: State) -> State:
    made = {**same(w, "words", "table"), **lin(w, "fc", "head")}
    whole = np.concatenate([w["lstm.weight_ih_l0"], w["lstm.weight_hh_l0"]], 1).reshape(4, 6, 11)
    bias = (w["lstm.bias_ih_l0"] + w["lstm.bias_hh_l0"]).reshape(4, 6)
    for i, name in enumerate(("enter", "forget", "new", "leave")):
        made[f"{name}.weight"], made[f"{name}.bias"] = whole[i].T, bias[i]
    return made


class HandLSTM(tn.Module):
    """One matrix for input and state, one bias, gates in the order f i o g."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = tn.Linear(4 + 5, 20)
        self.out = tn.Linear(5, 2)

    def forward(self, series: Any) -> Any:
        h = c = series.new_zeros(len(series), 5)
        seen = []
        for x in series.unbind(1):
            f, i, o, g = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            seen.append(h)
        return self.out(torch.stack(seen, 1))


class HandToFused(pn.Layer):
    """The framework's layer without its second bias."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = pn.LSTM(4, 5, bias_hh_attr=pn.initializer.Constant(0.0))
        self.out = pn.Linear(5, 2)

    def forward(self, series: Any) -> Any:
        return self.out(self.rnn(series)[0])


class HandToSplit(pn.Layer):
    """Input and state multiplied apart, all inputs at once."""

    def __init__(self) -> None:
        super().__init__()
        self.h2h, self.i2h = pn.Linear(5, 20, bias_attr=False), pn.Linear(4, 20)
        self.out = pn.Linear(5, 2)

    def forward(self, series: Any) -> Any:
        ready = self.i2h(series)
        h = c = paddle.zeros([series.shape[0], 5], series.dtype)
        seen = []
        for t in range(series.shape[1]):
            f, i, o, g = (ready[:, t] + self.h2h(h)).split(4, axis=1)
            c = PF.sigmoid(f) * c + PF.sigmoid(i) * PF.tanh(g)
            h = PF.sigmoid(o) * PF.tanh(c)
            seen.append(h)
        return self.out(paddle.stack(seen, axis=1))


def hand_to_fused(w: State) -> State:
    order = [1, 0, 3, 2]
    whole, bias = w["gates.weight"].reshape(4, 5, 9)[order].reshape(20, 9), w["gates.bias"].reshape(4, 5)[order]
    return {
        "rnn.weight_ih_l0": whole[:, :4],
        "rnn.weight_hh_l0": whole[:, 4:],
        "rnn.bias_ih_l0": bias.reshape(-1),
        "rnn.bias_hh_l0": np.zeros(20),
        **lin(w, "out", "out"),
    }


def hand_to_split(w: State) -> State:
    return {
        "i2h.weight": w["gates.weight"][:, :4].T,
        "i2h.bias": w["gates.bias"],
        "h2h.weight": w["gates.weight"][:, 4:].T,
        **lin(w, "out", "out"),
    }


# GRU.


class FusedGRU(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = tn.Linear(3, 5)
        self.gru = tn.GRU(5, 4, batch_first=True)
        self.out = tn.Linear(4, 2)

    def forward(self, series: Any) -> Any:
        return self.out(self.gru(torch.tanh(self.enter(series)))[0])


class GRUCells(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.out = pn.Linear(3, 5), pn.Linear(4, 2)
        self.gru = pn.GRUCell(5, 4)

    def forward(self, series: Any) -> Any:
        x = PF.tanh(self.enter(series))
        h, seen = paddle.zeros([x.shape[0], 4], x.dtype), []
        for t in range(x.shape[1]):
            h, _ = self.gru(x[:, t], h)
            seen.append(self.out(h))
        return paddle.stack(seen, axis=1)


class GRUGates(pn.Layer):
    """Reset, update and new written out, six layers."""

    def __init__(self) -> None:
        super().__init__()
        self.wz, self.wr, self.wn = (pn.Linear(5, 4) for _ in range(3))
        self.uz, self.ur, self.un = (pn.Linear(4, 4) for _ in range(3))
        self.first, self.last = pn.Linear(3, 5), pn.Linear(4, 2)

    def forward(self, series: Any) -> Any:
        x = PF.tanh(self.first(series))
        h, seen = paddle.zeros([x.shape[0], 4], x.dtype), []
        for t in range(x.shape[1]):
            z = PF.sigmoid(self.wz(x[:, t]) + self.uz(h))
            r = PF.sigmoid(self.wr(x[:, t]) + self.ur(h))
            n = PF.tanh(self.wn(x[:, t]) + r * self.un(h))
            h = n + z * (h - n)
            seen.append(h)
        return self.last(paddle.stack(seen, axis=1))


class GRUFramework(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = pn.Linear(4, 2), pn.GRU(5, 4, time_major=True), pn.Linear(3, 5)

    def forward(self, series: Any) -> Any:
        x = PF.tanh(self.c(series)).transpose([1, 0, 2])
        return self.a(self.b(x)[0]).transpose([1, 0, 2])


def gru_gates(w: State, layer: str = "gru", sizes: tuple[int, int] = (5, 4), suffix: str = "_l0") -> State:
    made = {}
    n_in, n = sizes
    for i, letter in enumerate("rzn"):
        made[f"w{letter}.weight"] = w[f"{layer}.weight_ih{suffix}"].reshape(3, n, n_in)[i].T
        made[f"u{letter}.weight"] = w[f"{layer}.weight_hh{suffix}"].reshape(3, n, n)[i].T
        made[f"w{letter}.bias"] = w[f"{layer}.bias_ih{suffix}"].reshape(3, n)[i]
        made[f"u{letter}.bias"] = w[f"{layer}.bias_hh{suffix}"].reshape(3, n)[i]
    return made


# Simple RNN.


class SimpleRNN(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = tn.RNN(4, 5, batch_first=True, nonlinearity="relu")
        self.fc = tn.Linear(5, 3)

    def forward(self, series: Any) -> Any:
        out, last = self.rnn(series)
        return self.fc(out.mean(1) + last[0])


class SimpleFramework(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.fc = pn.SimpleRNN(4, 5, activation="relu"), pn.Linear(5, 3)

    def forward(self, series: Any) -> Any:
        out, last = self.rnn(series)
        return self.fc(out.mean(1) + last[0])


class SimpleHand(pn.Layer):
    """The two biases are one."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.U = self.create_parameter([4, 5]), self.create_parameter([5, 5])
        self.b = self.create_parameter([5], is_bias=True)
        self.out = pn.Linear(5, 3)

    def forward(self, series: Any) -> Any:
        h, seen = paddle.zeros([series.shape[0], 5], series.dtype), []
        for t in range(series.shape[1]):
            h = PF.relu(series[:, t] @ self.W + h @ self.U + self.b)
            seen.append(h)
        return self.out(sum(seen) / len(seen) + h)


# Both directions.


class BothWays(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = tn.Embedding(12, 4)
        self.rnn = tn.LSTM(4, 3, batch_first=True, bidirectional=True)
        self.tag = tn.Linear(6, 5)

    def forward(self, ids: Any) -> Any:
        return self.tag(self.rnn(self.words(ids))[0]).flatten(0, 1)


class BothFramework(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.tag = pn.Embedding(12, 4), pn.Linear(6, 5)
        self.rnn = pn.LSTM(4, 3, direction="bidirect")

    def forward(self, ids: Any) -> Any:
        return self.tag(self.rnn(self.words(ids))[0]).flatten(0, 1)


class BothApart(pn.Layer):
    """Two layers; the second hears the sequence backwards. It is registered first."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn1, self.rnn0 = pn.LSTM(4, 3), pn.LSTM(4, 3)
        self.emb, self.cls = pn.Embedding(12, 4), pn.Linear(6, 5)

    def forward(self, ids: Any) -> Any:
        x = self.emb(ids)
        there = self.rnn1(x.flip([1]))[0].flip([1])
        return self.cls(paddle.concat([self.rnn0(x)[0], there], axis=-1)).flatten(0, 1)


class BothCells(pn.Layer):
    """Cells in a loop, and the tagger's matrix applied to each direction's half."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.create_parameter([12, 4])
        self.right, self.left = pn.LSTMCell(4, 3), pn.LSTMCell(4, 3)
        self.from_right, self.from_left = pn.Linear(3, 5), pn.Linear(3, 5, bias_attr=False)

    def run(self, step: Any, x: Any, order: Any) -> Any:
        state = (paddle.zeros([x.shape[0], 3], x.dtype), paddle.zeros([x.shape[0], 3], x.dtype))
        seen = {}
        for t in order:
            seen[t], state = step(x[:, t], state)
        return paddle.stack([seen[t] for t in range(x.shape[1])], axis=1)

    def forward(self, ids: Any) -> Any:
        x = PF.embedding(ids, self.table)
        times = range(x.shape[1])
        y = self.from_right(self.run(self.right, x, times)) + self.from_left(self.run(self.left, x, times[::-1]))
        return y.flatten(0, 1)


def both_apart(w: State) -> State:
    made = {**same(w, "words", "emb"), **lin(w, "tag", "cls")}
    for new, suffix in (("rnn0", "_l0"), ("rnn1", "_l0_reverse")):
        made |= {f"{new}.{leaf}_l0": w[f"rnn.{leaf}{suffix}"] for leaf in LEAVES}
    return made


def both_cells(w: State) -> State:
    return {
        "table": w["words.weight"],
        **cell(w, "rnn", "right"),
        **cell(w, "rnn", "left", "_l0_reverse"),
        "from_right.weight": w["tag.weight"][:, :3].T,
        "from_right.bias": w["tag.bias"],
        "from_left.weight": w["tag.weight"][:, 3:].T,
    }


# Two layers.


class TwoLayers(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = tn.GRU(4, 4, num_layers=2, batch_first=True)
        self.fc = tn.Linear(4, 4)

    def forward(self, series: Any) -> Any:
        return self.fc(self.gru(series)[0])


class TwoStacked(pn.Layer):
    """Two layers of one; all matrices have one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.upper, self.lower, self.fc = pn.GRU(4, 4), pn.GRU(4, 4), pn.Linear(4, 4)

    def forward(self, series: Any) -> Any:
        return self.fc(self.upper(self.lower(series)[0])[0])


class TwoCells(pn.Layer):
    """Both cells advance together in one loop; initial states of their own making."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = pn.LayerList([pn.GRUCell(4, 4), pn.GRUCell(4, 4)])
        self.proj = pn.Linear(4, 4)

    def forward(self, series: Any) -> Any:
        states = [paddle.zeros([series.shape[0], 4], series.dtype) for _ in self.cells]
        seen = []
        for x in series.unbind(1):
            for i, step in enumerate(self.cells):
                x, states[i] = step(x, states[i])
            seen.append(self.proj(x))
        return paddle.stack(seen, axis=1)


# A sequence to sequence model whose loop ends when the model says so.


class Speaker(tn.Module):
    """Decodes greedily; each sentence counts until it says 0, and the loop ends when all have, or after nine words."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = tn.Embedding(10, 5), tn.Embedding(8, 5)
        self.encoder = tn.GRU(5, 6, batch_first=True)
        self.decoder = tn.GRUCell(5, 6)
        self.out = tn.Linear(6, 8)

    def forward(self, ids: Any) -> Any:
        state = self.encoder(self.source(ids))[1][0]
        word = torch.ones(len(ids), dtype=torch.long)
        alive, total = torch.ones(len(ids), dtype=torch.bool), 0
        for _ in range(9):
            state = self.decoder(self.target(word), state)
            scores = self.out(state)
            total = total + scores * alive[:, None].to(scores.dtype)
            word = scores.argmax(1)
            alive = alive & (word != 0)
            if not alive.any():
                break
        return total


class SpeakerFused(pn.Layer):
    """Encoder by cells, decoder as a fused layer asked for one step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = pn.GRUCell(5, 6)
        self.decoder = pn.GRU(5, 6)
        self.trg, self.src = pn.Embedding(8, 5), pn.Embedding(10, 5)
        self.out = pn.Linear(6, 8)

    def forward(self, ids: Any) -> Any:
        x = self.src(ids)
        state = paddle.zeros([x.shape[0], 6], x.dtype)
        for t in range(x.shape[1]):
            _, state = self.encoder(x[:, t], state)
        word = paddle.ones([ids.shape[0]], "int64")
        alive, total = paddle.ones([ids.shape[0], 1], x.dtype), 0
        for _ in range(9):
            seen, last = self.decoder(self.trg(word).unsqueeze(1), state.unsqueeze(0))
            state, scores = last[0], self.out(seen[:, 0])
            total = total + scores * alive
            word = scores.argmax(1)
            alive = alive * (word != 0).astype(x.dtype).unsqueeze(1)
            if float(alive.sum()) == 0:
                break
        return total


class SpeakerGates(pn.Layer):
    """Gates by hand in both halves, packed; scores collected and added at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.words_in, self.words_out = self.create_parameter([10, 5]), self.create_parameter([8, 5])
        self.dec_x, self.dec_h = pn.Linear(5, 18), pn.Linear(6, 18)
        self.enc_x, self.enc_h = pn.Linear(5, 18), pn.Linear(6, 18)
        self.vocab = pn.Linear(6, 8)

    def step(self, x: Any, h: Any) -> Any:
        (r0, z0, n0), (r1, z1, n1) = x.chunk(3, axis=1), h[1].chunk(3, axis=1)
        r, z = PF.sigmoid(r0 + r1), PF.sigmoid(z0 + z1)
        return (1 - z) * PF.tanh(n0 + r * n1) + z * h[0]

    def forward(self, ids: Any) -> Any:
        x = self.enc_x(PF.embedding(ids, self.words_in))
        state = paddle.zeros([x.shape[0], 6], x.dtype)
        for t in range(x.shape[1]):
            state = self.step(x[:, t], (state, self.enc_h(state)))
        word, alive, said = paddle.ones([ids.shape[0]], "int64"), paddle.ones([ids.shape[0]], "bool"), []
        while bool(alive.any()) and len(said) < 9:
            heard = self.dec_x(PF.embedding(word, self.words_out))
            state = self.step(heard, (state, self.dec_h(state)))
            scores = self.vocab(state)
            said.append(paddle.where(alive.unsqueeze(1), scores, paddle.zeros_like(scores)))
            word = paddle.argmax(scores, axis=1)
            alive = paddle.logical_and(alive, word != 0)
        return paddle.add_n(said)


def speaker_fused(w: State) -> State:
    return {
        **sames(w, {"source": "src", "target": "trg"}),
        **cell(w, "encoder", "encoder"),
        **{f"decoder.{leaf}_l0": w[f"decoder.{leaf}"] for leaf in LEAVES},
        **lin(w, "out", "out"),
    }


def speaker_gates(w: State) -> State:
    made = {"words_in": w["source.weight"], "words_out": w["target.weight"], **lin(w, "out", "vocab")}
    for short, long, suffix in (("enc", "encoder", "_l0"), ("dec", "decoder", "")):
        for letter, kind in (("x", "ih"), ("h", "hh")):
            made[f"{short}_{letter}.weight"] = w[f"{long}.weight_{kind}{suffix}"].T
            made[f"{short}_{letter}.bias"] = w[f"{long}.bias_{kind}{suffix}"]
    return made


# A convolutional GRU.


class ConvGRU(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = tn.Conv2d(2 + 3, 6, 3, padding=1)
        self.new = tn.Conv2d(2 + 3, 3, 3, padding=1)

    def forward(self, video: Any) -> Any:
        h = video.new_zeros(video.shape[0], 3, *video.shape[3:])
        for x in video.unbind(1):
            r, z = torch.sigmoid(self.gates(torch.cat([x, h], 1))).chunk(2, 1)
            n = torch.tanh(self.new(torch.cat([x, r * h], 1)))
            h = (1 - z) * h + z * n
        return h


class ConvGRUApart(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.update, self.reset, self.cand = (pn.Conv2D(5, 3, 3, padding=1) for _ in range(3))

    def forward(self, video: Any) -> Any:
        h = paddle.zeros([video.shape[0], 3, *video.shape[3:]], video.dtype)
        for t in range(video.shape[1]):
            both = paddle.concat([video[:, t], h], axis=1)
            z, r = PF.sigmoid(self.update(both)), PF.sigmoid(self.reset(both))
            n = PF.tanh(self.cand(paddle.concat([video[:, t], r * h], axis=1)))
            h = h + z * (n - h)
        return h


class ConvGRUInputs(pn.Layer):
    """One convolution for all inputs of all times, others for the state."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = pn.Conv2D(2, 9, 3, padding=1)
        self.state, self.state_new = (pn.Conv2D(3, n, 3, padding=1, bias_attr=False) for n in (6, 3))

    def forward(self, video: Any) -> Any:
        b, n = video.shape[:2]
        ready = self.inputs(video.flatten(0, 1)).reshape([b, n, 9, *video.shape[3:]])
        h = paddle.zeros([b, 3, *video.shape[3:]], video.dtype)
        for t in range(n):
            r, z = PF.sigmoid(ready[:, t, :6] + self.state(h)).split(2, axis=1)
            new = PF.tanh(ready[:, t, 6:] + self.state_new(r * h))
            h = (1 - z) * h + z * new
        return h


def conv_gru_apart(w: State) -> State:
    made = same(w, "new", "cand")
    for leaf in ("weight", "bias"):
        made[f"reset.{leaf}"], made[f"update.{leaf}"] = np.split(w[f"gates.{leaf}"], 2)
    return made


def conv_gru_inputs(w: State) -> State:
    return {
        "inputs.weight": np.concatenate([w["gates.weight"][:, :2], w["new.weight"][:, :2]]),
        "inputs.bias": np.concatenate([w["gates.bias"], w["new.bias"]]),
        "state.weight": w["gates.weight"][:, 2:],
        "state_new.weight": w["new.weight"][:, 2:],
    }


# A diagonal state space.


class StateSpace(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decay = tn.Parameter(torch.linspace(-1, 2, 6))
        self.enter, self.leave, self.skip = tn.Linear(3, 6), tn.Linear(6, 3, bias=False), tn.Parameter(torch.ones(3))

    def forward(self, series: Any) -> Any:
        a = torch.sigmoid(self.decay)
        u, h, seen = self.enter(series), 0, []
        for t in range(series.shape[1]):
            h = a * h + u[:, t]
            seen.append(h)
        return self.leave(torch.stack(seen, 1)) + self.skip * series


class StateSpaceMatrix(pn.Layer):
    """The recurrence as a product with a triangular matrix of powers."""

    def __init__(self) -> None:
        super().__init__()
        self.D, self.log_a = self.create_parameter([3]), self.create_parameter([6])
        self.B, self.C = pn.Linear(3, 6), pn.Linear(6, 3, bias_attr=False)

    def forward(self, series: Any) -> Any:
        n = series.shape[1]
        places = paddle.arange(n).astype(series.dtype)
        steps = places.unsqueeze(1) - places.unsqueeze(0)
        powers = PF.sigmoid(self.log_a).reshape([6, 1, 1]) ** PF.relu(steps)
        powers = powers * (steps >= 0).astype(series.dtype)
        h = paddle.einsum("dts,bsd->btd", powers, self.B(series))
        return self.C(h) + series * self.D


class StateSpaceConv(pn.Layer):
    """The recurrence as a causal depthwise convolution whose kernel is made of powers."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = self.create_parameter([6, 3, 1]), self.create_parameter([3, 6, 1])
        self.bias = self.create_parameter([6], is_bias=True)
        self.a, self.d = self.create_parameter([6, 1]), self.create_parameter([3, 1])

    def forward(self, series: Any) -> Any:
        x, n = series.transpose([0, 2, 1]), series.shape[1]
        kernel = PF.sigmoid(self.a) ** paddle.arange(n - 1, -1, -1).astype(series.dtype)
        u = PF.pad(PF.conv1d(x, self.enter, self.bias), [n - 1, 0], data_format="NCL")
        y = PF.conv1d(PF.conv1d(u, kernel.unsqueeze(1), groups=6), self.leave) + self.d * x
        return y.transpose([0, 2, 1])


def state_space_conv(w: State) -> State:
    return {
        "enter": w["enter.weight"][:, :, None], "leave": w["leave.weight"][:, :, None], "bias": w["enter.bias"],
        "a": w["decay"][:, None], "d": w["skip"][:, None],
    }  # fmt: skip


PORTS = (
    Port(
        "fused_lstm", FusedLSTM,
        (
            Formulation("framework", LSTMFramework, lambda w: {**sames(w, "words lstm"), **lin(w, "fc", "fc")}),
            Formulation("cells", LSTMCells, lambda w: {
                **same(w, "words", "emb"), **cell(w, "lstm", "cell"), **lin(w, "fc", "fc"),
            }),
            Formulation("gates", LSTMGates, lstm_gates, loss=paddle_entropy_by_hand),
        ),
        {"ids": ints(14, 3, 5)}, ints(3, 3), ENTROPY, swap=True,
    ),
    Port(
        "hand_lstm", HandLSTM,
        (Formulation("fused", HandToFused, hand_to_fused), Formulation("split", HandToSplit, hand_to_split)),
        {"series": floats(3, 4, 4)},
    ),
    Port(
        "fused_gru", FusedGRU,
        (
            Formulation("cells", GRUCells, lambda w: {**lins(w, "enter out"), **cell(w, "gru", "gru")}),
            Formulation("gates", GRUGates, lambda w: {**lins(w, {"enter": "first", "out": "last"}), **gru_gates(w)}),
            Formulation("framework", GRUFramework, lambda w: {
                **lins(w, {"enter": "c", "out": "a"}), **same(w, "gru", "b"),
            }),
        ),
        {"series": floats(3, 5, 3)}, floats(3, 5, 2), SQUARE, swap=True,
    ),
    Port(
        "simple_rnn", SimpleRNN,
        (
            Formulation("framework", SimpleFramework, lambda w: {**same(w, "rnn"), **lin(w, "fc", "fc")}),
            Formulation("hand", SimpleHand, lambda w: {
                "W": w["rnn.weight_ih_l0"].T, "U": w["rnn.weight_hh_l0"].T,
                "b": w["rnn.bias_ih_l0"] + w["rnn.bias_hh_l0"], **lin(w, "fc", "out"),
            }),
        ),
        {"series": floats(3, 5, 4)}, floats(3, 3), SQUARE,
    ),
    Port(
        "both_ways", BothWays,
        (
            Formulation("framework", BothFramework, lambda w: {**sames(w, "words rnn"), **lin(w, "tag", "tag")}),
            Formulation("apart", BothApart, both_apart),
            Formulation("cells", BothCells, both_cells),
        ),
        {"ids": ints(12, 2, 5)}, ints(5, 10), ENTROPY,
    ),
    Port(
        "two_layers", TwoLayers,
        (
            Formulation("stacked", TwoStacked, lambda w: {
                **{f"lower.{leaf}_l0": w[f"gru.{leaf}_l0"] for leaf in LEAVES},
                **{f"upper.{leaf}_l0": w[f"gru.{leaf}_l1"] for leaf in LEAVES},
                **lin(w, "fc", "fc"),
            }),
            Formulation("cells", TwoCells, lambda w: {
                **cell(w, "gru", "cells.0"), **cell(w, "gru", "cells.1", "_l1"), **lin(w, "fc", "proj"),
            }),
            Formulation("misleading", renamed(TwoStacked, upper="layer0", lower="layer1"), lambda w: {
                **{f"layer1.{leaf}_l0": w[f"gru.{leaf}_l0"] for leaf in LEAVES},
                **{f"layer0.{leaf}_l0": w[f"gru.{leaf}_l1"] for leaf in LEAVES},
                **lin(w, "fc", "fc"),
            }),
        ),
        {"series": floats(2, 5, 4)}, floats(2, 5, 4), SQUARE,
    ),
    Port(
        "speaker", Speaker,
        (Formulation("fused", SpeakerFused, speaker_fused), Formulation("gates", SpeakerGates, speaker_gates)),
        {"ids": ints(10, 3, 4)}, floats(3, 8), SQUARE, swap=True,
    ),
    Port(
        "conv_gru", ConvGRU,
        (
            Formulation("apart", ConvGRUApart, conv_gru_apart),
            Formulation("inputs", ConvGRUInputs, conv_gru_inputs),
        ),
        {"video": floats(2, 3, 2, 4, 4)}, floats(2, 3, 4, 4), SQUARE,
    ),
    Port(
        "state_space", StateSpace,
        (
            Formulation("matrix", StateSpaceMatrix, lambda w: {
                "D": w["skip"], "log_a": w["decay"], **lins(w, {"enter": "B", "leave": "C"}),
            }),
            Formulation("conv", StateSpaceConv, state_space_conv),
        ),
        {"series": floats(2, 6, 3)}, floats(2, 6, 3), SQUARE, swap=True,
    ),
)  # fmt: skip
