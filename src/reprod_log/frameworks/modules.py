"""What modules of eager frameworks have in common: plain settings, weights kept in another form, evaluation mode."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

_NORMS = ("WeightNorm", "SpectralNorm")


@dataclass(frozen=True)
class KeptForm:
    """A weight that a layer keeps in another form: which form, and over which axis of the stored weight (None: all)."""

    form: Literal["WeightNorm", "SpectralNorm"]
    axis: int | None


def is_training(module: Any) -> bool:
    return bool(getattr(module, "training", False))


def plain_settings(module: Any, inherited: Collection[str] = ("training",)) -> dict[str, Any]:
    """The plain attributes of a module without leading underscores; not those that every module has."""
    found = {name: _plain(value) for name, value in vars(module).items() if name not in inherited}
    return {name.lstrip("_"): value for name, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    """The value as JSON has it; None when it is not a plain setting."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)) and all(isinstance(item, (bool, int, float, str)) for item in value):
        return list(value)
    return None


def set_setting(module: Any, name: str, value: Any) -> None:
    for attribute in (name, f"_{name}"):
        if attribute in vars(module):
            kept = vars(module)[attribute]
            setattr(module, attribute, type(kept)(value) if isinstance(kept, (tuple, list)) else value)


def norm_hooks(module: Any, package: str) -> list[Any]:
    """The hooks by which weight_norm and spectral_norm of this package compute a weight before each call."""
    hooks = module._forward_pre_hooks.values()
    return [one for one in hooks if type(one).__name__ in _NORMS and type(one).__module__.startswith(f"{package}.")]


def kept_form(norm: Any) -> KeptForm | None:
    """The form in which a weight norm or spectral norm keeps its weight; None for anything else."""
    form = type(norm).__name__.lstrip("_")
    if form not in _NORMS:
        return None
    # "All axes" is -1 or None.
    axis = None if norm.dim is None or norm.dim == -1 else int(norm.dim)
    return KeptForm(form, axis)  # type: ignore[arg-type]  # one of the two


def recompute_norms(module: Any, package: str) -> None:
    """Have weights that hooks derive follow what was just written."""
    for hook in norm_hooks(module, package):
        options = {"do_power_iteration": False} if type(hook).__name__ == "SpectralNorm" else {}
        setattr(module, hook.name, hook.compute_weight(module, **options))


def tensor_stores(module: Any, flat: str) -> Iterator[dict[str, Any] | list[Any]]:
    """Where a module keeps its tensors; a recurrent one has a list of them, besides, under the name `flat`."""
    yield module._parameters
    yield module._buffers
    if vars(module).get(flat) is not None:
        yield vars(module)[flat]


@contextmanager
def evaluation_mode(modules: Iterable[Any]) -> Iterator[None]:
    """While it lasts, these modules are in evaluation mode."""
    with ExitStack() as undo:
        for one in modules:
            undo.callback(setattr, one, "training", one.training)
            one.training = False
        yield
