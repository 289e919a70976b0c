"""Pairs of models of public libraries, and what is true of each: the same function, or where it differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from real.libraries import images, paddlenlp, text_inputs, text_model, tokens, torchvision_models, transformers

SAME, DIFFERS = "same", "differs"
LIBRARIES, PADDLENLP = "libraries", "paddlenlp"


@dataclass(frozen=True)
class Pair:
    """Two models and how they are run: the arguments of `align_models`."""

    reference: Any
    candidate: Any
    inputs: Any
    options: dict[str, Any] = field(default_factory=dict)


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


# ---- torchvision against paddle.vision -------------------------------------------------------------------------------


def _vision(name: str, size: int = 64, training: bool = False) -> Pair:
    import paddle.vision.models
    import torch

    torch.manual_seed(0)
    reference = getattr(torchvision_models(), name)(num_classes=10)
    candidate = getattr(paddle.vision.models, name)(num_classes=10)
    if not training:
        reference.eval()
        candidate.eval()
    return Pair(reference, candidate, images(size))


_VISION = (
    Case("vision/resnet18", partial(_vision, "resnet18")),
    Case("vision/resnet50", partial(_vision, "resnet50")),
    Case("vision/resnext50", partial(_vision, "resnext50_32x4d")),
    Case("vision/mobilenet_v2", partial(_vision, "mobilenet_v2")),
    Case("vision/shufflenet_v2", partial(_vision, "shufflenet_v2_x1_0")),
    Case("vision/densenet121", partial(_vision, "densenet121")),
    Case("vision/vgg11", partial(_vision, "vgg11")),
    Case(
        "vision/mobilenet_v3_small",
        partial(_vision, "mobilenet_v3_small"),
        why="Hardsigmoid's slope is 0.1666667 there, which float32 cannot show",
    ),
    Case(
        "vision/alexnet",
        partial(_vision, "alexnet"),
        DIFFERS,
        place="classifier",
        cause="downscale_in_infer",
        why="paddle.vision's Dropout scales in evaluation",
    ),
    Case(
        "vision/squeezenet",
        partial(_vision, "squeezenet1_0"),
        DIFFERS,
        place="",
        cause="ceil_mode",
        why="torchvision's pools round up",
    ),
    Case(
        "vision/inception_v3",
        partial(_vision, "inception_v3", 96),
        DIFFERS,
        place="bn",
        cause="eps",
        why="epsilon 1e-3 against 1e-5 in 94 layers",
    ),
    Case(
        "vision/resnet18 training",
        partial(_vision, "resnet18", training=True),
        DIFFERS,
        place="running_var",
        cause="variance",
        why="paddle keeps the biased variance",
    ),
)


# ---- one library, two kernels, compilers, precisions -----------------------------------------------------------------


def _adamw(model: Any) -> Any:
    import torch

    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def _own_loss(outputs: Any) -> Any:
    return outputs["loss"] if isinstance(outputs, dict) else outputs.loss


_LABELS = {
    "bert": lambda: np.array([0, 1]),
    "vit": lambda: np.array([0, 1]),
}


def _trained(name: str, first: Any, second: Any) -> Pair:
    """The model's own loss and two steps of AdamW."""
    inputs = text_inputs(name)
    inputs["labels"] = _LABELS[name]() if name in _LABELS else inputs["input_ids"]
    return Pair(first, second, inputs, {"loss": _own_loss, "optimizer": _adamw, "steps": 2})


def _twice(name: str, *, training: bool = False, attention: str = "sdpa", **changed: Any) -> Pair:
    """A model against itself with another attention kernel, or with one setting changed."""
    first, second = text_model(name), text_model(name, attention=attention, **changed)
    second.load_state_dict(first.state_dict(), strict=False)
    if training:
        return _trained(name, first, second)
    return Pair(first, second, text_inputs(name))


def _compiled(name: str, *, training: bool = False) -> Pair:
    import torch

    first, second = text_model(name), text_model(name)
    second.load_state_dict(first.state_dict())
    compiled = torch.compile(second)
    return _trained(name, first, compiled) if training else Pair(first, compiled, text_inputs(name))


def _narrow(name: str, dtype: str, *, autocast: bool = False) -> Pair:
    import torch

    first, second = text_model(name), text_model(name)
    second.load_state_dict(first.state_dict())
    kind = getattr(torch, dtype)
    if not autocast:
        return Pair(first, second.to(kind), text_inputs(name))

    class Autocast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = second

        def forward(self, **inputs: Any) -> Any:
            with torch.autocast("cpu", dtype=kind):
                return self.inner(**inputs)

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = first

        def forward(self, **inputs: Any) -> Any:
            return self.inner(**inputs)

    return Pair(Plain().eval(), Autocast().eval(), text_inputs(name))


def _same_library() -> Iterator[Case]:
    for name in (
        "bert",
        "roberta",
        "electra",
        "gpt2",
        "llama",
        "mistral",
        "qwen2",
        "gemma",
        "opt",
        "distilbert",
        "vit",
    ):
        yield Case(f"kernels/{name}", partial(_twice, name))
        yield Case(f"kernels/{name} training", partial(_twice, name, training=True))
    for name in ("bert", "llama", "vit"):
        yield Case(f"compile/{name}", partial(_compiled, name))
        for dtype in ("bfloat16", "float16"):
            yield Case(f"precision/{name} {dtype}", partial(_narrow, name, dtype))
        yield Case(f"precision/{name} autocast", partial(_narrow, name, "bfloat16", autocast=True))
    yield Case("compile/llama training", partial(_compiled, "llama", training=True))


def _timm(name: str, other: str) -> Pair:
    import torch

    models = torchvision_models()
    import timm

    torch.manual_seed(0)
    return Pair(
        getattr(models, name)(num_classes=10).eval(), timm.create_model(other, num_classes=10).eval(), images(64)
    )


def _timm_vit() -> Pair:
    import torch

    models = torchvision_models()
    import timm

    torch.manual_seed(0)
    reference = models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10
    ).eval()
    torch.nn.init.normal_(reference.heads.head.weight)
    candidate = timm.models.VisionTransformer(
        img_size=32, patch_size=8, depth=2, num_heads=4, embed_dim=32, mlp_ratio=2, num_classes=10
    ).eval()
    return Pair(reference, candidate, images(32))


_TIMM = (
    Case("timm/resnet18", partial(_timm, "resnet18", "resnet18")),
    Case("timm/mobilenet_v2", partial(_timm, "mobilenet_v2", "mobilenetv2_100")),
    Case("timm/vit", _timm_vit),
)


def _unet() -> Pair:
    import torch

    torchvision_models()
    import diffusers

    torch.manual_seed(0)

    def made() -> Any:
        return diffusers.UNet2DModel(
            sample_size=16,
            block_out_channels=(16, 32),
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            layers_per_block=1,
            norm_num_groups=4,
            attention_head_dim=8,
        ).eval()

    first, second = made(), made()
    second.load_state_dict(first.state_dict())
    inputs = {"sample": images(16), "timestep": np.array([3, 7])}
    return Pair(first, second.to(memory_format=torch.channels_last), inputs)


# ---- transformers against paddlenlp ----------------------------------------------------------------------------------

_NLP_SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_NLP: dict[str, tuple[str, str, dict[str, Any], str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", _NLP_SMALL, "BertModel", _NLP_SMALL),
    "roberta": (
        "RobertaModel",
        "RobertaConfig",
        {**_NLP_SMALL, "pad_token_id": 0},
        "RobertaModel",
        {**_NLP_SMALL, "pad_token_id": 0},
    ),
    "distilbert": (
        "DistilBertModel",
        "DistilBertConfig",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64},
        "DistilBertModel",
        {**_NLP_SMALL, "dim": 32},
    ),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {k: v for k, v in _NLP_SMALL.items() if "dropout" not in k},
        "LlamaForCausalLM",
        {k: v for k, v in _NLP_SMALL.items() if "dropout" not in k} | {"use_flash_attention": False},
    ),
    "gpt2": (
        "GPT2Model",
        "GPT2Config",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "activation_function": "gelu"},
        "GPTModel",
        _NLP_SMALL,
    ),
    "t5": (
        "T5EncoderModel",
        "T5Config",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 64, "dropout_rate": 0.0},
        "T5EncoderModel",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 64, "dropout_rate": 0.0},
    ),
}


def _nlp(name: str, training: bool = False) -> Pair:
    import paddle
    import torch

    theirs = paddlenlp()
    ours = transformers()
    torch.manual_seed(0)
    model, config, settings, other, others = _NLP[name]
    made = getattr(ours, config)(**settings)
    made._attn_implementation = "eager"
    reference = getattr(ours, model)(made).eval()
    candidate = getattr(theirs, other)(getattr(theirs, config if config != "GPT2Config" else "GPTConfig")(**others))
    candidate.eval()
    inputs = {"input_ids": tokens()}
    if not training:
        return Pair(reference, candidate, inputs)

    def loss(outputs: Any) -> Any:
        first = outputs[0] if isinstance(outputs, (tuple, list)) else getattr(outputs, "logits", None)
        first = outputs if first is None and not hasattr(outputs, "last_hidden_state") else first
        first = outputs.last_hidden_state if first is None else first
        return (first**2).mean()

    optimizers = (
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
        lambda m: paddle.optimizer.SGD(0.1, parameters=m.parameters()),
    )
    return Pair(reference, candidate, inputs, {"loss": loss, "optimizer": optimizers, "steps": 2})


def _paddlenlp() -> Iterator[Case]:
    for name in _NLP:
        yield Case(f"paddlenlp/{name}", partial(_nlp, name), environment=PADDLENLP)
        yield Case(f"paddlenlp/{name} training", partial(_nlp, name, training=True), environment=PADDLENLP)


# ---- planted mistakes ------------------------------------------------------------------------------------------------


def _mistake(name: str, change: Callable[[Any], None], attention: str = "eager") -> Pair:
    first, second = text_model(name), text_model(name, attention=attention)
    second.load_state_dict(first.state_dict())
    change(second)
    return Pair(first, second, text_inputs(name))


def _layer(path: str, **values: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        for name, value in values.items():
            setattr(model.get_submodule(path), name, value)

    return change


def _activation(path: str, attribute: str, name: str) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        import torch

        setattr(model.get_submodule(path), attribute, getattr(torch.nn, name)())

    return change


def _wrong(name: str, kind: str, place: str, cause: str, **settings: Any) -> Case:
    return Case(f"mistakes/{name} {kind}", partial(_twice, name, attention="eager", **settings), DIFFERS, place, cause)


def _wrong_layer(name: str, kind: str, place: str, cause: str, change: Callable[[Any], None]) -> Case:
    return Case(f"mistakes/{name} {kind}", partial(_mistake, name, change), DIFFERS, place, cause)


_MISTAKES = (
    _wrong("bert", "eps of every norm", "LayerNorm", "eps", layer_norm_eps=1e-3),
    _wrong("bert", "tanh gelu", "intermediate", "gelu", hidden_act="gelu_new"),
    _wrong("bert", "relu", "intermediate", "relu", hidden_act="relu"),
    _wrong("gpt2", "exact gelu", "mlp", "gelu", activation_function="gelu"),
    _wrong("gpt2", "eps of every norm", "ln_1", "eps", layer_norm_epsilon=1e-3),
    _wrong("gpt2", "scores divided by the layer's number", "h.1.attn", "", scale_attn_by_inverse_layer_idx=True),
    _wrong("gpt2", "scores not scaled", "h.0.attn", "", scale_attn_weights=False),
    _wrong("llama", "eps of every norm", "layernorm", "eps", rms_norm_eps=1e-2),
    _wrong("llama", "gelu", "mlp", "gelu", hidden_act="gelu"),
    _wrong("qwen2", "rotary base", "rotary_emb", "", rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
    _wrong("mistral", "window of four", "", "", sliding_window=4),
    _wrong("opt", "gelu", "layers", "gelu", activation_function="gelu"),
    _wrong("vit", "eps of every norm", "layernorm", "eps", layer_norm_eps=1e-3),
    _wrong("vit", "relu", "", "relu", hidden_act="relu"),
    _wrong("distilbert", "relu", "ffn", "relu", activation="relu"),
    _wrong_layer(
        "bert",
        "eps of one norm",
        "encoder.layer.1.output",
        "eps",
        _layer("bert.encoder.layer.1.output.LayerNorm", eps=1e-3),
    ),
    _wrong_layer("bert", "pooler without tanh", "pooler", "", _activation("bert.pooler", "activation", "Identity")),
    _wrong_layer("bert", "pooler with relu", "pooler", "relu", _activation("bert.pooler", "activation", "ReLU")),
    _wrong_layer(
        "bert",
        "scale of one attention",
        "layer.1.attention",
        "",
        _layer("bert.encoder.layer.1.attention.self", scaling=0.5),
    ),
    _wrong_layer("gpt2", "silu in one block", "h.1.mlp", "", _activation("transformer.h.1.mlp", "act", "SiLU")),
    _wrong_layer(
        "llama", "scale of one attention", "layers.0.self_attn", "", _layer("model.layers.0.self_attn", scaling=0.5)
    ),
    _wrong_layer("llama", "eps of the last norm", "model.norm", "eps", _layer("model.norm", variance_epsilon=0.1)),
    _wrong_layer(
        "llama", "gelu in one block", "layers.1.mlp", "gelu", _activation("model.layers.1.mlp", "act_fn", "GELU")
    ),
    _wrong_layer(
        "mistral", "relu in one block", "layers.0.mlp", "relu", _activation("model.layers.0.mlp", "act_fn", "ReLU")
    ),
    _wrong_layer(
        "qwen2", "scale of one attention", "layers.1.self_attn", "", _layer("model.layers.1.self_attn", scaling=1.0)
    ),
    _wrong_layer(
        "gemma", "eps of one norm", "layers.1.input_layernorm", "eps", _layer("model.layers.1.input_layernorm", eps=0.1)
    ),
    _wrong_layer("roberta", "eps of the head", "lm_head", "eps", _layer("lm_head.layer_norm", eps=1e-2)),
    _wrong_layer(
        "electra", "eps of the embeddings", "embeddings", "eps", _layer("electra.embeddings.LayerNorm", eps=1e-2)
    ),
    _wrong_layer(
        "distilbert",
        "eps of one norm",
        "layer.0.sa_layer_norm",
        "eps",
        _layer("distilbert.transformer.layer.0.sa_layer_norm", eps=1e-2),
    ),
    _wrong_layer("vit", "eps of the last norm", "layernorm", "eps", _layer("vit.layernorm", eps=1e-2)),
)


def all_cases() -> tuple[Case, ...]:
    return (*_VISION, *_same_library(), *_TIMM, Case("diffusers/unet channels last", _unet), *_paddlenlp(), *_MISTAKES)
