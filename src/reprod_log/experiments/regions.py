"""Regions: every module alone, on the reference's own input and a fixed gradient of its output.

A module's own error then stands apart from what it inherited from those before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reprod_log.capture.eager import runner_of
from reprod_log.errors import first_line
from reprod_log.frameworks.contract import Call, Cotangent, Evaluated, Shape
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.nests import plain_role
from reprod_log.frameworks.side import Scope, Side
from reprod_log.messages import Foreign, Message, Name, message
from reprod_log.progress import each
from reprod_log.recording import Array, Entry, Key
from reprod_log.recording.recorder import Recorder


def run_alone(
    side: Side,
    calls: Sequence[Call],
    scope: Scope,
    *,
    paths: Mapping[str, str],
    exchanged: Collection[str] = (),
) -> tuple[tuple[Entry, ...], tuple[Message, ...]]:
    """Entries of every module run alone, and notes about those that could not be.

    `paths` maps the reference's paths (those of `calls`) to this side's; modules in `exchanged` take time and
    batch in the opposite order.
    """
    runner = runner_of(side.framework)
    recorder = Recorder(spool=scope.spool)
    notes: list[Message] = []
    done: set[str] = set()
    for call in each("progress.layers", calls):
        path = paths.get(call.path)
        # A model may wrap what the other side is as a whole: the outer and the inner module then have one partner.
        if path is None or path in done:
            continue
        done.add(path)
        given = time_and_batch_first(call) if call.path in exchanged else call
        try:
            found = runner.call(side, path, given, scope, cotangent_of(given, scope.counts))
        except Exception as error:  # a layer may raise anything on a foreign input; the reason is kept
            notes.append(_not_alone(path, side.framework.name, scope.dtype, first_line(error)))
            continue
        made = sum(one.size for one in found.outputs.values())
        for key, array in _entries(given, path, found, scope.run):
            # As many terms are summed into each element of a bias or a statistic.
            summed = key.phase in ("gradient", "buffer") and array.ndim == 1 and array.size
            meta = {"terms": max(made // array.size, 1)} if summed else None
            recorder.add(key, array, layer_type=found.layer_type, meta=meta)
    return recorder.close().entries, tuple(notes)


def _entries(call: Call, path: str, found: Evaluated, run: str) -> list[tuple[Key, Array]]:
    return [
        *((Key(path, "forward", 0, 0, role, run), array) for role, array in found.outputs.items()),
        *(
            (Key(path, "backward", 0, 0, call.roles.get(role, role), run), array)
            for role, array in found.input_gradients.items()
        ),
        *(
            (Key(join(path, name), "gradient", 0, None, "raw", run, region=call.path), array)
            for name, array in found.parameter_gradients.items()
        ),
        *(
            (Key(join(path, name), "buffer", 0, None, "", run, region=call.path), array)
            for name, array in found.buffers.items()
        ),
    ]


def time_and_batch_first(call: Call) -> Call:
    """The call for a module that takes time and batch in the opposite order."""
    args = tuple(_exchanged(arg) for arg in call.args)
    kwargs = {name: _exchanged(arg) for name, arg in call.kwargs.items()}
    return replace(call, args=args, kwargs=kwargs, exchanged=True)


def _exchanged(value: Any) -> Any:
    return value.swapaxes(0, 1) if isinstance(value, np.ndarray) and value.ndim == 3 else value


def cotangent_of(call: Call, counts: Array | None = None) -> Cotangent:
    """The gradients given to the outputs of a region: the same for both sides, different for every module.

    Few digits, so that every floating type holds them exactly. Zeros at the positions that do not count.
    """

    def cotangent(role: str, shape: Shape) -> Array | None:
        if call.shared is not None and plain_role(role) not in call.shared:
            return None
        seed = hashlib.blake2b(f"{call.path}:{plain_role(role)}".encode(), digest_size=8).digest()
        generator = np.random.default_rng(int.from_bytes(seed, "little"))
        if call.exchanged and role in ("output", "output.0") and len(shape) == 3:
            shape = (shape[1], shape[0], shape[2])
            return _coarse(generator.standard_normal(shape)).swapaxes(0, 1)
        found = _coarse(generator.standard_normal(shape))
        if counts is not None and shape[: counts.ndim] == counts.shape:
            found[~counts] = 0
        return found

    return cotangent


def _coarse(values: Array) -> Array:
    return (np.round(values * 64) / 64).astype(np.float32)


def _not_alone(path: str, framework: str, dtype: str | None, why: str) -> Message:
    known = {"path": Name(path), "framework": framework, "why": Foreign(why)}
    if dtype is None:
        return message("note.experiments.not_alone", **known)
    return message("note.experiments.not_alone.dtype", dtype=dtype, **known)
