"""reprod map: from which weights of the reference each of the candidate's comes, and a script that converts them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from reprod_log.alignment import Alignment
from reprod_log.alignment.maps import map_weights
from reprod_log.cli import ALIGNED, NOT_ALIGNED, NOT_PROVEN
from reprod_log.cli.ending import give, tell_next, tell_written
from reprod_log.cli.options import AsJson, Language
from reprod_log.errors import UsageError
from reprod_log.messages import words
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.saved_map import map_to_dict
from reprod_log.report.map_view import print_map
from reprod_log.report.terminal import terminal
from reprod_log.steps.python_file import named_function, users_own
from reprod_log.transfer.converter import write_converter

NAME = "map"


def run(
    reference: Annotated[
        str,
        typer.Argument(metavar="REF", help="FILE.py:FUNCTION that makes the reference; or a saved alignment (JSON)."),
    ],
    candidate: Annotated[
        str | None, typer.Argument(metavar="CAND", help="FILE.py:FUNCTION that makes the candidate.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option("--inputs", metavar="BATCH", help="The inputs of both models: .npz, .npy or FILE.py:FUNCTION."),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option("--targets", metavar="BATCH", help="The targets of the loss, in the same forms."),
    ] = None,
    loss: Annotated[
        list[str],
        typer.Option(
            "--loss", metavar="FUNCTION", help="FILE.py:FUNCTION of (outputs, targets); given twice, one per side."
        ),
    ] = [],  # noqa: B006  # typer's way of saying 'none given'
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a script that converts checkpoints.")
    ] = None,
    language: Language = "en",
    json: AsJson = None,
) -> int:
    """Print the map of weights under which both models compute the same, and write it as a converter."""
    found = _saved(reference) if candidate is None else _searched(reference, candidate, inputs, targets, loss)
    print_map(found, terminal(), words(language))
    give(lambda: {"weight_map": map_to_dict(found), "written": []})
    if output is not None:
        tell_written(write_converter(found, output))
        tell_next("python", output, "--help")
    elif found.agrees:
        given = [reference, *([candidate, "--inputs", inputs] if candidate and inputs else [])]
        tell_next("reprod", "map", *given, "-o", "convert.py")
    if not found.agrees:
        return NOT_ALIGNED
    return NOT_PROVEN if found.crossings else ALIGNED


def _saved(path: str) -> WeightMap:
    if ".py:" in path:
        raise UsageError(f"{path} makes one model; give the candidate's as well: reprod map {path} FILE.py:FUNCTION")
    found = Alignment.load(path).weight_map
    if found is None:
        raise UsageError(
            f"{path} has no weight map: align_models finds one where both programs compute the same in float64. "
            "For a map without a comparison give the functions that make the models: "
            "reprod map models.py:make_reference models.py:make_candidate --inputs batch.npz"
        )
    return found


def _searched(reference: str, candidate: str, inputs: str | None, targets: str | None, losses: list[str]) -> WeightMap:
    if inputs is None:
        raise UsageError("--inputs is missing: a map is proven by running both models, e.g. --inputs batch.npz")
    if len(losses) > 2:
        raise UsageError(
            f"--loss is given {len(losses)} times; give one for both sides, or the reference's and the candidate's"
        )
    with ExitStack() as files:

        def function(text: str, what: str) -> Any:
            return files.enter_context(named_function(text, what=what))

        makers = function(reference, "REF"), function(candidate, "CAND")
        with users_own(Path(reference.rpartition(":")[0])):
            models = makers[0](), makers[1]()
        loss = tuple(function(one, "--loss") for one in losses)
        return map_weights(
            *models,
            _batch(inputs, "--inputs", files),
            targets=None if targets is None else _batch(targets, "--targets", files),
            loss=None if not loss else loss[0] if len(loss) == 1 else loss,
        )


def _batch(text: str, what: str, files: ExitStack) -> Any:
    """The arrays of a file, or what a function gives."""
    if ".py:" in text:
        make = files.enter_context(named_function(text, what=what))
        with users_own(Path(text.rpartition(":")[0])):
            return make()
    try:
        content = np.load(text, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {what} {text}: {error}. It is a .npy or .npz file of arrays") from error
    if isinstance(content, np.ndarray):
        return content
    arrays = dict(content)
    places = [f"arr_{place}" for place in range(len(arrays))]
    return tuple(arrays[name] for name in places) if list(arrays) == places else arrays
