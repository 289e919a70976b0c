"""Blocks: models larger than memory, as functions that make their parts; aligned part by part, judged as one.

Two blocks of a pair are aligned as two models are, both given what the reference's block before gave: a mistake shows
in its own block and in no other. Beside that each side goes its own way through all of its blocks, as it runs and in
float64, which shows what all differences together come to. Of a block that is done only numbers are kept.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from inspect import isroutine
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.alignment.alignment import Alignment
from reprod_log.alignment.options import AlignOptions
from reprod_log.alignment.recordings import align_with
from reprod_log.alignment.stopped import stopped
from reprod_log.capture.eager import runner_of
from reprod_log.capture.live import live_model
from reprod_log.diagnose import Finding, ranked
from reprod_log.errors import ReprodLogError, UsageError, counted, first_line, listed, near_names
from reprod_log.experiments.passes import EMULATED, FLOAT64, Experiments
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.side import Batch, Scope, Side
from reprod_log.measure.comparison import Comparison
from reprod_log.messages import Name, Names, Note, message
from reprod_log.pairing.links import Computed, WeightMap
from reprod_log.progress import stage
from reprod_log.recording import Array, Entry, Key, Recording, dtype_named
from reprod_log.recording.program import of_one_program
from reprod_log.recording.recording import Source
from reprod_log.transfer.files import read_weights
from reprod_log.verdict import NoiseFloor, verdict_of

Factory = Callable[[], Any]
AlignOne = Callable[[Side, Side, list[Batch], AlignOptions], tuple[Experiments, Alignment]]
"""Aligns two models, and gives the runs beside the alignment."""
Pair = tuple[str, str]
"""The reference's and the candidate's name of a block."""
Part = tuple[Pair, Alignment]
_CHAINED = ("forward", "loss")
_MOST_SHOWN = 24


@dataclass(frozen=True)
class Blocks:
    """A model as functions that create its blocks, by name and in execution order.

    The output of a block is the input of the next one: a tensor, a tuple as arguments in order, or a dict by parameter
    name. With a `checkpoint` (.safetensors, .pth, .pdparams …; several files if it comes in shards) each block gets the
    tensors whose names begin with its own. One block with the name "" is a whole model with its checkpoint.
    """

    factories: Mapping[str, Factory]
    checkpoint: str | Path | Sequence[str | Path] | None = None

    def __post_init__(self) -> None:
        kinds = {name: type(one).__name__ for name, one in self.factories.items() if not is_factory(one)}
        if kinds or not self.factories:
            raise UsageError(
                f"Blocks takes functions that make the blocks, by name: {{'embedding': lambda: Embedding(…), …}}; "
                f"{f'these are none: {kinds}' if kinds else 'it was given none'}"
            )

    @cached_property
    def files(self) -> str:
        """The checkpoint, for a sentence."""
        paths = [self.checkpoint] if isinstance(self.checkpoint, (str, Path)) else self.checkpoint or ()
        return listed(map(str, paths))

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        """The tensors of the checkpoint by name; those of safetensors files are read when they are looked at."""
        paths = [self.checkpoint] if isinstance(self.checkpoint, (str, Path)) else self.checkpoint or ()
        return {name: array for path in paths for name, array in read_weights(Path(path), mapped=True).items()}

    def make(self, name: str, side: str) -> Any:
        """One block with its weights."""
        where = f"block {name!r} of the {side}" if name else f"the {side}"
        model = made(self.factories[name], where)
        if self.checkpoint is None:
            return model
        live = live_model(model)
        wanted = {join(name, file): first for file, first in live.file_names().items()}
        missing = [one for one in wanted if one not in self.arrays]
        if missing:
            near = near_names(missing[0], self.arrays) or list(self.arrays)[:3]
            raise UsageError(
                f"{where} needs {listed(missing)}, and the checkpoint {self.files} does not have "
                f"{'it' if len(missing) == 1 else 'them'}; it has names such as {listed(near)}. Name the blocks as "
                "their tensors begin in the checkpoint, or load the weights in the functions that make the blocks"
            )
        arrays, facts = {}, live.modules[0].inside
        for one, first in wanted.items():
            array, shape = self.arrays[one], facts[first].shape
            if shape is not None and array.shape != shape:
                raise UsageError(
                    f"{one!r} has the shape {list(array.shape)} in the checkpoint {self.files}, and {list(shape)} in "
                    f"{where}: make the block with the sizes of the checkpoint"
                )
            arrays[first] = np.asarray(array, dtype_named(facts[first].dtype)) if shape is not None else array
        return live.write(arrays)

    def unused(self) -> list[str]:
        """Tensors of the checkpoint that belong to no block."""
        fronts = tuple(join(name, "") for name in self.factories)
        return [] if "" in fronts else [name for name in self.arrays if not name.startswith(fronts)]


def is_factory(model: Any) -> bool:
    """Whether it is a function or class that makes a model: models themselves are objects."""
    return isroutine(model) or isinstance(model, (type, partial))


def made(factory: Factory, where: str) -> Any:
    """What the factory makes."""
    try:
        return factory()
    except ReprodLogError:
        raise
    except Exception as error:  # a function of the user's own may raise anything
        raise UsageError(
            f"the function that makes {where} raised {first_line(error)}. It is called without arguments and returns "
            "the model"
        ) from error


def align_blocks(
    reference: Blocks,
    candidate: Blocks,
    batches: list[Batch],
    losses: Sequence[Any],
    options: AlignOptions,
    one: AlignOne,
) -> Alignment:
    """The alignment of all pairs of blocks and of both chains as one."""
    pairs = _paired(reference, candidate)
    rules = _rules_inside(options.rename, pairs)
    parts: list[Part] = []
    chain = _Chain(batches)
    with stage(message("progress.blocks"), len(pairs)) as progress:
        for done, names in enumerate(pairs):
            progress(done)
            last = done == len(pairs) - 1
            try:
                models = reference.make(names[0], "reference"), candidate.make(names[1], "candidate")
                ours, theirs = (Side(model, loss if last else None) for model, loss in zip(models, losses, strict=True))
                with _in_errors(names[0]):
                    runs, alignment = one(ours, theirs, chain.given(last), replace(options, rename=rules[names]))
                    chain.go_on(runs, alignment, names, last)
            except KeyboardInterrupt:
                if not parts:
                    raise
                partly = _joined([*parts, *chain.aligned(options)], options, (reference, candidate))
                raise stopped(partly, message("stopped.blocks", done=done, total=len(pairs))) from None
            parts.append((names, replace(alignment, weight_map=_plain(alignment.weight_map))))
            # What a block leaves hangs in cycles of hooks, and the next one needs its room.
            del runs, models, ours, theirs
            gc.collect()
    return _joined([*parts, *chain.aligned(options)], options, (reference, candidate))


@contextmanager
def _in_errors(block: str) -> Iterator[None]:
    try:
        yield
    except ReprodLogError as error:
        raise type(error)(f"block {block!r}: {error}") from error


def _paired(reference: Blocks, candidate: Blocks) -> list[Pair]:
    """The names of both blocks of each pair."""
    ours, theirs = list(reference.factories), list(candidate.factories)
    if len(ours) != len(theirs):
        raise UsageError(
            f"the reference has {counted(len(ours), 'block')} ({listed(ours)}), the candidate {len(theirs)} "
            f"({listed(theirs)}), and blocks are compared pair by pair in their order. Cut both models at the same "
            "places"
        )
    return list(zip(ours, theirs, strict=True))


def _rules_inside(rename: Mapping[str, str], pairs: Sequence[Pair]) -> dict[Pair, dict[str, str]]:
    """The user's rules for the names inside each pair of blocks, whichever side's name they begin with."""
    found: dict[Pair, dict[str, str]] = {pair: {} for pair in pairs}
    for old, new in rename.items():
        for ours, theirs in pairs:
            for front, other in ((f"{ours}.", f"{theirs}."), (f"{theirs}.", f"{ours}.")):
                if old.startswith(front) and new.startswith(other):
                    found[ours, theirs][old.removeprefix(front)] = new.removeprefix(other)
        if not any(old.startswith(f"{name}.") for pair in pairs for name in pair):
            raise UsageError(
                f"rename has {old!r}: {new!r}, and no block has anything of that name; write the names of the blocks "
                f"in front, on both sides. The blocks are {listed(ours for ours, _ in pairs)}"
            )
    return found


class _Chain:
    """Each side's own way through its blocks, in every run that they had; of each only what it gives is kept."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches
        self._inputs: dict[tuple[int, str], list[Any]] = {}
        self._recordings: list[Recording] = []
        self._rename: dict[str, str] = {}

    def given(self, last: bool, place: int = 0, run: str = "") -> list[Batch]:
        """What the next block of a side is given in a run; targets belong to the loss, which comes last."""
        inputs = self._inputs.get((place, run)) or self._inputs.get((place, ""), [one for one, _ in self._batches])
        return [(one, wanted if last else None) for one, (_, wanted) in zip(inputs, self._batches, strict=True)]

    def go_on(self, runs: Experiments, alignment: Alignment, names: Pair, last: bool) -> None:
        """Run the next block of both sides, each on what its own blocks gave."""
        if not self._inputs:
            # Rounded, where the candidate computes in a narrow type.
            self._batches = [(one, wanted) for (one, _), (_, wanted) in zip(runs.batches, self._batches, strict=True)]
        wide = [alignment.floor is not None, FLOAT64 in {row.key.run for row in alignment.comparison.rows}]
        recordings = self._recordings or [Recording(()), Recording(())]
        inputs = {}
        self._rename |= {names[0]: names[1]} if names[0] != names[1] else {}
        for place, side in enumerate((runs.ours, runs.theirs)):
            scopes = [Scope(), *([Scope(run=FLOAT64, dtype=FLOAT64)] if wide[place] else [])]
            if place == 0 and runs.emulated:
                scopes.append(Scope(run=EMULATED, dtype=runs.theirs.narrow, emulated=runs.emulated))
            for scope in scopes:
                scope = replace(scope, phases=_CHAINED, spool=runs.spool)
                found = runner_of(side.framework).run(side, self.given(last, place, scope.run), scope)
                kept = [_kept(entry, names[place]) for entry in found.entries if _is_result(entry.key)]
                inputs[place, scope.run] = [] if last else _passed_on(kept, names[place], len(self._batches))
                before = recordings[place] if recordings[place].entries else replace(found, entries=(), modules=())
                recordings[place] = replace(before, entries=(*before.entries, *kept))
        self._recordings, self._inputs = recordings, inputs

    def aligned(self, options: AlignOptions) -> Iterator[Part]:
        """Both chains as one more part, with names of their own, once there is something of them."""
        if self._recordings:
            ours, theirs = map(of_one_program, self._recordings)
            yield ("", ""), align_with(ours, theirs, replace(options, rename=self._rename))


def _is_result(key: Key) -> bool:
    return key.phase == "loss" or (not key.path and key.phase == "forward" and key.role.startswith("output"))


def _kept(entry: Entry, name: str) -> Entry:
    """The entry under its block's name, in memory: the files of a block's runs go with it."""
    array = np.array(entry.array())
    key = entry.key if entry.key.phase == "loss" else _under(name, entry.key)
    return replace(entry, key=key, read=lambda: array)


def _passed_on(entries: Sequence[Entry], name: str, steps: int) -> list[Any]:
    """What a block gave at each step, as the next one is given it."""
    found: list[dict[str, Array]] = [{} for _ in range(steps)]
    for entry in entries:
        if entry.key.phase == "forward" and not entry.key.call and (entry.key.step or 0) < steps:
            found[entry.key.step or 0][entry.key.role.removeprefix("output").lstrip(".")] = entry.array()
    for given in found:
        if not given or any("." in role for role in given):
            raise UsageError(
                f"it gives {listed(given) if given else 'no tensor'}, and the next block can be given a tensor, a "
                "tuple of tensors or a dict of tensors: let a block return one of these"
            )
    return [
        tuple(given[role] for role in sorted(given, key=lambda role: int(role or 0)))
        if all(role.isdecimal() or not role for role in given)
        else given
        for given in found
    ]


# ---- one alignment of all parts --------------------------------------------------------------------------------------
def _joined(parts: Sequence[Part], options: AlignOptions, blocks: tuple[Blocks, Blocks]) -> Alignment:
    """All parts as one alignment, judged as a whole. What chains give stands in the place of what blocks gave alone."""
    # Without a floor of every part nothing would judge the others.
    floors = [alignment.floor for _, alignment in parts]
    policy = options.policy_for(calibrated=None not in floors)
    rows = {}
    evidence = {}
    for names, alignment in parts:
        for row in alignment.comparison.rows:
            key = _under(names[0], row.key)
            rows[key] = row._replace(key=key, candidate_key=_under(names[1], row.candidate_key))
        for one in alignment.floor.evidence if alignment.floor is not None else ():
            key = _under(names[0], one.key)
            evidence[key] = replace(one, key=key)
    comparison = Comparison(
        tuple(rows.values()),
        tuple(
            replace(one, key=_under(name, one.key), near=tuple(str(_under(name, Key.parse(near))) for near in one.near))
            for names, alignment in parts
            for one in alignment.comparison.unmatched
            for name in (names[one.side == "candidate"],)
        ),
        _notes((names[0], alignment.comparison.notes) for names, alignment in parts),
        tuple(_path(names[0], path) for names, alignment in parts for path in alignment.comparison.structural),
    )
    floor = None
    if None not in floors:
        notes = _notes((names[0], one.notes) for (names, _), one in zip(parts, floors, strict=True) if one is not None)
        floor = NoiseFloor(tuple(evidence.values()), notes)
    ours, theirs = (_source(parts, place, blocks[place]) for place in (0, 1))
    verdict = verdict_of(comparison, policy, floor, ours.complete and theirs.complete)
    wrong = any(not alignment.verdict.passed for names, alignment in parts if names[0])
    findings = (
        _in_block(names[0], finding)
        for names, alignment in parts
        for finding in alignment.findings
        # Where a block is wrong alone, what follows from it has no cause of its own.
        if names[0] or not wrong or finding.kind in ("doubt", "remark")
    )
    pictures = {
        _under(names[0], key): picture
        for names, alignment in parts
        if not alignment.passed
        for key, picture in alignment.pictures.items()
    }
    maps = [(names, alignment.weight_map) for names, alignment in parts if names[0]]
    return Alignment(ours, theirs, comparison, policy, verdict, ranked(findings), floor, _map(maps), pictures)


def _path(block: str, path: str) -> str:
    return join(block, path) if path else block


def _under(block: str, key: Key) -> Key:
    """The key of an entry of a block as one of the whole model."""
    if not block:
        return key
    region = None if key.region is None else _path(block, key.region)
    return Key(_path(block, key.path), key.phase, key.step, key.call, key.role, key.run, region)


def _in_block(block: str, finding: Finding) -> Finding:
    if not block:
        return finding
    return replace(
        finding,
        cause=message("block.cause", block=Name(block), cause=finding.cause),
        keys=tuple(_under(block, key) for key in finding.keys),
        agreeing=tuple(_under(block, key) for key in finding.agreeing),
        fixes=tuple(replace(fix, layer=_path(block, fix.layer)) for fix in finding.fixes),
    )


def _notes(of_blocks: Iterable[tuple[str, Sequence[Note]]]) -> tuple[Note, ...]:
    """The notes of all blocks; one that several have is written once."""
    found: dict[Note, list[str]] = {}
    for block, notes in of_blocks:
        for note in notes:
            found.setdefault(note, []).append(block)
    return tuple(
        message("block.note", blocks=Names(blocks), note=note) if all(blocks) else note
        for note, blocks in found.items()
    )


def _source(parts: Sequence[Part], place: int, blocks: Blocks) -> Source:
    sources = [(names[place], (alignment.reference, alignment.candidate)[place]) for names, alignment in parts]
    unused = blocks.unused() if blocks.checkpoint is not None else []
    return Source(
        sources[0][1].source,
        sum(one.entries for _, one in sources),
        replace(sources[0][1].provenance, weights_hash=""),
        all(one.complete for _, one in sources),
        (
            *_notes((name, one.notes) for name, one in sources),
            *([message("block.unused", names=Names(unused[:_MOST_SHOWN]), count=len(unused))] if unused else []),
        ),
        {_path(name, path): line for name, one in sources for path, line in one.lines.items()},
    )


def _plain(weights: WeightMap | None) -> WeightMap | None:
    """The map without what was computed from it: the places of all elements, and functions that hold both programs."""
    if weights is None:
        return None
    links = (replace(one, recipe=Computed() if one.is_computed else one.recipe) for one in weights.links)
    return replace(weights, links=tuple(links))


def _map(maps: Sequence[tuple[Pair, WeightMap | None]]) -> WeightMap | None:
    """The maps of all blocks as one; None where one has none."""
    found = [(names, one) for names, one in maps if one is not None]
    if len(found) < len(maps):
        return None
    return WeightMap(
        tuple(
            replace(
                link,
                target=join(theirs, link.target),
                sources=tuple(join(ours, name) for name in link.sources),
            )
            for (ours, theirs), one in found
            for link in one.links
        ),
        agrees=all(one.agrees for _, one in found),
        unproven=tuple(join(theirs, name) for (_, theirs), one in found for name in one.unproven),
        left_in_reference=tuple(join(ours, name) for (ours, _), one in found for name in one.left_in_reference),
        left_in_candidate=tuple(join(theirs, name) for (_, theirs), one in found for name in one.left_in_candidate),
        complete=all(one.complete for _, one in found),
        bridged=all(one.bridged for _, one in found),
        reference_files={
            join(ours, name): join(ours, first)
            for (ours, _), one in found
            for name, first in one.reference_files.items()
        },
        candidate_files={
            join(theirs, name): join(theirs, first)
            for (_, theirs), one in found
            for name, first in one.candidate_files.items()
        },
    )
