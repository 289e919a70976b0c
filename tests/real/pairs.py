"""How pairs of models of public libraries are made: two frameworks, kernels, a compiler, a type, a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from real.libraries import (
    NLP,
    features_of,
    images,
    paddlenlp,
    text_inputs,
    text_model,
    tokens,
    torchvision_models,
    transformers,
)

Change = Callable[[Any], Any]
"""Changes a model in place, or gives another one."""


@dataclass(frozen=True)
class Pair:
    """Two models and how they are run: the arguments of `align_models`."""

    reference: Any
    candidate: Any
    inputs: Any
    options: dict[str, Any] = field(default_factory=dict)


# ---- torchvision against paddle.vision and timm ----------------------------------------------------------------------


def vision(name: str, size: int = 64, training: bool = False) -> Pair:
    """torchvision's and paddle.vision's model of this name."""
    import paddle.vision.models
    import torch

    torch.manual_seed(0)
    reference = getattr(torchvision_models(), name)(num_classes=10)
    candidate = getattr(paddle.vision.models, name)(num_classes=10)
    if not training:
        reference.eval()
        candidate.eval()
    return Pair(reference, candidate, images(size))


def features(name: str, *, batch_norm: bool = False) -> Pair:
    """The convolutions of a VGG, whose classifier alone has 120 million weights."""
    import paddle.vision.models
    import torch

    torch.manual_seed(0)
    reference = getattr(torchvision_models(), f"{name}_bn" if batch_norm else name)().features
    candidate = getattr(paddle.vision.models, name)(batch_norm=batch_norm, num_classes=0, with_pool=False)
    return Pair(reference.eval(), candidate.eval(), images(32))


def torchvision_timm(name: str, other: str) -> Pair:
    """A convolutional network of torchvision and the same one of timm."""
    import torch

    models = torchvision_models()
    import timm  # after torchvision, which it imports by itself

    torch.manual_seed(0)
    reference = getattr(models, name)(num_classes=10).eval()
    return Pair(reference, timm.create_model(other, num_classes=10).eval(), images(64))


def torchvision_timm_vit() -> Pair:
    import torch

    models = torchvision_models()
    import timm  # after torchvision, which it imports by itself

    torch.manual_seed(0)
    reference = models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10
    ).eval()
    torch.nn.init.normal_(reference.heads.head.weight)
    candidate = timm.models.VisionTransformer(
        img_size=32, patch_size=8, depth=2, num_heads=4, embed_dim=32, mlp_ratio=2, num_classes=10
    ).eval()
    return Pair(reference, candidate, images(32))


# ---- one library twice -----------------------------------------------------------------------------------------------


def twice(
    name: str,
    change: Change | None = None,
    *,
    attention: str = "eager",
    training: bool = False,
    loss: bool = False,
    padded: str = "",
    seed: int = 0,
    both: dict[str, Any] | None = None,
    **changed: Any,
) -> Pair:
    """A small model of transformers against its copy: with another kernel, other settings, or changed by `change`.

    training   both in training mode, with their dropout
    loss       the model's own loss and two steps of AdamW
    padded     tokens of one row at this side ("left", "right") are padding
    both       settings of both sides
    """
    first = text_model(name, seed=seed, **(both or {}))
    second = text_model(name, attention=attention, **{**(both or {}), **changed})
    second.load_state_dict(first.state_dict(), strict=False)
    if training:
        first, second = first.train(), second.train()
    made = None if change is None else change(second)
    second = second if made is None else made
    inputs = text_inputs(name, seed)
    if padded:
        inputs["attention_mask"] = np.ones_like(inputs["input_ids"])
        inputs["attention_mask"][0, slice(4) if padded == "left" else slice(-4, None)] = 0
    options = {}
    if loss:
        classes = name in ("bert", "vit")
        inputs["labels"] = np.array([0, 1]) if classes else inputs["input_ids"]
        options = {"loss": _own_loss, "optimizer": _adamw, "steps": 2}
    return Pair(first, second, inputs, options)


def _own_loss(outputs: Any) -> Any:
    return outputs["loss"] if isinstance(outputs, dict) else outputs[0]


def _adamw(model: Any) -> Any:
    import torch

    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def compiled(model: Any) -> Any:
    import torch

    return torch.compile(model)


def to(dtype: str) -> Change:
    """The model with weights of a narrower type."""

    def change(model: Any) -> Any:
        import torch

        return model.to(getattr(torch, dtype))

    return change


def checkpointed(model: Any) -> None:
    model.gradient_checkpointing_enable()


def autocast(name: str, dtype: str) -> Pair:
    """A model against itself under autocast."""
    import torch

    class Plain(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, **inputs: Any) -> Any:
            return self.inner(**inputs)

    class Cast(Plain):
        def forward(self, **inputs: Any) -> Any:
            with torch.autocast("cpu", dtype=getattr(torch, dtype)):
                return super().forward(**inputs)

    pair = twice(name)
    return Pair(Plain(pair.reference).eval(), Cast(pair.candidate).eval(), pair.inputs)


def without_container(name: str) -> Pair:
    """The model's result as a dict with names, and as a plain tuple."""
    return twice(name, lambda model: setattr(model.config, "return_dict", False))


def with_extras(name: str) -> Pair:
    """The candidate also returns every hidden state."""
    return twice(name, lambda model: setattr(model.config, "output_hidden_states", True))


def unet() -> Pair:
    """A UNet of diffusers, and its copy with channels last in memory."""
    import torch

    torchvision_models()
    import diffusers  # after torchvision, which it imports by itself

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


def autoencoder(change: Change | None = None) -> Pair:
    """A small variational autoencoder of diffusers and its copy, which `change` may make different."""
    import torch

    torchvision_models()
    import diffusers  # after torchvision, which it imports by itself

    def made() -> Any:
        return diffusers.AutoencoderKL(
            block_out_channels=(16, 32),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            norm_num_groups=4,
            latent_channels=4,
        ).eval()

    torch.manual_seed(0)
    first, second = made(), made()
    second.load_state_dict(first.state_dict())
    if change is not None:
        change(second)
    return Pair(first, second, images(16))


# ---- transformers against paddlenlp ----------------------------------------------------------------------------------


def nlp(name: str, training: bool = False, padded: bool = False) -> Pair:
    """transformers' and paddlenlp's small model of this name."""
    import paddle
    import torch

    theirs = paddlenlp()
    ours = transformers()
    torch.manual_seed(0)
    row = NLP[name]
    config = getattr(ours, row.config)(**row.settings)
    config._attn_implementation = "eager"
    reference = getattr(ours, row.model)(config).eval()
    candidate = getattr(theirs, row.their_model)(getattr(theirs, row.their_config)(**row.their_settings)).eval()
    inputs = {"input_ids": tokens()}
    if padded:
        inputs["attention_mask"] = np.ones_like(inputs["input_ids"])
        inputs["attention_mask"][0, -4:] = 0
    if not training:
        return Pair(reference, candidate, inputs)

    def loss(outputs: Any) -> Any:
        return (features_of(outputs) ** 2).mean()

    optimizers = (
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        lambda model: paddle.optimizer.SGD(0.1, parameters=model.parameters()),
    )
    return Pair(reference, candidate, inputs, {"loss": loss, "optimizer": optimizers, "steps": 2})


# ---- changes ---------------------------------------------------------------------------------------------------------


def layer(path: str, **values: Any) -> Change:
    """Other values of a layer's attributes."""

    def change(model: Any) -> None:
        for name, value in values.items():
            getattr(model.get_submodule(path), name)  # a misspelled attribute would plant nothing
            setattr(model.get_submodule(path), name, value)

    return change


def activation(path: str, attribute: str, name: str) -> Change:
    """Another activation in the place of a layer's own."""

    def change(model: Any) -> None:
        import torch

        getattr(model.get_submodule(path), attribute)
        setattr(model.get_submodule(path), attribute, getattr(torch.nn, name)())

    return change


def forward(path: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Change:
    """Other code of one layer: `wrap` is given its forward and gives the wrong one."""

    def change(model: Any) -> None:
        module = model.get_submodule(path)
        own = type(module)
        # A class of its own, since a copy of the model must not run the code of the model it was copied from.
        code = {"forward": lambda self, *given, **named: wrap(partial(own.forward, self))(*given, **named)}
        module.__class__ = type(own.__name__, (own,), code)

    return change
