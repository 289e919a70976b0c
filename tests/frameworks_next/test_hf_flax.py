"""Flax models of Hugging Face against their torch models, as they come: no map, no names given."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from reprod_log import Status, align_models

_WIDTHS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
CONFIGS = {
    "Bert": {**_WIDTHS, "max_position_embeddings": 16},
    "GPT2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16},
    "Llama": {**_WIDTHS, "num_key_value_heads": 2, "max_position_embeddings": 16},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_both_models_of_a_library_are_aligned(name):
    config = getattr(transformers, f"{name}Config")(vocab_size=50, **CONFIGS[name])
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config).eval()
    port = getattr(transformers, f"Flax{name}Model")(config, seed=0)
    ids = np.random.default_rng(0).integers(2, 50, (2, 7))
    found = align_models(model, port, {"input_ids": ids, "attention_mask": np.ones((2, 7), np.int64)})
    assert found.status is Status.PASS, str(found)
    assert [one for one in found.findings if one.kind == "cause"] == []
