"""Measures Keras ports: right ones over seeds, and planted mistakes: found, placed, cause named. Run by hand, long.

KERAS_BACKEND=torch python tests/frameworks_next/keras_zoo.py --seeds 3
"""

from __future__ import annotations

import argparse
from collections import Counter

import keras
import keras_models as ports
import numpy as np
import torch
import torch_models as models
from keras import activations as act

from reprod_log import Status, align_models


def layer(path):
    """A layer of a port by its path."""

    def of(port):
        for name in path.split("."):
            port = port[int(name)] if name.isdigit() else getattr(port, name, None) or port.get_layer(name)
        return port

    return of


def put(path, name, value):
    return lambda port: object.__setattr__(layer(path)(port), name, value)


def tanh_gelu(x):
    return keras.ops.gelu(x, approximate=True)


M = models
# Model, settings of the port, what is changed in it, places where the first difference may show ("." is the model's own
# output), and a word of the setting.
MISTAKES = [
    (M.Mlp, {"eps": 1e-3}, None, "norm", "eps"),
    (M.Mlp, {"eps": 1e-6}, None, "norm", "eps"),
    (M.Mlp, {"approximate": True}, None, "act leave", "gelu"),
    (M.Mlp, {}, put("enter", "activation", act.relu), "norm", ""),
    (M.Mlp, {}, put("leave", "activation", act.tanh), "leave .", ""),
    (M.Mlp, {}, put("leave", "activation", act.softmax), "leave .", ""),
    (M.ConvNet, {"eps": 1e-3}, None, "bn1", "eps"),
    (M.ConvNet, {}, put("bn2", "epsilon", 1e-3), "bn2", "eps"),
    (M.ConvNet, {"padding": "same"}, None, "conv1", "padding"),
    (M.ConvNet, {"counted": False}, None, "pool fc", ""),
    (M.ConvNet, {"rows": False}, None, "pool fc", ""),
    (M.ConvNet, {"slope": 0.1}, None, "relu conv2", "slope"),
    (M.ConvNet, {"slope": 0.3}, None, "relu conv2", "slope"),
    (M.ConvNet, {}, put("relu", "max_value", 1.0), "relu conv2", ""),
    (M.ConvNet, {}, put("conv2", "activation", act.relu), "bn2", ""),
    (M.ConvNet, {}, put("fc", "activation", act.softmax), "fc .", ""),
    (M.Stack, {"slope": 0.3}, None, "blocks.1.act blocks.1.conv2", "slope"),
    (M.Stack, {"slope": 0.2}, None, "blocks.1.act blocks.1.conv2", "slope"),
    (M.Stack, {"scale": 0.5}, None, "blocks.1.act blocks.1", ""),
    (M.Stack, {"scale": 2.0}, None, "blocks.1.act blocks.1", ""),
    (M.Stack, {"scale": -1.0}, None, "blocks.1.act blocks.1", ""),
    (M.Stack, {}, put("blocks.0.bn1", "epsilon", 1e-3), "blocks.0.bn1", "eps"),
    (M.Stack, {}, put("blocks.1.bn2", "epsilon", 1e-3), "blocks.1.bn2", "eps"),
    (M.Stack, {}, put("blocks.0.conv1", "activation", act.relu), "blocks.0.bn1", ""),
    (M.Stack, {}, put("stem", "activation", act.tanh), "blocks.0 blocks.0.conv1", ""),
    (M.Block, {"scaled": False}, None, "attn.out attn", ""),
    (M.Block, {"eps": 1e-3}, None, "norm2", "eps"),
    (M.Block, {"eps": 1e-6}, None, "norm2", "eps"),
    (M.Block, {"activation": "relu"}, None, "act down", ""),
    (M.Block, {"activation": "silu"}, None, "act down", ""),
    (M.Block, {"activation": tanh_gelu}, None, "act down", "gelu"),
    (M.Block, {}, put("norm1", "epsilon", 1e-3), "norm1", "eps"),
    (M.Block, {}, put("attn", "heads", 2), "attn.out attn", ""),
    (M.Block, {}, put("attn", "heads", 8), "attn.out attn", ""),
    (M.Block, {}, put("attn.query", "activation", act.relu), "attn.out attn", ""),
    (M.Block, {}, put("down", "activation", act.relu), "down .", ""),
    (M.Language, {"doubled": True}, None, "block block.norm1", ""),
    (M.Language, {"eps": 1e-3}, None, "block.norm2", "eps"),
    (M.Language, {}, put("norm", "epsilon", 1e-3), "norm", "eps"),
    (M.Language, {}, put("head", "activation", act.softmax), "head .", ""),
    (M.Language, {"activation": "relu"}, None, "block.act block.down", ""),
    (M.Decoder, {"groups": 4}, None, "norm", "num_groups"),
    (M.Decoder, {"groups": 8}, None, "norm", "num_groups"),
    (M.Decoder, {"method": "nearest"}, None, "up back", "mode"),
    (M.Decoder, {}, put("norm", "epsilon", 1e-3), "norm", "eps"),
    (M.Decoder, {}, put("act", "activation", act.relu), "act up", ""),
    (M.Decoder, {}, put("act", "activation", act.gelu), "act up", ""),
    (M.Decoder, {}, put("back", "activation", act.tanh), "back .", ""),
]  # fmt: skip


def built(kind, settings, batch):
    port = getattr(ports, kind.__name__)(**settings)
    if not port.built:
        port(batch.numpy())
    return port


def right_ports(seeds):
    wrong = 0
    for seed in range(seeds):
        for kind in models.INPUTS:
            model, batch = models.made(kind, seed), models.batch_for(kind, seed + 1)
            targets = np.random.default_rng(seed).normal(size=tuple(model(batch).shape)).astype(np.float32)
            found = align_models(
                model, built(kind, {}, batch), batch, targets=targets,
                loss=(lambda o, t: ((o - t) ** 2).mean(), lambda o, t: keras.ops.mean((o - t) ** 2)),
                optimizer=(
                    lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9),
                    lambda m: keras.optimizers.SGD(0.05, 0.9),
                ),
                steps=2,
            )  # fmt: skip
            causes = [one for one in found.findings if one.kind == "cause"]
            if found.status is not Status.PASS or causes:
                wrong += 1
                print("FALSE ALARM", kind.__name__, seed, found.status, found.verdict.first_divergence, flush=True)
    print(f"right ports: {wrong} false alarms of {seeds * len(models.INPUTS)}", flush=True)


def mistakes():
    count = Counter()
    for kind, settings, change, places, _ in MISTAKES:
        model, batch = models.made(kind), models.batch_for(kind)
        port = built(kind, settings, batch)
        if change is not None:
            change(port)
        count["all"] += 1
        try:
            found = align_models(model, port, batch)
        except Exception as error:
            print("REFUSED", kind.__name__, settings, type(error).__name__, str(error)[:150], flush=True)
            continue
        first = found.verdict.first_divergence
        causes = [one for one in found.findings if one.kind == "cause"]
        count["found"] += found.status is not Status.PASS
        placed = first is not None and (first.key.path or ".") in places.split()
        count["placed"] += placed
        count["cause"] += bool(causes)
        count["proven"] += any(one.confidence == "proven" for one in causes)
        if not placed or not causes:
            print(kind.__name__, settings, places, "->", first and first.key, len(causes), flush=True)
    print("mistakes:", dict(count), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    right_ports(parser.parse_args().seeds)
    mistakes()
