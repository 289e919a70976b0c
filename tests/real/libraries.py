"""Public libraries of models as they are: how to import them here, and small models of theirs with random weights."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def torchvision_models() -> Any:
    """torchvision for its models only: its compiled operators belong to another build of torch than the CPU one."""
    from torch import library

    if not _KEPT:
        operators = library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(operators)
    import torchvision.models

    return torchvision.models


_KEPT: list[Any] = []
"""A library of operators lives as long as its object."""


def transformers() -> Any:
    """transformers looks for torchvision by itself, which must have been imported in its own way before."""
    with suppress(ImportError):  # the environment of paddlenlp has none
        torchvision_models()
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


def paddlenlp() -> Any:
    """paddlenlp.transformers; its hub client wants names that the installed client no longer has, and never calls."""
    import aistudio_sdk.hub as hub

    def absent(*_: Any, **__: Any) -> Any:
        raise RuntimeError("nothing is downloaded")

    for name in ("download", "create_repo", "upload", "file_exists"):
        if not hasattr(hub, name):
            setattr(hub, name, absent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import paddlenlp.transformers
    return paddlenlp.transformers


def images(size: int = 64, batch: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, 3, size, size)).astype(np.float32)


def tokens(vocabulary: int = 99, batch: int = 2, length: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, vocabulary, (batch, length)).astype(np.int64)


_SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_GPT2 = {
    "vocab_size": 99,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_IMAGE = {k: _SMALL[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}

_T5 = {
    "vocab_size": 99,
    "d_model": 32,
    "d_kv": 8,
    "num_layers": 2,
    "num_heads": 4,
    "d_ff": 64,
    "dropout_rate": 0.0,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
_BART = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
}
_PICTURE = {**_IMAGE, "image_size": 32, "patch_size": 8}

TEXT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForSequenceClassification", "BertConfig", _SMALL),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", _SMALL),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {**_SMALL, "embedding_size": 16}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", _GROUPED),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _GROUPED),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**_GROUPED, "head_dim": 8}),
    "opt": ("OPTForCausalLM", "OPTConfig", {**_SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64},
    ),
    "vit": ("ViTForImageClassification", "ViTConfig", _PICTURE),
    "t5": ("T5ForConditionalGeneration", "T5Config", _T5),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {**_SMALL, "embedding_size": 16}),
    "xlm_roberta": ("XLMRobertaForMaskedLM", "XLMRobertaConfig", _SMALL),
    "mpnet": ("MPNetForMaskedLM", "MPNetConfig", {**_SMALL, "pad_token_id": 1, "bos_token_id": 0}),
    "bart": ("BartForConditionalGeneration", "BartConfig", _BART),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "max_position_embeddings": 64,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _SMALL),
    "phi": ("PhiForCausalLM", "PhiConfig", _GROUPED),
    "bloom": ("BloomForCausalLM", "BloomConfig", {**_GPT2, "hidden_size": 32}),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", _GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**_GROUPED, "head_dim": 8}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", _GROUPED),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", _GROUPED),
    "deit": ("DeiTForImageClassification", "DeiTConfig", _PICTURE),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", {**_PICTURE, "mlp_ratio": 2}),
    "convnext": (
        "ConvNextForImageClassification",
        "ConvNextConfig",
        {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 2, 1], "image_size": 32},
    ),
}
"""By name: class, class of its configuration, what makes it small."""


def text_model(name: str, *, attention: str = "eager", seed: int = 0, **changed: Any) -> Any:
    """A small model of transformers in evaluation mode; `changed` are settings of its configuration."""
    import torch

    library = transformers()
    model, config, settings = TEXT[name]
    torch.manual_seed(seed)
    made = getattr(library, config)(**{**settings, **changed})
    made._attn_implementation = attention
    return getattr(library, model)(made).eval()


def text_inputs(name: str, seed: int = 0) -> Arrays:
    if name in ("vit", "deit", "dinov2", "convnext"):
        return {"pixel_values": images(32, seed=seed)}
    if name in ("t5", "bart"):
        return {"input_ids": tokens(seed=seed), "decoder_input_ids": tokens(length=7, seed=seed + 1)}
    return {"input_ids": tokens(seed=seed)}


@dataclass(frozen=True)
class NlpRow:
    """One model of transformers and the one of paddlenlp that stands for it, both small."""

    model: str
    config: str
    settings: dict[str, Any]
    their_model: str
    their_config: str
    their_settings: dict[str, Any]


def _alike(model: str, settings: dict[str, Any], **theirs: Any) -> NlpRow:
    """A model that is called the same in both and has the same settings, but for `theirs`."""
    config = f"{model.removesuffix('Model').removesuffix('Encoder').removesuffix('ForCausalLM')}Config"
    return NlpRow(model, config, settings, model, config, settings | theirs)


_NLP_SMALL = {
    **{name: value for name, value in _SMALL.items() if not name.endswith("_token_id")},
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_NLP_PLAIN = {name: value for name, value in _NLP_SMALL.items() if "dropout" not in name}
_NLP_DISTIL = TEXT["distilbert"][2]
_NLP_T5 = {name: value for name, value in _T5.items() if not name.endswith("_token_id")}

NLP: dict[str, NlpRow] = {
    "bert": _alike("BertModel", _NLP_SMALL),
    "roberta": _alike("RobertaModel", {**_NLP_SMALL, "pad_token_id": 0}),
    "distilbert": NlpRow(
        "DistilBertModel",
        "DistilBertConfig",
        _NLP_DISTIL,
        "DistilBertModel",
        "DistilBertConfig",
        {**_NLP_SMALL, "dim": 32},
    ),
    "llama": _alike("LlamaForCausalLM", _NLP_PLAIN, use_flash_attention=False),
    # paddlenlp's GPT has the tanh form of GELU whatever its configuration says.
    "gpt2": NlpRow("GPT2Model", "GPT2Config", {**_GPT2, "n_inner": 64}, "GPTModel", "GPTConfig", _NLP_SMALL),
    "gpt2 exact gelu": NlpRow(
        "GPT2Model",
        "GPT2Config",
        {**_GPT2, "n_inner": 64, "activation_function": "gelu"},
        "GPTModel",
        "GPTConfig",
        _NLP_SMALL,
    ),
    "t5": _alike("T5EncoderModel", _NLP_T5),
    "ernie": _alike("ErnieModel", {**_NLP_SMALL, "use_task_id": False, "pad_token_id": 0}),
    "electra": _alike("ElectraModel", {**_NLP_SMALL, "embedding_size": 16}),
    "albert": _alike("AlbertModel", {**_NLP_SMALL, "embedding_size": 16}, num_hidden_groups=1, inner_group_num=1),
    "mpnet": _alike("MPNetModel", {**_NLP_SMALL, "pad_token_id": 1}),
}


def features_of(outputs: Any) -> Any:
    """The first tensor of what a model gives: a tensor, a tuple, or an object with names."""
    for name in ("logits", "last_hidden_state"):
        if getattr(outputs, name, None) is not None:
            return getattr(outputs, name)
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs
