"""Values: results given as numbers, arrays or nests of them, each under a name; subjects: data, metric, loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from reprod_log.capture import flatten, to_numpy
from reprod_log.capture.eager import runner_of
from reprod_log.errors import UsageError
from reprod_log.frameworks import Framework, watchable
from reprod_log.frameworks.nests import mapped
from reprod_log.messages import message
from reprod_log.recording import Array, Key, Provenance, Recording, current_provenance
from reprod_log.recording.entry import content_hash
from reprod_log.recording.recorder import Recorder
from reprod_log.steps.subject import Subject


def given(side: Any, arguments: tuple[Any, ...] = ()) -> Any:
    """The side's values: itself, or what it gives when it is called."""
    return side(*arguments) if callable(side) else side


def named(values: Any, name: str) -> Iterator[tuple[str, Array]]:
    """Every number or array of `values` with its name; a bare one is called `name`."""
    found = [(role or name, to_numpy(leaf)) for role, leaf in flatten(values)]
    if not found:
        raise UsageError(f"there is no {name} in {values!r}")
    yield from found


def values_recording(values: Mapping[Key, Array], *, provenance: Provenance | None = None) -> Recording:
    """A recording of values at hand, in order."""
    recorder = Recorder(provenance=provenance or origin())
    for key, array in values.items():
        recorder.add(key, array)
    return recorder.close()


def origin(thing: Any = None, **known: Any) -> Provenance:
    """Where values of this process come from: from `thing` or its framework, else from the only one loaded."""
    framework = thing if isinstance(thing, Framework) else _owner(thing)
    if framework is None:
        return current_provenance(**known)
    return current_provenance(framework=framework.name, framework_version=framework.version, **known)


def _owner(thing: Any) -> Framework | None:
    known = _watchable()
    while isinstance(thing, (tuple, list, Mapping)) and len(thing):
        thing = next(iter(thing.values() if isinstance(thing, Mapping) else thing))
    homes = (getattr(thing, "__module__", ""), *(one.__module__ for one in type(thing).__mro__))
    for home in homes:
        top = str(home or "").partition(".")[0]
        if top in known:
            return known[top]
    return next(iter(known.values())) if len(known) == 1 else None


def _watchable() -> dict[str, Framework]:
    return {one.name: one for one in watchable()}


def only_framework(thing: Any) -> Framework:
    """The framework that a function works with: its own module's, else the only one loaded."""
    framework = _owner(thing)
    if framework is not None:
        return framework
    raise UsageError(
        f"cannot tell which framework {_name(thing)} works with ({', '.join(_watchable()) or 'none'} loaded); "
        f"give it as a pair, e.g. ({next(iter(_watchable()), 'name')!r}, function)"
    )


def with_framework(side: Any) -> tuple[Framework, Callable[..., Any]]:
    """A function with its framework, given as a pair or found out."""
    if isinstance(side, tuple) and len(side) == 2 and isinstance(side[0], str):
        name, function = side
        if name in _watchable():
            return _watchable()[name], function
        raise UsageError(f"{name!r} is not a framework of this process; import it first")
    if not callable(side):
        raise UsageError(f"expected a function, got {type(side).__name__}")
    return only_framework(side), side


def _name(thing: Any) -> str:
    return getattr(thing, "__name__", type(thing).__name__)


# ---- data: length of the data set, its samples, and batches without shuffling ----------------------------------------
def _record_data(side: Any, *, samples: int = 16, batches: int = 4) -> Recording:
    """The lengths, some samples and the first batches of one side.

    side      a data set (length and index), an iterable of batches, or both: {"dataset": …, "loader": …}
    samples   how many samples of the data set: the first, the last, and others spread evenly between
    batches   how many batches, from the first on
    """
    parts = side if isinstance(side, Mapping) and set(side) <= {"dataset", "loader"} and side else _part(side)
    entries: dict[Key, Array] = {}
    if "dataset" in parts:
        entries |= _samples(parts["dataset"], samples)
    if "loader" in parts:
        entries |= _batches(parts["loader"], batches)
    whole = content_hash(np.array([content_hash(array) for array in entries.values()], dtype="S32"))
    return values_recording(entries, provenance=origin(side, data_hash=whole))


def _part(side: Any) -> dict[str, Any]:
    if hasattr(side, "__getitem__") and hasattr(side, "__len__"):
        return {"dataset": side}
    if hasattr(side, "__iter__"):
        return {"loader": side}
    raise UsageError(f"a {type(side).__name__} is neither a data set (length and index) nor an iterable of batches")


def _samples(dataset: Any, samples: int) -> dict[Key, Array]:
    length = len(dataset)
    places = sorted({round(place) for place in np.linspace(0, length - 1, min(samples, length))}) if length else []
    entries = {Key(path="dataset.length", phase="data", step=0): np.array(length)}
    for place in places:
        entries |= _leaves(dataset[place], "dataset", place)
    return entries


def _batches(loader: Any, batches: int) -> dict[Key, Array]:
    entries: dict[Key, Array] = {}
    if hasattr(loader, "__len__"):
        entries[Key(path="loader.length", phase="data", step=0)] = np.array(len(loader))
    for place, batch in enumerate(islice(iter(loader), batches)):
        entries |= _leaves(batch, "loader", place)
    return entries


def _leaves(structure: Any, path: str, place: int) -> dict[Key, Array]:
    return {Key(path=path, phase="data", step=place, role=role): to_numpy(leaf) for role, leaf in flatten(structure)}


data = Subject(
    name="data",
    title="data reading",
    words=("data", "dataset", "dataloader", "dataload"),
    limits=("max_abs:0",),
    why=message("reason.limit.same_file"),
    record=_record_data,
)


# ---- metric: the same predictions give the same score ----------------------------------------------------------------
def _record_metric(side: Any, *, arguments: tuple[Any, ...] = ()) -> Recording:
    """The scores of one side.

    side   a score, several by name, or a function that gives them; called with `arguments` (the same numpy arrays on
           both sides, e.g. predictions and labels), which it turns into its own tensors
    """
    scores = named(given(side, arguments), "metric")
    return values_recording(
        {Key(path=name, phase="metric", step=0): array for name, array in scores}, provenance=origin(side)
    )


metric = Subject(
    name="metric",
    title="metric",
    words=("metric", "metrics", "eval", "acc", "val"),
    limits=("mean_abs:1e-6",),
    why=message("reason.limit.guides"),
    record=_record_metric,
)


# ---- loss: the same output and label give the same loss, and the same gradient of the output -------------------------
def _record_loss(side: Any, *, outputs: Any = None, targets: Any = None, float64: bool = True) -> Recording:
    """The loss of one side, the gradient of the model's outputs under it, and both again in float64.

    side      loss(outputs, targets) → a scalar or several by name, whose sum is backpropagated; as a pair
              ('paddle', function) when its framework cannot be found out. Without `outputs`: the loss itself,
              several by name, or a function that gives them
    outputs   what the model returned, as numpy arrays: one, or several in a dict or tuple
    targets   what the loss is given besides
    """
    if outputs is None:
        losses = named(given(side), "loss")
        return values_recording(
            {Key(path=name, phase="loss", step=0): array for name, array in losses}, provenance=origin(side)
        )
    framework, function = with_framework(side)
    entries: dict[Key, Array] = {}
    for dtype in (None, "float64") if float64 else (None,):
        entries |= _pass(framework, function, outputs, targets, dtype)
    return values_recording(entries, provenance=origin(framework))


def _pass(framework: Framework, function: Any, outputs: Any, targets: Any, dtype: str | None) -> dict[Key, Array]:
    arguments = [outputs] if targets is None else [outputs, targets]
    arrays = [mapped(one, lambda _, leaf: to_numpy(leaf)) for one in arguments]
    found = runner_of(framework).evaluate(framework, function, arrays, dtype)
    run = dtype or ""
    losses = {Key(path=role or "loss", phase="loss", step=0, run=run): one for role, one in found.outputs.items()}
    # The first argument is what the model returned.
    first = {role: one for role, one in found.input_gradients.items() if role.split(".")[1] == "0"}
    paths = {role: ".".join(["outputs", *role.split(".")[2:]]) for role in first}
    return losses | {Key(path=paths[role], phase="backward", step=0, run=run): one for role, one in first.items()}


loss = Subject(
    name="loss",
    title="loss",
    words=("loss", "losses", "criterion"),
    limits=("mean_abs:1e-6",),
    why=message("reason.limit.guides"),
    record=_record_loss,
)
