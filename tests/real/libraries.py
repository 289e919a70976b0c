"""Public libraries of models as they are: how to import them here, and small models of theirs with random weights."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def torchvision_models() -> Any:
    """torchvision for its models only: its compiled operators belong to another build of torch than the CPU one."""
    import torch

    if not _KEPT:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
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
    "vit": ("ViTForImageClassification", "ViTConfig", {**_IMAGE, "image_size": 32, "patch_size": 8}),
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
    if name == "vit":
        return {"pixel_values": images(32, seed=seed)}
    return {"input_ids": tokens(seed=seed)}
