"""Recordings of made-up models, and what `match` makes of two of them, in a form that tests can read."""

from __future__ import annotations

from typing import Any

import numpy as np

from reprod_log.pairing import Pairing, match
from reprod_log.recording import ModuleInfo, Recording, entry_of

TORCH = {
    "linear": "torch.nn.modules.linear.Linear", "conv2d": "torch.nn.modules.conv.Conv2d",
    "relu": "torch.nn.modules.activation.ReLU", "lstm": "torch.nn.modules.rnn.LSTM", "": "mine.Block",
    "dropout": "torch.nn.modules.dropout.Dropout", "gelu": "torch.nn.modules.activation.GELU",
    "pool": "torch.nn.modules.pooling.MaxPool2d",
}  # fmt: skip
PADDLE = {
    "linear": "paddle.nn.layer.common.Linear", "conv2d": "paddle.nn.layer.conv.Conv2D",
    "relu": "paddle.nn.layer.activation.ReLU", "lstm": "paddle.nn.layer.rnn.LSTM", "": "theirs.Block",
    "dropout": "paddle.nn.layer.common.Dropout", "gelu": "paddle.nn.layer.activation.GELU",
    "pool": "paddle.nn.layer.pooling.MaxPool2D",
}  # fmt: skip


class Model:
    """Collects modules and entries of one side."""

    def __init__(self, origins: dict[str, str] = TORCH) -> None:
        self.origins = origins
        self.modules: list[ModuleInfo] = []
        self.entries: list[tuple[str, np.ndarray, dict[str, Any]]] = []

    def module(
        self, path: str, kind: str, parameters: dict[str, tuple[int, ...]] | None = None, **settings: Any
    ) -> Model:
        origin = self.origins[kind]
        self.modules.append(ModuleInfo(path, origin.rpartition(".")[2], kind, parameters or {}, origin, settings))
        return self

    def entry(self, key: str, value: Any, **facts: Any) -> Model:
        self.entries.append((key, np.asarray(value, facts.pop("as_", None)), facts))
        return self

    def linear(self, path: str, weight: np.ndarray, output: Any = None, *, step: int = 0) -> Model:
        """A linear layer with its parameter, gradient and output; paddle keeps the weight the other way round."""
        stored = weight if self.origins is TORCH else weight.T
        self.module(path, "linear", {"weight": stored.shape})
        if output is not None:
            self.entry(f"step{step}/forward/{path}#0:output", output)
        self.entry(f"step{step}/gradient/{path}.weight:raw", stored + 1)
        return self.entry(f"step{step}/parameter/{path}.weight", stored)

    def simple(self, path: str, kind: str, shape: tuple[int, ...] = (2, 3)) -> Model:
        return self.module(path, kind).entry(f"step0/forward/{path}#0:output", np.ones(shape))

    def recording(self) -> Recording:
        entries = tuple(entry_of(key, value, **facts) for key, value, facts in self.entries)
        return Recording(entries, modules=tuple(self.modules))


def matched(ours: Model | Recording, theirs: Model | Recording, **options: Any) -> Pairing:
    """What `match` finds for two made-up models, or for recordings of them."""
    one, other = (side.recording() if isinstance(side, Model) else side for side in (ours, theirs))
    return match(one, other, **options)


def partners(pairing: Pairing) -> dict[str, tuple[str, str, float]]:
    return {str(pair.reference.key): (str(pair.candidate.key), pair.how, pair.confidence) for pair in pairing.pairs}


def modules(ours: Model | Recording, theirs: Model | Recording, **options: Any) -> dict[str, tuple[str, str]]:
    """The partner of each module, and how it was found, by what the modules gave at their first call."""
    return {
        pair.reference.key.path: (pair.candidate.key.path, pair.how)
        for pair in reversed(matched(ours, theirs, **options).pairs)
        if pair.reference.key.phase == "forward" and pair.reference.key.role.startswith("output")
    }


def unmatched(pairing: Pairing) -> tuple[list[str], list[str], list[str]]:
    """Keys without a partner: in the reference, in the candidate, and those that need none."""
    groups = (pairing.only_in_reference, pairing.only_in_candidate, pairing.structural)
    return tuple([str(entry.key) for entry in group] for group in groups)  # type: ignore[return-value]


FIRST, SECOND = np.arange(12.0).reshape(4, 3), np.arange(8.0).reshape(2, 4) + 50


def pair_of_models(names: tuple[str, str] = ("a", "b")) -> tuple[Model, Model]:
    ours = Model().linear("fc1", FIRST, np.ones((5, 4))).linear("fc2", SECOND, np.ones((5, 2)))
    theirs = Model(PADDLE).linear(names[0], FIRST, np.ones((5, 4))).linear(names[1], SECOND, np.ones((5, 2)))
    return ours, theirs


def attention(names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "out_proj")) -> Model:
    """A block of paddle with linear layers of one width, the first with weights of 0, and one more layer behind it."""
    model = Model(PADDLE).module("", "").module("self", "")
    for place, name in enumerate(names):
        model.linear(f"self.{name}", np.full((4, 4), float(place)), np.ones((5, 4)))
    model.entry("step0/forward/self#0:output", np.ones((5, 4)))
    return model.linear("last", SECOND, np.ones((5, 2))).entry("step0/forward/#0:output", np.ones((5, 2)))


def packed_attention() -> Model:
    """An attention layer of torch, which keeps three of its projections in one tensor, with the same weights."""
    model = Model().module("", "")
    weights = {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)}
    origin = "torch.nn.modules.activation.MultiheadAttention"
    settings = {"embed_dim": 4, "num_heads": 1}
    model.modules.append(ModuleInfo("attn", "MultiheadAttention", "attention", weights, origin, settings))
    for (name, shape), first in zip(weights.items(), (0, 3), strict=True):
        rows = first + np.repeat(np.arange(shape[0] // 4), 4)
        model.entry(f"step0/parameter/attn.{name}", rows[:, None] * np.ones((1, 4)))
    model.entry("step0/forward/attn#0:output.0", np.ones((5, 4)))
    return model.linear("last", SECOND, np.ones((5, 2))).entry("step0/forward/#0:output", np.ones((5, 2)))
