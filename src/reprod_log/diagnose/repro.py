"""A script that runs one layer alone in both frameworks, with its weights and its input, to show to other people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.errors import UsageError, listed
from reprod_log.layers.lookup import PACKAGES, TENSOR_MAKERS, family_of, layer_kind
from reprod_log.pairing import match
from reprod_log.recording import Array, Key, ModuleInfo, Recording


def write_repro(reference: Recording, candidate: Recording, *, layer: str, folder: Path) -> Path:
    """Write `repro.py` and `layer.npz` for the reference's layer at path `layer`; gives back the script."""
    pairs = {
        pair.reference.key.path: pair.candidate.key.path
        for pair in match(reference, candidate).pairs
        if pair.reference.key.phase == "forward" and not pair.reference.key.run
    }
    if layer not in pairs:
        raise UsageError(f"no layer {layer!r} runs on both sides; paired are {listed([p for p in pairs if p])}")
    arrays: dict[str, Array] = {}
    sides = []
    for side, recording, path in (("reference", reference, layer), ("candidate", candidate, pairs[layer])):
        module = _module(recording, path)
        for name, array in _weights(recording, path).items():
            arrays[f"{side}/{name}"] = array
        output = _entry(recording, path, "output")
        if output is not None:
            arrays[f"{side}.output"] = output
        sides.append((side, module, _arguments(module, _weights(recording, path))))
    given = _entry(reference, layer, "input.0")
    if given is None:
        raise UsageError(
            f"the input of {layer!r} was not recorded, or only as a summary; record the reference with its inputs "
            "(watch records them at the first step) and full detail"
        )
    arrays["input"] = given
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; give the name of a folder for the script and its data")
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "layer.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub wants a bool for any keyword
    script = folder / "repro.py"
    script.write_text(_script(layer, sides), encoding="utf-8")
    return script


def _module(recording: Recording, path: str) -> ModuleInfo:
    module = next((one for one in recording.modules if one.path == path), None)
    family = "" if module is None else family_of(module.origin)[0]
    if module is None or not module.kind or family not in PACKAGES:
        raise UsageError(
            f"{path or 'the model'!r} is not a layer of {listed(PACKAGES.values())}, so a script cannot build it; "
            "name a layer inside it with --layer"
        )
    return module


def _weights(recording: Recording, path: str) -> dict[str, Array]:
    """Parameters before the first update, and buffers, by their names in the layer, in the layer's own layout."""
    first = min(recording.steps, default=0)
    found: dict[str, Array] = {}
    for entry in recording.of_run(""):
        key = entry.key
        if key.step != first or key.phase not in ("parameter", "buffer") or not key.path.startswith(f"{path}."):
            continue
        array = entry.array()
        update = Key(key.path, "update", first)
        found[key.path[len(path) + 1 :]] = array - recording[update].array() if update in recording else array
    return found


def _entry(recording: Recording, path: str, role: str) -> Array | None:
    key = Key(path, "forward", min(recording.steps, default=0), 0, role)
    if key not in recording or recording[key].detail != "full":
        return None
    return recording[key].array()


def _arguments(module: ModuleInfo, weights: dict[str, Array]) -> dict[str, Any]:
    """Settings under every name that a constructor may call them by; the script takes those that it has."""
    found = dict(module.settings)
    row = layer_kind(module.kind)
    column = None if row is None else row.columns.get(family_of(module.origin)[0])
    if column is None:
        return found
    for word, setting in column.settings.items():
        if setting.native in found and not setting.convert:
            found.setdefault(word, found[setting.native])
    if "weight" in weights:
        found = {**dict(zip(column.sizes, map(int, weights["weight"].shape), strict=False)), **found}
    if "bias" not in weights and column.find("bias") is not None:
        found["bias"] = found["bias_attr"] = False
    return found


def _script(layer: str, sides: list[tuple[str, ModuleInfo, dict[str, Any]]]) -> str:
    packages = sorted({PACKAGES[family_of(module.origin)[0]] for _, module, _ in sides})
    built = "\n".join(
        f"{side} = build({PACKAGES[family_of(module.origin)[0]]}.{family_of(module.origin)[1]}, {side!r}, "
        f"json.loads({json.dumps(arguments)!r}))"
        for side, module, arguments in sides
    )
    makers = ", ".join(f"{side!r}: {TENSOR_MAKERS[module.origin.partition('.')[0]]}" for side, module, _ in sides)
    imports = "\n".join(f"import {name}" for name in packages)
    return f'''"""The layer {layer!r} alone, in both frameworks, with the weights and the input that were recorded."""

import inspect
import json
from pathlib import Path

import numpy as np
{imports}

DATA = np.load(Path(__file__).with_name("layer.npz"))
TENSOR = {{{makers}}}


def build(kind, side, settings):
    """The layer with the recorded settings and weights, in train mode as it is made."""
    names = inspect.signature(kind.__init__).parameters
    layer = kind(**{{name: value for name, value in settings.items() if name in names}})
    weights = {{name.partition("/")[2]: DATA[name] for name in DATA.files if name.startswith(side + "/")}}
    weights = {{name: TENSOR[side](one.copy()) for name, one in weights.items()}}
    if hasattr(layer, "set_state_dict"):
        layer.set_state_dict(weights)
    else:
        layer.load_state_dict(weights, strict=False)
    return layer


def run(layer, side):
    output = layer(TENSOR[side](DATA["input"].copy()))
    output = output[0] if isinstance(output, (tuple, list)) else output
    return output.detach().numpy()


{built}
ours, theirs = run(reference, "reference"), run(candidate, "candidate")
print("reference:", reference)
print("candidate:", candidate)
print("largest difference of the outputs:", np.abs(ours - theirs).max(), "of values up to", np.abs(ours).max())
'''
