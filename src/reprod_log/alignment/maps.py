"""map_weights: the weight map of two live models, without a comparison."""

from __future__ import annotations

from typing import Any

from reprod_log.alignment.models import batches_for, sides_of
from reprod_log.capture.session import suppress_recording
from reprod_log.errors import UsageError
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.live_map import find_weight_map, with_file_names


@suppress_recording()
def map_weights(reference: Any, candidate: Any, inputs: Any, *, targets: Any = None, loss: Any = None) -> WeightMap:
    """The map from the reference's weights to the candidate's under which both compute the same in float64.

    The arguments are those of `align_models`; a loss adds evidence. Neither model is changed. `agrees` of the result
    is True only if every output and the loss are the same numbers; `write_converter` makes a script of it.
    """
    ours, theirs = sides_of(reference, candidate, loss=loss)
    for side in (ours, theirs):
        if "operators" not in side.framework.can:
            raise UsageError(f"a map needs programs that are recorded kernel by kernel; {side.framework.name} has none")
    batch = batches_for(ours, inputs, targets, 1)[0]
    return with_file_names(find_weight_map(ours, theirs, batch), ours, theirs)
