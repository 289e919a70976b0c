"""Pairs of models of public libraries, and what is true of each: the same function, or where it differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from real.pairs import (
    Change,
    Pair,
    activation,
    autocast,
    autoencoder,
    checkpointed,
    compiled,
    features,
    forward,
    layer,
    nlp,
    to,
    torchvision_timm,
    torchvision_timm_vit,
    twice,
    unet,
    vision,
    with_extras,
    without_container,
)

SAME, DIFFERS = "same", "differs"
LIBRARIES, PADDLENLP = "libraries", "paddlenlp"
DEVELOPMENT, SCORED = "development", "scored"


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], Pair]
    truth: str = SAME
    place: str = ""
    """Part of the path of the place that differs."""
    cause: str = ""
    """A word that the right cause has."""
    environment: str = LIBRARIES
    why: str = ""
    half: str = DEVELOPMENT
    """Of the scored half only totals are shown, so that nobody fits the tool to it."""


def all_cases() -> tuple[Case, ...]:
    scored = (*_vision_scored(), *_twice_scored(), *_MISTAKES_SCORED, *_nlp_cases(("electra", "albert", "mpnet")))
    return (
        *_VISION,
        *_twice(),
        *_FORMS,
        *_TIMM,
        *_nlp_cases(("bert", "roberta", "distilbert", "llama", "gpt2", "t5", "ernie")),
        *_MISTAKES,
        *(replace(one, half=SCORED) for one in scored),
    )


# ---- two libraries ---------------------------------------------------------------------------------------------------

_VISION = (
    Case("vision/resnet18", partial(vision, "resnet18")),
    Case("vision/resnet50", partial(vision, "resnet50")),
    Case("vision/resnext50", partial(vision, "resnext50_32x4d")),
    Case("vision/mobilenet_v2", partial(vision, "mobilenet_v2")),
    Case("vision/shufflenet_v2", partial(vision, "shufflenet_v2_x1_0")),
    Case("vision/densenet121", partial(vision, "densenet121")),
    Case("vision/vgg11 features", partial(features, "vgg11")),
    Case(
        "vision/mobilenet_v3_small",
        partial(vision, "mobilenet_v3_small"),
        why="Hardsigmoid's slope is 0.1666667 there, which float32 cannot show",
    ),
    Case(
        "vision/alexnet",
        partial(vision, "alexnet"),
        DIFFERS,
        place="classifier",
        cause="downscale_in_infer",
        why="paddle.vision's Dropout scales in evaluation",
    ),
    Case(
        "vision/squeezenet1_0",
        partial(vision, "squeezenet1_0"),
        DIFFERS,
        cause="ceil_mode",
        why="torchvision's pools round up",
    ),
    Case(
        "vision/inception_v3",
        partial(vision, "inception_v3", 96),
        DIFFERS,
        place="bn",
        cause="eps",
        why="epsilon 1e-3 against 1e-5 in 94 layers",
    ),
    Case(
        "vision/resnet18 training",
        partial(vision, "resnet18", training=True),
        DIFFERS,
        place="running_var",
        cause="variance",
        why="paddle keeps the biased variance",
    ),
    Case(
        "vision/mobilenet_v3_small training",
        partial(vision, "mobilenet_v3_small", training=True),
        DIFFERS,
        place="running_var",
        cause="variance",
        why="paddle keeps the biased variance; its dropout works in place",
    ),
)


def _vision_scored() -> Iterator[Case]:
    for name in ("resnet34", "wide_resnet50_2", "shufflenet_v2_x0_5", "mobilenet_v3_large"):
        yield Case(f"vision/{name}", partial(vision, name))
    yield Case("vision/vgg11_bn features", partial(features, "vgg11", batch_norm=True))
    yield Case("vision/squeezenet1_1", partial(vision, "squeezenet1_1"), DIFFERS, cause="ceil_mode")
    for ours, theirs in (("mnasnet1_0", "mnasnet_100"), ("efficientnet_b0", "efficientnet_b0")):
        yield Case(f"timm/{ours}", partial(torchvision_timm, ours, theirs))


_TIMM = (
    Case("timm/resnet18", partial(torchvision_timm, "resnet18", "resnet18")),
    Case("timm/mobilenet_v2", partial(torchvision_timm, "mobilenet_v2", "mobilenetv2_100")),
    Case("timm/vit", torchvision_timm_vit),
)


def _nlp_cases(names: tuple[str, ...]) -> Iterator[Case]:
    for name in names:
        yield Case(f"paddlenlp/{name}", partial(nlp, name), environment=PADDLENLP)
        yield Case(f"paddlenlp/{name} training", partial(nlp, name, training=True), environment=PADDLENLP)
    if "bert" in names:
        yield Case("paddlenlp/bert padded", partial(nlp, "bert", padded=True), environment=PADDLENLP)
        yield Case(
            "paddlenlp/gpt2 exact gelu",
            partial(nlp, "gpt2 exact gelu"),
            DIFFERS,
            place="mlp",
            cause="gelu",
            environment=PADDLENLP,
            why="paddlenlp's GPT always has the tanh form",
        )


# ---- one library twice -----------------------------------------------------------------------------------------------


def _twice() -> Iterator[Case]:
    sdpa = partial(twice, attention="sdpa")
    for name in ("bert", "gpt2", "llama", "vit", "t5", "qwen2", "opt", "roberta", "mistral", "gemma"):
        yield Case(f"kernels/{name}", partial(sdpa, name))
    for name in ("bert", "gpt2", "llama", "vit", "distilbert", "electra"):
        yield Case(f"kernels/{name} training", partial(sdpa, name, loss=True))
    for name in ("bert", "llama", "gpt2"):
        yield Case(f"kernels/{name} padded", partial(sdpa, name, padded="right"))
    for name in ("llama", "gpt2"):
        yield Case(
            f"kernels/{name} left-padded",
            partial(sdpa, name, padded="left"),
            DIFFERS,
            place="attn",
            cause="padding",
            why="padding sees no key at all, and the kernels give other values there; other tokens agree to 9e-8",
        )
    for seed in (1, 2, 3):
        yield Case(f"kernels/llama seed {seed}", partial(sdpa, "llama", seed=seed, loss=True))
    for name in ("bert", "gpt2"):
        yield Case(f"dropout/{name}", partial(twice, name, training=True, loss=True))
        yield Case(f"dropout/{name} in a fused kernel", partial(sdpa, name, training=True, loss=True))
    for name in ("bert", "llama"):
        yield Case(f"checkpointed/{name}", partial(twice, name, checkpointed, training=True, loss=True))
    for name in ("bert", "llama", "vit"):
        yield Case(f"compile/{name}", partial(twice, name, compiled))
        for dtype in ("bfloat16", "float16"):
            yield Case(f"precision/{name} {dtype}", partial(twice, name, to(dtype)))
        yield Case(f"precision/{name} autocast", partial(autocast, name, "bfloat16"))
    yield Case("compile/llama training", partial(twice, "llama", compiled, loss=True))
    yield Case("diffusers/unet channels last", unet)


def _twice_scored() -> Iterator[Case]:
    models = ("albert", "xlm_roberta", "bart", "gpt_neox", "phi", "olmo2", "qwen3", "deit", "dinov2")
    for name in models:
        yield Case(f"kernels/{name}", partial(twice, name, attention="sdpa"))
    for name in ("stablelm", "starcoder2"):
        yield Case(f"kernels/{name} training", partial(twice, name, attention="sdpa", loss=True))
    yield Case("kernels/phi padded", partial(twice, "phi", attention="sdpa", padded="right"))
    yield Case("dropout/opt", partial(twice, "opt", training=True, loss=True))
    for name in ("qwen3", "gpt_neo"):
        yield Case(f"checkpointed/{name}", partial(twice, name, checkpointed, training=True, loss=True))
    for name in ("gpt_neox", "convnext", "mpnet"):
        yield Case(f"compile/{name}", partial(twice, name, compiled))
    for name, dtype in (("qwen3", "bfloat16"), ("albert", "bfloat16"), ("gpt_neox", "float16"), ("deit", "bfloat16")):
        yield Case(f"precision/{name} {dtype}", partial(twice, name, to(dtype)))
    yield Case("precision/phi autocast", partial(autocast, "phi", "bfloat16"))
    yield Case("forms/electra tuple", partial(without_container, "electra"))
    yield Case("diffusers/autoencoder", autoencoder)


_FORMS = (
    Case("forms/bert tuple", partial(without_container, "bert")),
    Case("forms/bert hidden states", partial(with_extras, "bert")),
)


# ---- planted mistakes ------------------------------------------------------------------------------------------------


def _wrong(name: str, kind: str, place: str, cause: str, **settings: Any) -> Case:
    return Case(f"mistakes/{name} {kind}", partial(twice, name, **settings), DIFFERS, place, cause)


def _wrong_code(name: str, kind: str, place: str, cause: str, change: Change) -> Case:
    return Case(f"mistakes/{name} {kind}", partial(twice, name, change), DIFFERS, place, cause)


def _scaled(by: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda run: lambda *given, **named: by * run(*given, **named)


def _without_residual(run: Callable[..., Any]) -> Callable[..., Any]:
    """The output of a block that adds its first argument, with that argument taken away again."""
    return lambda hidden, *given, **named: run(hidden, *given, **named) - hidden


_MISTAKES = (
    _wrong("bert", "eps of every norm", "LayerNorm", "eps", layer_norm_eps=1e-3),
    _wrong("bert", "tanh gelu", "intermediate", "gelu", hidden_act="gelu_new"),
    _wrong("gpt2", "exact gelu", "mlp", "gelu", activation_function="gelu"),
    _wrong("gpt2", "scores divided by the layer's number", "h.1.attn", "", scale_attn_by_inverse_layer_idx=True),
    _wrong("gpt2", "scores not scaled", "h.0.attn", "", scale_attn_weights=False),
    _wrong("llama", "eps of every norm", "layernorm", "eps", rms_norm_eps=1e-2),
    _wrong("qwen2", "rotary base", "rotary_emb", "", rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
    _wrong("mistral", "window of four", "", "", sliding_window=4),
    _wrong("vit", "relu", "", "relu", hidden_act="relu"),
    _wrong_code(
        "bert", "eps of one norm", "layer.1.output", "eps", layer("bert.encoder.layer.1.output.LayerNorm", eps=1e-3)
    ),
    _wrong_code("bert", "pooler without tanh", "pooler", "", activation("bert.pooler", "activation", "Identity")),
    _wrong_code(
        "bert",
        "scale of one attention",
        "layer.1.attention",
        "",
        layer("bert.encoder.layer.1.attention.self", scaling=0.5),
    ),
    _wrong_code("gpt2", "silu in one block", "h.1.mlp", "", activation("transformer.h.1.mlp", "act", "SiLU")),
    _wrong_code(
        "llama", "scale of one attention", "layers.0.self_attn", "", layer("model.layers.0.self_attn", scaling=0.5)
    ),
    _wrong_code("llama", "eps of the last norm", "model.norm", "eps", layer("model.norm", variance_epsilon=0.1)),
    _wrong_code("llama", "head scaled", "lm_head", "", forward("lm_head", _scaled(1.01))),
    _wrong_code(
        "gemma", "eps of one norm", "layers.1.input_layernorm", "eps", layer("model.layers.1.input_layernorm", eps=0.1)
    ),
    _wrong_code("roberta", "eps of the head", "lm_head", "eps", layer("lm_head.layer_norm", eps=1e-2)),
    _wrong_code(
        "distilbert",
        "eps of one norm",
        "layer.0.sa_layer_norm",
        "eps",
        layer("distilbert.transformer.layer.0.sa_layer_norm", eps=1e-2),
    ),
    _wrong_code("vit", "eps of the last norm", "layernorm", "eps", layer("vit.layernorm", eps=1e-2)),
)

_PARTLY = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
_MISTAKES_SCORED = (
    _wrong("bert", "relu", "intermediate", "relu", hidden_act="relu"),
    _wrong("gpt2", "eps of every norm", "ln_1", "eps", layer_norm_epsilon=1e-3),
    _wrong("llama", "gelu", "mlp", "gelu", hidden_act="gelu"),
    _wrong("opt", "gelu", "layers", "gelu", activation_function="gelu"),
    _wrong("vit", "eps of every norm", "layernorm", "eps", layer_norm_eps=1e-3),
    _wrong("distilbert", "relu", "ffn", "relu", activation="relu"),
    _wrong("albert", "relu", "albert_layers", "relu", hidden_act="relu"),
    _wrong("xlm_roberta", "eps of every norm", "LayerNorm", "eps", layer_norm_eps=1e-3),
    _wrong("gpt_neox", "rotary share", "", "", rope_parameters=_PARTLY),
    _wrong("gpt_neox", "blocks not parallel", "layers.0", "", use_parallel_residual=False),
    _wrong("qwen3", "eps of every norm", "norm", "eps", rms_norm_eps=1e-2),
    _wrong("phi", "relu", "mlp", "relu", hidden_act="relu"),
    _wrong_code("bert", "pooler with relu", "pooler", "relu", activation("bert.pooler", "activation", "ReLU")),
    _wrong_code(
        "llama", "gelu in one block", "layers.1.mlp", "gelu", activation("model.layers.1.mlp", "act_fn", "GELU")
    ),
    _wrong_code(
        "mistral", "relu in one block", "layers.0.mlp", "relu", activation("model.layers.0.mlp", "act_fn", "ReLU")
    ),
    _wrong_code(
        "qwen2", "scale of one attention", "layers.1.self_attn", "", layer("model.layers.1.self_attn", scaling=1.0)
    ),
    _wrong_code(
        "electra", "eps of the embeddings", "embeddings", "eps", layer("electra.embeddings.LayerNorm", eps=1e-2)
    ),
    _wrong_code("gpt_neo", "silu in one block", "h.1.mlp", "", activation("transformer.h.1.mlp", "act", "SiLU")),
    _wrong_code(
        "bart", "eps of one norm", "encoder.layers.1", "eps", layer("model.encoder.layers.1.final_layer_norm", eps=1e-2)
    ),
    _wrong_code(
        "olmo2", "scale of one attention", "layers.1.self_attn", "", layer("model.layers.1.self_attn", scaling=0.3)
    ),
    _wrong_code("starcoder2", "eps of the last norm", "model.norm", "eps", layer("model.norm", eps=1e-2)),
    _wrong_code("phi", "head scaled", "lm_head", "", forward("lm_head", _scaled(0.99))),
    _wrong_code(
        "t5",
        "no residual around one block",
        "encoder.block.1.layer.1",
        "",
        forward("encoder.block.1.layer.1", _without_residual),
    ),
)
