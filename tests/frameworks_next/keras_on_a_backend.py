"""Aligns ports on the backend that this process is started with: two right ones, two wrong ones."""

import sys

import keras
import keras_models as ports
import numpy as np
import torch
import torch_models as models

from reprod_log import Status, align_models

assert keras.backend.backend() == sys.argv[1]
for kind in (models.Mlp, models.ConvNet):
    model, batch = models.made(kind), models.batch_for(kind)
    targets = np.random.default_rng(0).normal(size=tuple(model(batch).shape)).astype(np.float32)
    port = getattr(ports, kind.__name__)()
    if not port.built:
        port(batch.numpy())
    right = align_models(
        model,
        port,
        batch,
        targets=targets,
        loss=(lambda o, t: ((o - t) ** 2).mean(), lambda o, t: keras.ops.mean((o - t) ** 2)),
        optimizer=(
            lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9),
            lambda m: keras.optimizers.SGD(0.1, 0.9),
        ),
        steps=2,
    )
    assert right.status is Status.PASS, str(right)
    assert {one.key.phase for one in right.verdict.judgements} >= {"forward", "backward", "gradient", "update"}
    wrong = getattr(ports, kind.__name__)(eps=1e-3)
    if not wrong.built:
        wrong(batch.numpy())
    found = align_models(model, wrong, batch)
    assert found.status is Status.FAIL
    assert found.verdict.first_divergence.key.path in ("norm", "bn1"), str(found)
