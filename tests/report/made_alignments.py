"""Alignments of many kinds for the report tests: a training run with and without a defect, classic files, odd names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from reprod_log import Alignment, Recording, align
from reprod_log.diagnose.finding import Confidence, Finding, Kind
from reprod_log.messages import Message
from reprod_log.recording import Key, Provenance

HOSTILE = (
    "<script>alert('x')</script><b onmouseover=alert(1)>",
    "`code` | pipe | **bold** [link](http://example.org) @user #1 <!-- -->",
    "\x1b[31mred\x1b[2J\x07 bell \r\n::error::injected",
    "right-to-left \u202egnp.exe \u2066 \u05d0\u05d1\u05d2 \u0627\u0644\u0639",
    "$$\\alpha$$ {{ 7*7 }} {% raw %} ]]> & &amp; \"quoted\" 'single'",
    "very.long." + "name_" * 400,
    "\ud800 lone surrogate \x00 nul \ufffe",
    "</script></style></td></table><img src=x onerror=alert(2)>",
)


def finding_of(
    rule: str, cause: str, evidence: str = "", confidence: Confidence = "hint", advice: str = "",
    keys: tuple[Key, ...] = (), kind: Kind = "cause",
) -> Finding:  # fmt: skip
    """A finding whose sentences are plain text, as files of the first edition have them."""
    parts = ((Message.from_dict(one),) if one else () for one in (evidence, advice))
    return Finding(rule, Message.from_dict(cause), next(parts), confidence, next(parts), keys, kind)


def provenance(framework: str, **known: object) -> Provenance:
    facts = {
        "framework_version": "2.13.0" if framework == "torch" else "3.3.1",
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
        "seeds": {"python": 0, "numpy": 0},
        "python": "3.11.7",
        "numpy": "2.4.0",
        "platform": "Linux x86_64",
        "command": f"python train_{framework}.py",
        "time": "2026-11-15T10:00:00+00:00",
    }
    return Provenance(framework=framework, **{**facts, **known})  # type: ignore[arg-type]


def model_values(steps: int = 4, blocks: int = 4) -> dict[str, np.ndarray]:
    """What a small residual network computes in a few training steps, in float64: plausible shapes and sizes."""
    rng = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    layers = ["conv1", "bn1"]
    for block in range(blocks):
        layers += [f"layer{block // 2 + 1}.{block % 2}.{part}" for part in ("conv1", "bn1", "conv2", "bn2")]
    for step in range(steps):
        found[f"step{step}/data/image"] = rng.normal(size=(2, 3, 8, 8)).astype(np.float32).astype(np.float64)
        for layer in (*layers, "fc"):
            found[f"step{step}/forward/{layer}#0:output"] = rng.normal(size=(2, 8, 4, 4) if layer != "fc" else (2, 10))
        found[f"step{step}/loss/loss"] = np.array(2.4 * 0.8**step)
        for layer in (*layers, "fc"):
            found[f"step{step}/gradient/{layer}.weight:raw"] = rng.normal(size=(8, 9)) * 1e-2
        found[f"step{step}/lr/group0"] = np.array(0.1 * 0.9**step)
        for layer in (*layers, "fc"):
            found[f"step{step}/parameter/{layer}.weight"] = rng.normal(size=(8, 9))
    return found


def rounded(values: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The values as float32 arithmetic would give them; inputs and learning rates are exact."""
    rng = np.random.default_rng(seed)
    found = {}
    for key, value in values.items():
        if "/data/" in key or "/lr/" in key:
            found[key] = value if "/lr/" in key else value.astype(np.float32)
        else:
            found[key] = (value * (1 + 2.0**-23 * rng.normal(size=value.shape))).astype(np.float32)
    return found


def broken(values: Mapping[str, np.ndarray], layer: str = "layer1.1.conv2") -> dict[str, np.ndarray]:
    """The values of a port whose one layer is wrong: everything after it in time inherits some of the error."""
    found, wrong = {}, False
    rng = np.random.default_rng(5)
    for key, value in values.items():
        if f"/forward/{layer}#" in key:
            wrong = True
            found[key] = value * 1.02
        elif wrong and "/lr/" not in key and "/data/" not in key and "step0/parameter/" not in key:
            found[key] = value * (1 + 3e-3 * rng.normal(size=value.shape))
        else:
            found[key] = value
    return found


def passes(values: Mapping[str, np.ndarray], seed: int, wrong: str = "") -> dict[str, np.ndarray]:
    """All passes of one side: as the user runs it, in float64, and each layer of step 0 alone in both."""
    true = broken(values, wrong) if wrong else dict(values)
    alone = {
        key: value * (1.02 if wrong and f"/{wrong}#" in key else 1.0)
        for key, value in values.items()
        if key.startswith("step0/forward/")
    }
    return {
        **rounded(true, seed),
        **{f"float64@{key}": value for key, value in true.items()},
        **{f"isolated@{key}": value for key, value in rounded(alone, seed + 1).items()},
        **{f"isolated.float64@{key}": value for key, value in alone.items()},
    }


def without_findings(reference: Recording, candidate: Recording, **options: Any) -> Alignment:
    """An alignment whose report does not depend on which rules there are."""
    return replace(align(reference, candidate, **options), findings=())


@cache
def fixed(*, wrong: bool = True, steps: int = 4, blocks: int = 4) -> Alignment:
    """A training run judged by fixed limits, wide enough for rounding."""
    values = model_values(steps, blocks)
    return without_findings(
        Recording.from_arrays(rounded(values, 1), provenance=provenance("torch")),
        Recording.from_arrays(
            rounded(broken(values) if wrong else values, 2), provenance=provenance("paddle", threads=2)
        ),
        limits=["mean_abs:2e-6"],
    )


@cache
def calibrated(*, wrong: bool = True, steps: int = 2) -> Alignment:
    """The same with float64 and isolated passes, judged by the calibrated rule."""
    values = model_values(steps)
    return without_findings(
        Recording.from_arrays(passes(values, 1), provenance=provenance("torch")),
        Recording.from_arrays(passes(values, 9, "layer1.1.conv2" if wrong else ""), provenance=provenance("paddle")),
    )


@cache
def classic() -> Alignment:
    """What the guides' scripts log: losses and learning rates with the step in the name; one key is missing."""
    reference = {f"loss_{step}": np.array(2.0 / (step + 1)) for step in range(12)}
    reference |= {f"step_{100 * step}_linear_lr": np.array(1e-3 / (step + 1)) for step in range(5)}
    candidate = {key: value + (3e-5 if key == "loss_7" else 1e-8) for key, value in reference.items()}
    reference["logits"] = np.linspace(-1, 1, 1000).astype(np.float32)
    candidate["logit"] = reference["logits"]
    return without_findings(Recording.from_arrays(reference), Recording.from_arrays(candidate))


@cache
def hostile() -> Alignment:
    """Keys, sources and findings that try to be something else than text."""
    reference = {name: np.array([1.0, 2.0]) for name in HOSTILE[:6]} | {
        f"step0/forward/{HOSTILE[7]}#0:output": np.ones(3)
    }
    candidate = {name: np.array([1.0, 2.5]) for name in reference}
    reference[HOSTILE[6]] = np.ones(1)
    found = align(
        Recording.from_arrays(reference, provenance=provenance(HOSTILE[0], command=HOSTILE[1])),
        Recording.from_arrays(candidate, provenance=provenance(HOSTILE[7], device=HOSTILE[2])),
    )
    finding = finding_of("made_up", HOSTILE[0], HOSTILE[1], "explained", HOSTILE[2], (Key(HOSTILE[3]),))
    return replace(
        found, findings=(finding,), reference=replace(found.reference, source=HOSTILE[7], notes=(HOSTILE[3],))
    )


@cache
def many(entries: int) -> Alignment:
    """A training run of about that many entries."""
    per_step = len(model_values(1, 8))
    return fixed(steps=max(1, round(entries / per_step)), blocks=8)
