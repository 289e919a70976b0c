"""align_models: two live models, one call: transfer, run in every way the verdict needs, match, measure, judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.alignment.alignment import Alignment
from reprod_log.alignment.blocks import Blocks, align_blocks, is_factory, made
from reprod_log.alignment.loading import as_loaded, load_weights, searched_map
from reprod_log.alignment.options import AlignOptions
from reprod_log.alignment.recordings import align_with, crossed
from reprod_log.alignment.stopped import stopped
from reprod_log.capture.live import live_model
from reprod_log.capture.session import suppress_recording
from reprod_log.diagnose import Finding
from reprod_log.diagnose.finding import told
from reprod_log.diagnose.rounds import proven
from reprod_log.errors import UsageError, interrupted
from reprod_log.experiments.need import Storage
from reprod_log.experiments.passes import Experiments
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.nests import mapped
from reprod_log.frameworks.side import Batch, Side, as_mapping, batches_of
from reprod_log.frameworks.tensors import rounded
from reprod_log.messages import Message, Name, Names, Parts, message
from reprod_log.pairing.crossings import renamed_layers
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.live_map import (
    with_file_names,
)
from reprod_log.pairing.rename import oriented
from reprod_log.pairing.survey import survey
from reprod_log.pairing.units import BARE
from reprod_log.progress import Progress, shown, stage
from reprod_log.recording import Array, Key, Recording
from reprod_log.recording.counting import counting
from reprod_log.verdict import CalibratedPolicy, Limit, Policy
from reprod_log.verdict.policy import patterns

_MOST_SHOWN = 24
_LAYOUTS_APART = {"weight", "kernel"}
"""Names of one tensor in frameworks that keep its axes in opposite orders: it is never loaded by name."""


@suppress_recording()
def align_models(
    reference: Any,
    candidate: Any,
    inputs: Any,
    *,
    targets: Any = None,
    loss: Any = None,
    optimizer: Any = None,
    step: Any = None,
    steps: int | None = None,
    detailed: int | None = None,
    transfer: bool = True,
    allow_left: str | Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    policy: Policy | CalibratedPolicy | None = None,
    limits: str | Iterable[Limit | str] = (),
    allow_unmatched: str | Iterable[str] = (),
    accept: str | Iterable[str] = (),
    allow_unproven: bool = False,
    equal_nan: bool = False,
    counts: Any = None,
    threads: int | None = None,
    quick: bool = False,
    spool: str | Path | None = None,
    budget: int | None = None,
    progress: bool | Progress | None = None,
) -> Alignment:
    """Compare two live models and separate rounding from defects.

    reference, candidate   modules of any known framework, or several by name ({"generator": g, …}); each in the mode
                           (train or eval) in which it is to be compared. Or functions that create them (lambda: Net()),
                           or both as `Blocks`, created and compared one by one, for models larger than memory
    inputs                 one batch of arrays or tensors (a dict by parameter name, a tuple, or a single one), or a
                           list with one per step
    targets                second argument of the loss; like `inputs`
    loss                   loss(outputs, targets) → scalar; a pair if the two sides need different ones
    optimizer              a function that creates the optimizer (or optimizer and scheduler) for a model; one or a pair
    step                   instead of `loss`: step(model, optimizer, inputs, targets) does a whole iteration
    steps                  how many iterations; by default as many as there are batches, at least 5 with an optimizer
    detailed               keep everything for this many first iterations only, and losses and rates of the others;
                           by default everything is kept, for which a large model or a long run may have no room
    transfer               transfer the reference's weights first (changes the candidate; its other state stays)
    allow_left             patterns of weights that only one side has and that are not transferred on purpose
    quick                  only isolation and the float64 run, without the precision tier; with Blocks, gradients of
                           layers alone only in the last block, which has the loss
    spool                  a folder on a disk for the arrays of all runs, which are freed with the result; by default
                           memory if they are few, and a folder for temporary files if they are many
    budget                 maximum bytes for these arrays; if more is needed, fewer iterations are kept whole, and the
                           precision tier is skipped if that is not enough; the notes of the reference list it

    `rename`, `policy`, `limits`, `allow_unmatched`, `accept`, `allow_unproven`, `equal_nan`, `counts`, `threads` and
    `progress` are those of `align`.
    Neither model is trained: all runs use copies. Every dropout gets the same masks on both sides.
    On Ctrl-C, the `result` of the KeyboardInterrupt is the alignment of the passes that both sides had completed, if
    both had run in float64; it never passes.
    """
    left = patterns(allow_left, name="allow_left")
    options = AlignOptions.of(
        rename=rename,
        policy=policy,
        limits=limits,
        allow_unmatched=[
            *patterns(allow_unmatched, name="allow_unmatched"),
            *(key for one in left for key in (f"*/{one}", f"*/{one}:*")),
        ],
        accept=accept,
        allow_unproven=allow_unproven,
        equal_nan=equal_nan,
        counts=counts,
        threads=threads,
    )
    if budget is not None and budget < 0:
        raise UsageError(f"budget must be a number of bytes, not {budget!r}")
    if detailed is not None and detailed < 1:
        raise UsageError(f"detailed is {detailed}: at least the first iteration must be kept whole")

    def aligned(ours: Side, theirs: Side, batches: list[Batch], options: AlignOptions) -> tuple[Experiments, Alignment]:
        options = replace(options, rename=_oriented(options.rename, ours, theirs))
        ours, theirs = _called_once(ours, batches[0]), _called_once(theirs, batches[0])
        theirs, packed = _readable(ours, theirs, batches[0])
        ours, batches = _in_precision_of(theirs, ours, batches)
        storage = Storage.of(ours, theirs, batches, spool=spool, budget=budget, detailed=detailed, quick=quick)
        # A quantised value, such as a graph, was read with the reference's weights.
        moved = transfer if packed is None else theirs.framework.programs is None
        if moved:
            loaded = load_weights(ours, theirs, batches[0], options.rename, left, storage.spool)
        else:
            loaded = as_loaded(ours, theirs, searched_map(ours, theirs, batches[0], storage.spool))
        told = options.rename, loaded.notes, loaded.tables, loaded.weights
        given = (ours, loaded.side, batches, *told, storage, packed)
        counts = next(iter(options.counts), None)
        runs = Experiments(
            *given, counts=counts, gradients=not (quick and isinstance(reference, Blocks) and ours.loss is None)
        )
        alignment = _aligned(runs, options, loaded.assumed)
        spoiled = _spoiled_constants(ours, theirs) if packed is None and alignment.passed else ()
        return runs, replace(alignment, findings=(*spoiled, *alignment.findings))

    with shown(progress):
        reference, candidate = _given(reference, "reference"), _given(candidate, "candidate")
        if isinstance(reference, Blocks) or isinstance(candidate, Blocks):
            both = _both_blocks(reference, candidate, optimizer, step)
            losses = [_of(loss, side) for side in (0, 1)]
            for one in losses:
                _check_callable(Side(None, one))
            batches = batches_for(Side(None, losses[0]), inputs, targets, steps)
            return align_blocks(*both, batches, losses, options, aligned)
        ours, theirs = sides_of(reference, candidate, loss=loss, optimizer=optimizer, step=step)
        return aligned(ours, theirs, batches_for(ours, inputs, targets, steps), options)[1]


def _given(model: Any, side: str) -> Any:
    """The model, made if it is given as a function that makes it; one in several blocks is made block by block."""
    if isinstance(model, Blocks):
        return model.make("", side) if list(model.factories) == [""] else model
    if isinstance(model, Mapping):
        return {name: _given(one, side) for name, one in model.items()}
    return made(model, f"the {side}") if is_factory(model) else model


def _both_blocks(reference: Any, candidate: Any, optimizer: Any, step: Any) -> tuple[Blocks, Blocks]:
    """Both sides in blocks, or the reason why they cannot be compared block by block."""
    if optimizer is not None or step is not None:
        raise UsageError(
            "Blocks are compared by what they compute, each with its gradients, and by the loss: leave optimizer and "
            "step out. Training runs the whole model, so compare it on a smaller one"
        )
    for side, model in (("reference", reference), ("candidate", candidate)):
        if not isinstance(model, Blocks):
            raise UsageError(
                f"one side is given as Blocks, and the {side} is a {type(model).__name__}. Give both as Blocks, cut at "
                "the same places"
            )
    return reference, candidate


def _aligned(runs: Experiments, options: AlignOptions, assumed: WeightMap | None) -> Alignment:
    """The alignment of all passes; of those that were complete when Ctrl-C came, as its `result`.

    `assumed` is the map that the weights went through where no run of both could prove one.
    """
    weights = runs.weights
    try:
        recordings = runs.recordings()
    except KeyboardInterrupt:
        raise interrupted(str(message("stopped.nothing", complete=_told(runs.complete)))) from None
    alignment = align_with(*recordings, options, weights)
    if runs.stopped:
        raise stopped(alignment, message("stopped.passes", complete=_told(runs.complete)))
    try:
        with stage(message("progress.proving")):
            alignment = prove(alignment, runs, *(counting(one, options.counts)[0] for one in recordings))
    except KeyboardInterrupt:
        raise stopped(alignment, message("stopped.proving")) from None
    proven = any(one.kind == "cause" and one.confidence == "proven" for one in alignment.findings)
    if weights is None and proven and not alignment.passed:
        # With the wrong weights no fix would make a layer right.
        return alignment
    weights = weights or assumed
    # Where positions do not count, programs may differ there, and the map is known all the same.
    if weights is None or (weights.is_known and (not alignment.passed or options.counts)):
        return alignment
    if not weights.agrees:
        # The weights were transferred by a map under which the programs do not agree in float64.
        first = _before_unproven(alignment, weights)
        less_sure = (one if _is_about(one, first) else _less_sure(one) for one in alignment.findings)
        return replace(alignment, findings=(*_unproven(weights), *less_sure))
    doubts = (*crossed(weights.crossings, options.rename), *_reordered(weights, runs))
    findings = (*doubts, *alignment.findings, *_by_values(weights))
    return replace(alignment, findings=findings, weight_map=with_file_names(weights, runs.ours, runs.theirs))


def _unproven(weights: WeightMap) -> Iterator[Finding]:
    """What is to be known of a map under which the programs do not agree."""
    names = Names(weights.unproven[:_MOST_SHOWN]) if weights.unproven else message("coverage.none")
    yield told("cause.unproven_map", names=names)
    left = (*weights.left_in_reference, *weights.left_in_candidate)
    if left and not weights.complete:
        yield told("cause.unpaired_weights", names=Names(left[:_MOST_SHOWN]))


def _before_unproven(alignment: Alignment, weights: WeightMap) -> Key | None:
    """The first divergence, if it comes before any weight that values do not speak for is used."""
    first = alignment.verdict.first_divergence
    forward = [row.key for row in alignment.comparison.rows if row.key.phase == "forward" and not row.key.run]
    if first is None or first.key not in forward:
        return None
    before = {key.path for key in forward[: forward.index(first.key)] if key.role.startswith("output")}
    names = [name for target in weights.unproven for name in weights.by_target[target].sources]
    layers = {name.rpartition(".")[0] for name in names}
    # When a module uses a tensor of its own, between the layers inside it, is not known.
    leaves = layers <= {key.path for key in forward} and not any(
        key.path.startswith(f"{layer}.") or not layer for key in forward for layer in layers
    )
    return first.key if leaves and not layers & before else None


def _is_about(finding: Finding, key: Key | None) -> bool:
    """Whether a finding is about this entry or the region around it."""
    if key is None or not finding.keys:
        return False
    one = finding.keys[0]
    region = one.path if one.run == "isolated" else None
    return one == key or (region is not None and (not region or key.path.startswith(f"{region}.")))


def _told(passes: Sequence[Message]) -> Message | Parts:
    # Layers alone run in several precisions under one name.
    return Parts(dict.fromkeys(passes)) if passes else message("stopped.no_pass")


def _called_once(side: Side, batch: Batch) -> Side:
    """The side; of a model whose modules are made as it is called, with what a call tells of them."""
    programs = side.framework.programs
    return side if programs is None else replace(side, model=programs.called_once(side, batch))


def _readable(ours: Side, theirs: Side, batch: Batch) -> tuple[Side, Side | None]:
    """A quantised candidate without rounding, whose weights can be replaced, and as it runs; any other as it is."""
    packed = theirs.readable(batch[0], ours)
    if packed is None:
        return theirs, None
    if theirs.loss is not None or theirs.step is not None:
        raise UsageError("a quantised model is not trained: leave loss, step and optimizer out")
    return packed.rounding("none"), packed


def _in_precision_of(theirs: Side, ours: Side, batches: list[Batch]) -> tuple[Side, list[Batch]]:
    """The reference and the inputs, with the values that the candidate can hold where its type is narrower.

    That weights and inputs are rounded is the type's doing; what the candidate then computes is the question.
    """
    narrow = theirs.narrow
    if narrow is None or narrow == ours.narrow or "emulate" not in ours.framework.can:
        return ours, batches

    def value(_: str, leaf: Any) -> Any:
        return rounded(leaf, narrow) if isinstance(leaf, np.ndarray) else leaf

    return ours.rounded(narrow), [(mapped(inputs, value), targets) for inputs, targets in batches]


def _oriented(rename: Mapping[str, str], ours: Side, theirs: Side) -> Mapping[str, str]:
    """The user's rules as reference → candidate, in the names of reports: several models' paths begin with a model."""
    if not rename:
        return rename
    models = tuple(ours.model) if isinstance(ours.model, Mapping) else ()
    return oriented(rename, _names(ours), _names(theirs), models)


def _names(side: Side) -> Iterator[str]:
    """The paths of all modules and weights of a side."""
    for prefix, model in as_mapping(side.model).items():
        for module in live_model(model).modules:
            yield join(prefix, module.path)
            yield from (join(prefix, join(module.path, name)) for name in module.inside)


def _less_sure(finding: Finding) -> Finding:
    """The finding where weights may be in wrong places: a cause is only what a re-run with its fix has made agree."""
    sure = finding.kind != "cause" or finding.confidence == "proven"
    return finding if sure else replace(finding, confidence="hint")


def prove(alignment: Alignment, runs: Experiments, reference: Recording, candidate: Recording) -> Alignment:
    """The alignment with every finding that a re-run confirms marked as proven, and the operators at fault."""
    findings = proven(alignment.case, alignment.findings, runs, reference, candidate)
    if runs.weights is not None and not alignment.verdict.first_divergence:
        # All that both sides have agrees, and what only one of them has is a way of writing: nothing has a cause.
        findings = tuple(one for one in findings if one.kind not in ("cause", "hint"))
    return replace(alignment, findings=findings)


def _by_values(weights: WeightMap) -> Iterator[Finding]:
    """The pairs of layers that only values tell apart, for a person to look at."""
    found = renamed_layers(weights.by_target)
    if found:
        pairs = Parts(message("word.goes_to", one=Name(one), other=Name(other)) for one, other in found[:_MOST_SHOWN])
        yield told("cause.weight_map", count=len(found), pairs=pairs)


_OF_ONE_WEIGHT = 0.5
"""Share of equal numbers from which a weight inside a model is one of the other side's."""


def _spoiled_constants(ours: Side, theirs: Side) -> Iterator[Finding]:
    """Weights inside a model that are one of the other side's but for a few numbers, which these inputs do not use."""
    for own, other in ((ours, theirs), (theirs, ours)):
        weights = other.weights or other.constants
        for name, constant in own.constants.items():
            same = [(one, _equal_numbers(constant, weight)) for one, weight in weights.items()]
            most, (equal, count) = max(same, key=lambda one: one[1][0], default=("", (0, 0)))
            if _OF_ONE_WEIGHT * count < equal < count:
                yield told("cause.spoiled_constant", constant=Name(name), weight=Name(most), count=count - equal)
        if own.constants and other.constants:
            return


def _equal_numbers(constant: Array, weight: Array) -> tuple[int, int]:
    """How many numbers that are not zero are the same in both, as they are or transposed, and how many there are."""
    forms = [one for one in (weight, weight.T) if one.shape == constant.shape]
    count = int(np.count_nonzero(constant))
    # Ones and zeros look alike everywhere.
    if not forms or np.unique(constant).size <= constant.size // 2:
        return 0, 0
    return max(int(np.count_nonzero((constant == one) & (constant != 0))) for one in forms), count


def _reordered(weights: WeightMap, runs: Experiments) -> Iterator[Finding]:
    """Weights in another order, which would be wrong if they were loaded by name; weights that several of the
    reference's make together: a layer that was merged on purpose (a folded norm) and one that was forgotten are the
    same to every output."""
    bare = [_bare(side) for side in (runs.ours, runs.theirs)]
    for link in weights.links:
        # Layers of both frameworks have layouts of their own; a tensor that is no layer's is loaded as it is.
        loadable = {name.rpartition(".")[2] for name in (link.target, *link.sources)} != _LAYOUTS_APART
        turned = link.is_turned and loadable and not bare[0].isdisjoint(link.sources) and link.target in bare[1]
        if link.is_permuted or turned:
            yield told("cause.permuted_weight", source=Name(link.sources[0]), target=Name(link.target))
    names = [link.target for link in weights.links if link.is_computed]
    if names:
        yield told("cause.computed_weights", count=len(names), names=Names(names[:_MOST_SHOWN]))


def _bare(side: Side) -> frozenset[str]:
    """Parameters that belong to no known layer."""
    return frozenset(
        join(name, unit.path)
        for name, model in as_mapping(side.model).items()
        for unit in survey(model).units
        if unit.kind == BARE
    )


def sides_of(
    reference: Any, candidate: Any, *, loss: Any = None, optimizer: Any = None, step: Any = None
) -> tuple[Side, Side]:
    """Both models, each with what trains it: one function for both sides, or a pair of them."""
    ours, theirs = (
        Side(model, _of(loss, side), _of(optimizer, side), _of(step, side))
        for side, model in enumerate((reference, candidate))
    )
    for side in (ours, theirs):
        _check_callable(side)
        _check_capable(side)
    return ours, theirs


def batches_for(side: Side, inputs: Any, targets: Any = None, steps: int | None = None) -> list[Batch]:
    """What both sides are given, iteration by iteration."""
    _check_trained(side, targets)
    if inputs is None and side.step is None:
        raise UsageError("inputs is None: give a batch of arrays, e.g. inputs=(images,)")
    if steps is None:
        steps = len(inputs) if isinstance(inputs, list) else 5 if side.optimizer is not None else 1
    batches = batches_of(inputs, targets, steps)
    if not batches:
        raise UsageError("inputs is an empty list: nothing would be compared")
    return batches


def _check_trained(program: Side, targets: Any) -> None:
    """What only a loss makes use of must not be given in vain: nothing of it would be compared."""
    if program.loss is None and program.step is None:
        given = [name for name, one in (("optimizer", program.optimizer), ("targets", targets)) if one is not None]
        if given:
            raise UsageError(
                f"{' and '.join(given)} given, but neither loss= nor step=: nothing would be trained, and neither "
                "gradients nor updates compared. Give loss=a function of (outputs, targets), or leave "
                f"{'them' if len(given) > 1 else 'it'} out"
            )


def _check_callable(program: Side) -> None:
    """Say what is wanted where something else was given: mostly a thing where a function that makes it is meant."""
    wanted = {
        "loss": (program.loss, "a function of (outputs, targets) that gives a scalar"),
        "optimizer": (program.optimizer, "a function that makes one for the model it is given: lambda model: SGD(…)"),
        "step": (program.step, "a function of (model, optimizer, inputs, targets)"),
    }
    for name, (given, meant) in wanted.items():
        if given is not None and not callable(given):
            raise UsageError(f"{name} is a {type(given).__name__}; give {meant}")


def _check_capable(program: Side) -> None:
    """Refuse to train what cannot be: the other side's gradients and updates would have no partners."""
    can, name = program.framework.can, program.framework.name
    if (program.loss is not None or program.step is not None) and "gradient" not in can:
        raise UsageError(f"models of {name} have no gradients: leave loss, step and optimizer out")
    if program.optimizer is not None and "update" not in can:
        raise UsageError(f"models of {name} cannot be trained here: leave the optimizer out")


def _of(given: Any, side: int) -> Any:
    if isinstance(given, tuple):
        if len(given) != 2:
            raise UsageError(f"give one function for both sides or a pair (reference's, candidate's), not {len(given)}")
        return given[side]
    return given
