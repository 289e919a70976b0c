"""write_converter: a weight map as a script of its own that converts checkpoints in both directions.

Every link becomes one numpy expression. The way back needs none: the script runs the expressions on the places of the
elements, and so knows where each number came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.errors import TransferError
from reprod_log.frameworks.checkpoints import FORMATS, SCRIPT_FILES
from reprod_log.layers.layouts import TensorView
from reprod_log.layers.transform import Shape
from reprod_log.pairing.links import Computed, Link, Recipe, WeightMap
from reprod_log.pairing.saved_map import link_steps
from reprod_log.recording.files import replacing
from reprod_log.version import __version__

_LETTERS = "abcdefghijklmnop"
_WIDTH = 118


def write_converter(weights: WeightMap, path: str | PathLike[str]) -> Path:
    """Write a script that converts a checkpoint of the reference into one of the candidate, and back.

    It needs numpy and whatever reads and writes the files. A map under which the programs do not compute the same is
    refused: it would convert to something else.
    """
    if not weights.agrees:
        raise TransferError(
            "the map is not proven: with it the two programs do not compute the same, so a checkpoint converted by it "
            "would be wrong. Compare the two with align_models to see where they differ."
        )
    text = converter_text(weights)
    _check(text, weights)
    path = Path(path)
    with replacing(path) as file:
        file.write(text.encode())
    return path


def converter_text(weights: WeightMap) -> str:
    """The whole script."""
    links = "".join(f"    {_line(link)},\n" for link in weights.links)
    tables = {
        "REFERENCE_FILES": dict(weights.reference_files),
        "CANDIDATE_FILES": dict(weights.candidate_files),
        "LEFT_IN_REFERENCE": weights.left_in_reference,
        "LEFT_IN_CANDIDATE": weights.left_in_candidate,
        "MODELS": weights.models,
    }
    made = "".join(f"{name} = {_wrapped(value)}\n" for name, value in tables.items())
    head = _HEAD.replace("VERSION", __version__).replace("FORMATS", FORMATS)
    return head + _LINKS.replace("    ...,\n", links) + made + _BODY + SCRIPT_FILES + _MAIN


def _no_script(link: Link) -> str:
    return f"{link.target!r} ({'; '.join(map(str, link_steps(link)))}) cannot be written as a script"


def _line(link: Link) -> str:
    names = _LETTERS[: len(link.sources)] if len(link.sources) <= len(_LETTERS) else ""
    arguments = list(names) or [f"a{place}" for place in range(len(link.sources))]
    sources = ", ".join(f"{name!r}: {shape!r}" for name, shape in zip(link.sources, link.source_shapes, strict=True))
    if len(set(link.sources)) < len(link.sources):
        raise TransferError(f"{link.target!r} is made of one weight twice, which a script cannot take back")
    recipe = link.recipe
    if isinstance(recipe, Computed) or (isinstance(recipe, Recipe) and recipe.order is not None):
        raise TransferError(_no_script(link))
    made = _of_view(recipe, arguments, link.shape) if isinstance(recipe, TensorView) else _of_recipe(recipe, arguments)
    parts = f"({link.target!r}, {link.shape!r}", f"{{{sources}}}", f"lambda {', '.join(arguments)}: {made})"
    return ", ".join(parts) if sum(map(len, parts)) < _WIDTH else ",\n     ".join(parts)


def _of_recipe(recipe: Recipe, arguments: list[str]) -> str:
    made = [one if recipe.fold is None else f"{one}.reshape{recipe.fold}" for one in arguments]
    made = [_transposed(one, recipe.axes) for one in made]
    if recipe.part is not None:
        axis, index, count = recipe.part
        made = [f"np.split({one}, {count}, {axis})[{index}]" for one in made]
    if recipe.span is not None:
        axis, start, end = recipe.span
        made = [f"{one}[{':, ' * axis}{start}:{end}]" for one in made]
    if recipe.added:
        whole = " + ".join(made)
        return f"np.flip({whole}, {recipe.flip})" if recipe.flip else whole
    whole = made[0]
    if recipe.join is not None:
        parts = ", ".join(made)
        whole = f"np.concatenate([{parts}], {recipe.join})"
        if recipe.heads:
            whole = f"interleaved([{parts}], {recipe.join}, {recipe.heads})"
    return f"np.flip({whole}, {recipe.flip})" if recipe.flip else whole


def _of_view(view: TensorView, arguments: list[str], shape: Shape) -> str:
    made = []
    for piece in view.pieces:
        one = _transposed(arguments[piece.tensor], piece.transform.axes)
        one = f"{one}.reshape(-1)" if piece.transform.flat else one
        made.append(f"np.split({one}, {piece.transform.parts})[{piece.part}]" if piece.transform.parts > 1 else one)
    whole = made[0] if view.joined.parts == 1 else f"np.concatenate([{', '.join(made)}])"
    axes = view.joined.axes
    if view.joined.flat:
        whole = f"{whole}.reshape({shape if axes is None else tuple(shape[axis] for axis in axes)})"
    return whole if axes is None else _transposed(whole, tuple(int(axis) for axis in np.argsort(axes)))


def _transposed(text: str, axes: Iterable[int] | None) -> str:
    if axes is None:
        return text
    axes = tuple(axes)
    if axes == (1, 0):
        # Twice is as it was: both sides store it the other way round than the canonical form.
        return text.removesuffix(".T") if text.endswith(".T") and text[:-2].isidentifier() else f"{text}.T"
    return f"{text}.transpose{axes}"


def _wrapped(value: Any) -> str:
    text = repr(value)
    if len(text) <= _WIDTH - 20:
        return text
    start, end = text[0], text[-1]
    items = [f"{k!r}: {v!r}" for k, v in value.items()] if isinstance(value, dict) else [repr(one) for one in value]
    return f"{start}\n" + "".join(f"    {one},\n" for one in items) + end


def _check(text: str, weights: WeightMap) -> None:
    """Hold every expression of the script against the link that it was made of."""
    space: dict[str, Any] = {"__name__": "converter"}
    exec(compile(text, "converter", "exec"), space)
    for link, (target, shape, sources, make) in zip(weights.links, space["LINKS"], strict=True):
        arrays, start = [], 1
        for one in link.source_shapes:
            size = int(np.prod(one, dtype=np.int64))
            arrays.append(np.arange(start, start + size).reshape(one))
            start += size
        same = (target, shape, list(sources)) == (link.target, link.shape, list(link.sources))
        if not same or not np.array_equal(make(*arrays).reshape(shape), link.apply(arrays)):
            raise TransferError(_no_script(link))


_HEAD = '''"""Converts checkpoints of the reference into the candidate's, and back. Written by reprod_log VERSION.

python FILE SOURCE TARGET          the reference's checkpoint into one for the candidate
python FILE --back SOURCE TARGET   the candidate's checkpoint into one for the reference

The suffixes name the formats: FORMATS.
--entry takes one entry of a checkpoint that holds more than weights (a "state_dict"); --base gives a checkpoint of
the target's side for tensors that are not in the map, such as counters and tables.
In Python: to_candidate(state), to_reference(state), with arrays by name.
"""

import argparse
import sys

import numpy as np

'''
_LINKS = """# Of each weight of the candidate: its shape, the weights of the reference that it is made of, and how.
LINKS = [
    ...,
]
"""
_BODY = '''

def interleaved(arrays, axis, heads):
    """The arrays joined head by head along an axis: head 1 of each, then head 2 of each, and so on."""
    cut = [one.reshape(*one.shape[:axis], heads, -1, *one.shape[axis + 1:]) for one in arrays]
    return np.concatenate(cut, axis + 1).reshape(*arrays[0].shape[:axis], -1, *arrays[0].shape[axis + 1:])


def to_candidate(state):
    """The candidate's arrays by name, made of the reference's."""
    state = known(state, REFERENCE_FILES)
    return listed({target: np.ascontiguousarray(
        make(*[take(state, name, one) for name, one in sources.items()]).reshape(shape))
        for target, shape, sources, make in LINKS}, CANDIDATE_FILES)


def to_reference(state):
    """The reference's arrays by name, made of the candidate's. Of a sum the first part gets all, the others zero."""
    state = known(state, CANDIDATE_FILES)
    made, filled = {}, {}
    for target, shape, sources, make in LINKS:
        array = take(state, target, shape).reshape(-1)
        for name, places, values in origins(sources, make, array):
            if name not in made:
                made[name] = np.zeros(sources[name], array.dtype)
                filled[name] = np.zeros(sources[name], bool)
            whole, done = made[name].reshape(-1), filled[name].reshape(-1)
            again = done[places]
            if not np.array_equal(whole[places][again], values[again]):
                sys.exit(f"{name!r} of the reference is several weights of the candidate, and they differ: {target!r} "
                         "has other numbers. The reference has no place for both.")
            whole[places], done[places] = values, True
    partial = [name for name, one in filled.items() if not one.all()]
    if partial:
        sys.exit(f"the candidate has only parts of {partial}: the reference's checkpoint cannot be made of it")
    return listed(made, REFERENCE_FILES)


def origins(sources, make, array):
    """For every source of a link: which of its elements are in the target, and their values."""
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in sources.values()]
    if is_sum(sources, make):
        for place, (name, shape) in enumerate(sources.items()):
            given = [np.zeros(one, np.int64) for one in sources.values()]
            given[place] = np.arange(sizes[place]).reshape(shape)
            yield name, make(*given).reshape(-1), array if place == 0 else np.zeros_like(array)
        return
    starts = np.cumsum([0, *sizes])
    numbered = [np.arange(starts[k], starts[k + 1]).reshape(shape) for k, shape in enumerate(sources.values())]
    places = make(*numbered).reshape(-1)
    for k, name in enumerate(sources):
        own = (places >= starts[k]) & (places < starts[k + 1])
        yield name, places[own] - starts[k], array[own]


def is_sum(sources, make):
    return len(sources) > 1 and bool((make(*[np.ones(shape, np.int64) for shape in sources.values()]) > 1).all())


def known(state, files):
    """The arrays under the names of the map; wrappings in front of all names are taken away."""
    for front in WRAPPINGS:
        if state and all(name.startswith(front) for name in state):
            state = {name[len(front):]: array for name, array in state.items()}
    found = {files[name]: array for name, array in state.items() if name in files}
    return {**found, **state}


def listed(state, files):
    """The arrays under every name that the framework's own checkpoints use."""
    return {**state, **{name: state[first] for name, first in files.items() if first in state}}


def take(state, name, shape):
    if name not in state:
        sys.exit(f"the checkpoint has no {name!r}; it has {sorted(state)[:5]} and so on")
    if state[name].shape != shape:
        sys.exit(f"{name!r} is {state[name].shape} in the checkpoint and {shape} in the map")
    return state[name]

'''
_MAIN = '''

def flat(content):
    """Arrays by name; those of several models with the model's name in front."""
    if not MODELS:
        return content
    return {f"{model}.{name}": array for model in MODELS for name, array in content[model].items()}


def nested(state):
    if not MODELS:
        return state
    return {model: {name[len(model) + 1:]: array for name, array in state.items() if name.startswith(f"{model}.")}
            for model in MODELS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--back", action="store_true", help="from the candidate to the reference")
    parser.add_argument("--entry", help="the entry of the source that holds the weights")
    parser.add_argument("--base", help="a checkpoint of the target's side with what is not in the map")
    options = parser.parse_args()
    content = read(options.source)
    state = flat(content[options.entry] if options.entry else content)
    made = to_reference(state) if options.back else to_candidate(state)
    left = LEFT_IN_REFERENCE if options.back else LEFT_IN_CANDIDATE
    if options.base:
        made = {**flat(read(options.base)), **made}
    elif left:
        print(f"not in the map, so not in {options.target}: {', '.join(left)}; --base FILE fills them", file=sys.stderr)
    write(options.target, nested(made))
    print(f"{options.target}: {len(made)} tensors")


if __name__ == "__main__":
    main()
'''
