"""Writes the seeds of the corpora: small honest inputs of every target (`python -m fuzz.seeds` in tests/)."""

from __future__ import annotations

import io
import json
import pickle
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from fuzz.targets import PART
from reprod_log.alignment import align
from reprod_log.recording import ModuleInfo, Provenance, Recording, entry_of
from reprod_log.verdict import CalibratedPolicy

CORPUS = Path(__file__).with_name("corpus")
ARRAYS = {"loss_0": np.array(3.5, np.float32), "x": np.arange(4.0).reshape(2, 2), "n": np.array([1, 2], np.int64)}


def _bytes(write: object, *args: object, **options: object) -> bytes:
    file = io.BytesIO()
    write(file, *args, **options)  # type: ignore[operator]
    return file.getvalue()


def _pickles() -> dict[str, bytes]:
    content = {**ARRAYS, "o": np.array([None, 1.5]), "s": "text", "nested": {"a": [1.0, 2.0]}, "u": np.array(["ab"])}
    return {f"protocol{number}": pickle.dumps(content, number) for number in range(6)}


def _description(entries: list[dict[str, object]], **facts: object) -> bytes:
    return json.dumps({"version": 1, "entries": entries, **facts}).encode()


MODULES = [{"path": "fc", "type": "Linear", "kind": "linear", "origin": "torch.nn.modules.linear.Linear",
            "parameters": {"weight": [2, 1]}, "settings": {"in_features": 1, "bias": True}}]  # fmt: skip
PROVENANCE = {"framework": "torch", "seeds": {"torch": 7}, "threads": 1}
ENTRIES: list[dict[str, object]] = [
    {"key": "x", "dtype": "uint8", "shape": [8], "hash": "00", "meta": {"terms": 3}, "layer_type": "Linear"},
    {"key": "y", "dtype": "complex128", "shape": [1]},
    {"key": "z", "dtype": "str", "shape": [2]},
]
PAYLOAD = PART.join([b"12345678", b"\0" * 16, b'["a", "bc"]'])
SUMMARY = [{"key": "step0/forward/fc#0:output", "dtype": "float32", "shape": [2, 1], "detail": "summary", "meta": {}}]


def _alignments() -> dict[str, bytes]:
    def recording(offset: float) -> Recording:
        arrays = {
            "step0/forward/fc#0:output": np.array([1.0, 2.0 + offset], np.float32),
            "float64@step0/forward/fc#0:output": np.array([1.0, 2.0 + offset]),
            "step0/loss/loss": np.array([np.nan, 1.0], np.float32),
        }
        entries = tuple(entry_of(key, array) for key, array in arrays.items())
        modules = (ModuleInfo.from_dict(MODULES[0]),)
        return Recording(entries, Provenance(framework="torch"), modules)

    found = {}
    with tempfile.TemporaryDirectory() as place:
        for name, policy in (("fixed", None), ("calibrated", CalibratedPolicy())):
            limits = ("max_abs:1e-6",) if policy is None else ()
            path = align(recording(0), recording(1e-3), policy=policy, limits=limits).save(Path(place) / "a.json")
            # In one line each, so that a mutation is not spent on white space.
            found[name] = json.dumps(json.loads(path.read_text()), separators=(",", ":")).encode()
    return found


@cache
def seeds() -> dict[str, dict[str, bytes]]:
    """Target to name to content."""
    with tempfile.TemporaryDirectory() as place:
        saved = {
            suffix: Recording.from_arrays(ARRAYS).save(Path(place) / f"r{suffix}").read_bytes()
            for suffix in (".safetensors", ".npz", ".npy")
        }
    plain = {dtype: _bytes(np.save, np.arange(3).astype(dtype)) for dtype in ("f4", ">i2", "U2", "?")}
    ours = _description([{"key": "m1", "dtype": "int64", "shape": [3]}], provenance=PROVENANCE, modules=MODULES)
    whole = _description(ENTRIES, provenance=PROVENANCE, modules=MODULES, notes=["a"], complete=True) + PART + PAYLOAD
    manifest = json.dumps({"format": "reprod_log recording", "version": 1, "complete": True, "notes": [],
                           "provenance": PROVENANCE, "modules": MODULES,
                           "shards": ["000000.safetensors"]}).encode()  # fmt: skip
    moved = _description([{"key": "w", "dtype": "uint8", "shape": [8], "at": ["000000.safetensors", "x"]}])
    return {
        "pickle": _pickles(),
        "classic": _pickles(),
        "npy": {"saved": saved[".npy"], **{f"plain_{n.strip('>?')}": c for n, c in plain.items()}},
        "npz": {"raw": saved[".npz"], "deflated": _bytes(np.savez_compressed, **ARRAYS),
                "ours": b"m" + ours + PART + _bytes(np.save, np.arange(3)), "plain": b"m" + plain["f4"]},
        "safetensors": {"saved": saved[".safetensors"]},
        "described": {"three": whole, "summary": _description(SUMMARY, modules=MODULES) + PART},
        "folder": {"one": PART.join([manifest, b"", whole]), "two": (PART + PART).join([manifest, whole, moved])},
        "alignment": _alignments(),
        "pdparams": {"plain": pickle.dumps({"w": np.arange(2.0), "b": ("n", np.ones(1, np.uint16)),
                                            "StructuredToParameterName@@": {"w": "w_0"}}, 2),
                     "slices": pickle.dumps({"w@0": np.arange(2.0), "UnpackBigParamInfor@@": {"w": {
                         "OriginShape": (2, 1), "slices": ["w@0"]}}}, 2)},
        "compared": {"three": whole, "summary": _description(SUMMARY, modules=MODULES) + PART},
        "alignment_parts": {"some": b"\0\x05\0\x07\x20\0\x30", "other": b"\1\x50\0\x02"},
        "description_parts": {"some": b"\x05\0\x07\x20\0\x30"},
        "commands": {"alignment": b"\0" + _alignments()["calibrated"], "npy": b"\1" + saved[".npy"],
                     "npz": b"\2" + saved[".npz"], "safetensors": b"\3" + whole},
        "names": {"key": b"float64@step0/forward/encoder.0.linear#0:output", "limit": b"loss_*=float16|1e-5",
                  "classic": b"loss_0"},
    }  # fmt: skip


if __name__ == "__main__":
    for target, contents in seeds().items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (CORPUS / target / name).write_bytes(content)
