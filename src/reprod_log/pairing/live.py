"""Live models: their units, which of them are partners, and what a weight map leaves on either side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import escape
from typing import Any, Literal

import numpy as np

from reprod_log.capture.live import LiveModel, live_model
from reprod_log.errors import TransferError, UsageError, first_line, listed, near_names
from reprod_log.frameworks.contract import KeptForm, ModuleFacts, StateFacts
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.tensors import plain_batch
from reprod_log.layers.lookup import column_of, family_of, find_layer, layer_kind
from reprod_log.layers.rows import Column, LayerFacts, LayerKind
from reprod_log.pairing.names import attention_role, match_names, match_renames
from reprod_log.pairing.order import (
    Ambiguity,
    by_signature,
    lone_bare_units,
    match_loose,
    match_order,
    match_single_tensors,
    match_structure,
)
from reprod_log.pairing.units import (
    BARE,
    PIECE,
    Part,
    Unit,
    UnitPair,
    bare_unit,
    layer_parts,
    take_apart,
    without_pairs,
)
from reprod_log.pairing.values import Calls, Context, Pairs, Settlement, owners_agree
from reprod_log.pairing.weight_map import TransferPlan, make_plan
from reprod_log.recording import Array, ModuleInfo

Order = Literal["registration", "execution"]
Inputs = Mapping[str, Any] | tuple[Any, ...] | list[Any] | Array
"""What a whole model is called with: arrays by parameter name, a sequence of arrays, or a single one."""


@dataclass(frozen=True)
class Survey:
    """A live model with its units in the order of registration."""

    live: LiveModel
    units: tuple[Unit, ...]
    state: Mapping[str, StateFacts]
    """Every tensor by the name that units know it by, and by its others."""

    @property
    def framework(self) -> str:
        """The name of the model's framework."""
        return self.live.framework.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors of the units."""
        return tuple(dict.fromkeys(name for unit in self.units for name in unit.tensors))

    @property
    def trained(self) -> frozenset[str]:
        """The names of parameters, the frozen ones too."""
        return frozenset(name for name, one in self.state.items() if one.trained)

    def first_name(self, name: str) -> str:
        """The first name of the same tensor: equal for tied weights."""
        return self.state[name].first

    def shape(self, name: str) -> tuple[int, ...]:
        """The named tensor's shape."""
        shape = self.state[name].shape
        if shape is None:
            raise TransferError(f"'{name}' has no shape yet: run the model once on an input, then transfer.")
        return shape

    def dtype(self, name: str) -> str:
        """The named tensor's dtype."""
        return self.state[name].dtype

    def read(self, name: str) -> Array:
        """A copy of the named tensor's values."""
        return self.live.read(name)

    def info(self, unit: Unit) -> ModuleInfo:
        """The unit's live layer as a recording would describe it."""
        module = next(one for one in self.live.modules if one.path == unit.path)
        type_name = module.classes[0].rpartition(".")[2]
        origin = f"{unit.family}.{unit.class_name}"
        return ModuleInfo(unit.path, type_name, unit.kind, origin=origin, settings=module.settings)

    def facts(self, unit: Unit) -> LayerFacts:
        """What a probe may know of the unit's live layer."""
        info = self.info(unit)
        column = column_of(info)
        assert column is not None
        shapes = {part.canonical: part.shape for part in unit.parts}
        # A weight kept in another form has the shape of the form's main tensor.
        for part in unit.parts:
            base, _, role = part.canonical.rpartition(".")
            if role in ("v", "original"):
                shapes.setdefault(base, part.shape)
        return LayerFacts(column, unit.class_name, info.settings, shapes)


def survey(model: Any) -> Survey:
    """The units of a live model."""
    live = live_model(model)
    state = {join(one.path, name): facts for one in live.modules for name, facts in one.inside.items()}
    found = Survey(live, (), state)
    return replace(found, units=tuple(_units(found)))


def _units(found: Survey) -> Iterator[Unit]:
    """All units in the order of registration; a name belongs to one of them."""
    modules = found.live.modules
    taken: dict[str | None, frozenset[str]] = {None: frozenset()}
    for module in modules:
        path, held = module.path, taken[module.parent]
        layer = column_of_classes(module.classes)
        unit = None if layer is None else _live_layer(found, module, held, layer)
        if unit is not None:
            held = held | _names_of(found, unit, module)
            yield _with_aliases(unit, modules)
        taken[path] = held
        for name in module.own:
            full = join(path, name)
            if full not in held:
                bare = bare_unit(full, found.framework, found.shape(full), owner=path)
                yield _with_aliases(bare, modules)


def _with_aliases(unit: Unit, modules: Iterable[ModuleFacts]) -> Unit:
    """The unit with its other paths, where the model has its layer, or one around it, more than once."""
    others = [
        again + unit.path[len(one.path) :]
        for one in modules
        for again in one.aliases
        if unit.path == one.path or unit.path.startswith(f"{one.path}.")
    ]
    return replace(unit, aliases=tuple(others)) if others else unit


def column_of_classes(classes: Iterable[str]) -> tuple[LayerKind, Column, str, str] | None:
    """The kind, column, family and class name of the first of these classes (dotted names) that the table has."""
    for type_name in classes:
        found = find_layer(type_name)
        if found is not None:
            return (*found, *family_of(type_name))
    return None


def _live_layer(
    found: Survey, module: ModuleFacts, taken: frozenset[str], layer: tuple[LayerKind, Column, str, str]
) -> Unit | None:
    row, column, family, class_name = layer
    path = module.path
    inside = [name for name in module.inside if join(path, name) not in taken]
    parts = layer_parts(column, path, {name: found.shape(join(path, name)) for name in inside})
    if not parts:
        return None
    return Unit(path, row.kind, family, class_name, parts, _axes(parts, path, column, module.kept), owner=path)


def _names_of(found: Survey, unit: Unit, module: ModuleFacts) -> frozenset[str]:
    """The names of the unit's tensors inside its layer: a recurrent layer may list each weight twice."""
    held = {found.first_name(name) for name in unit.tensors}
    return frozenset(join(module.path, name) for name, one in module.inside.items() if one.first in held)


def _axes(
    parts: tuple[Part, ...], path: str, column: Column, kept: Mapping[str, KeptForm]
) -> tuple[tuple[str, int | None], ...]:
    axes = []
    for weight, form in kept.items():
        found = column.find(weight)
        if found is not None and any(part.canonical.startswith(f"{found.canonical[0]}.") for part in parts):
            axes.append((f"{found.canonical[0]} {form.form}", found.transform.canonical_axis(form.axis)))
    return tuple(sorted(axes))


@dataclass(frozen=True)
class Correspondence:
    """Which unit goes where, what could not be decided, and how far the whole models agree under it."""

    pairs: Pairs
    undecided: tuple[Ambiguity, ...] = ()
    context: Context | None = None
    source_trace: Calls | None = None
    target_trace: Calls | None = None


def correspond(
    source: Survey,
    target: Survey,
    *,
    rename: Mapping[str, str],
    order: Order | None,
    inputs: Inputs | None,
    target_inputs: Inputs | None,
    values: Mapping[str, Array],
) -> Correspondence:
    """The correspondence of two live models: renames, names, order, structure; with inputs, proved by values.

    `values` are the source's tensors as the proof is to use them.
    """
    if order not in (None, "registration", "execution"):
        raise UsageError(f"order is 'registration', 'execution' or None, not {order!r}.")
    if order == "execution" and inputs is None:
        raise UsageError("order='execution' needs inputs= to run both models on.")
    pairs = match_renames(source.units, target.units, rename)
    pairs += match_names(*without_pairs(source.units, target.units, pairs))
    if inputs is None:
        return _without_runs(source, target, pairs, order)
    given = inputs, inputs if target_inputs is None else target_inputs
    return _with_runs(source, target, pairs, order, given, values)


def _without_runs(source: Survey, target: Survey, pairs: list[UnitPair], order: Order | None) -> Correspondence:
    sources, targets = take_apart(*without_pairs(source.units, target.units, pairs))
    if order == "registration":
        found = match_order(sources, targets, {}, how="registration order")
        pairs, sources, targets = pairs + found, *without_pairs(sources, targets, found)
    found, undecided = match_structure(sources, targets)
    found += match_single_tensors(*without_pairs(sources, targets, found))
    return Correspondence((*pairs, *found), tuple(undecided))


def _with_runs(
    source: Survey,
    target: Survey,
    pairs: list[UnitPair],
    order: Order | None,
    given: tuple[Inputs, Inputs],
    values: Mapping[str, Array],
) -> Correspondence:
    inputs, target_inputs = given
    source_trace = run_model(source, inputs, values, side="source")
    first_trace = run_model(target, target_inputs, {}, side="target")
    sources, targets = take_apart(*without_pairs(source.units, target.units, pairs))
    decided = {pair.source.path: pair.target.path for pair in pairs}
    here = source_trace.in_order((*(pair.source for pair in pairs), *sources))
    there = first_trace.in_order((*(pair.target for pair in pairs), *targets))
    pairs = pairs + match_order(here, there, decided, how="execution order")
    found, undecided = match_structure(*without_pairs(sources, targets, pairs))
    pairs = pairs + found
    pairs += match_single_tensors(*without_pairs(sources, targets, pairs))
    pairs += match_loose(*without_pairs(sources, targets, pairs), pairs, source_trace.ends, first_trace.ends)
    guesses = lone_bare_units(*without_pairs(sources, targets, pairs))

    def run_target(tried: Pairs) -> Calls:
        plan = make_plan(tried, shapes_of(target))
        return run_model(target, target_inputs, plan.apply(values.__getitem__), side="target")

    def outputs(unit: Unit, trace: Calls, side: str) -> tuple[Array, ...] | None:
        return _unit_outputs(source if side == "source" else target, unit, trace)

    settlement = Settlement(source_trace, run_target, outputs, first_run=first_trace)
    settled, context, trace = found_out = settlement.settle((*pairs, *guesses))
    if guesses and not _explained(guesses, found_out, source_trace):
        without = settlement.settle(tuple(pairs))
        if not settlement.gets_further(found_out, without[1]):
            settled, context, trace = without
    if order == "execution":
        settled += tuple(_in_turn(*without_pairs(sources, targets, settled)))
    else:
        unproved = _unproved(settlement, settled, context)
        undecided += unproved
        doubtful = {unit.path for group in unproved for unit in group.targets}
        settled = tuple(pair for pair in settled if pair.target.path not in doubtful)
    settled = settlement.with_doubts(settled, context)
    return Correspondence(settled, tuple(undecided), context, source_trace, trace)


def _in_turn(sources: Iterable[Unit], targets: Iterable[Unit]) -> list[UnitPair]:
    """What no run reached, where both sides have equally many of one signature: in the order of registration."""
    here, there = by_signature(sources), by_signature(targets)
    return [
        UnitPair(one, other, "registration order")
        for signature, group in here.items()
        if len(group) == len(there.get(signature, []))
        for one, other in zip(group, there[signature], strict=True)
    ]


def _explained(guesses: list[UnitPair], tried: tuple[Pairs, Context, Calls], source: Calls) -> bool:
    """Whether nothing differs and the modules that hold the guessed tensors return the same."""
    _, context, trace = tried
    return context.first is None and all(owners_agree(pair, source, trace) for pair in guesses)


def _unproved(settlement: Settlement, pairs: Pairs, context: Context) -> list[Ambiguity]:
    """Groups that order cannot tell apart, that names do not tell apart, and that the values left open."""
    groups = []
    for group in settlement.siblings(pairs):
        roles = [(attention_role(pairs[i].source.path), attention_role(pairs[i].target.path)) for i in group]
        told_by_role = all(one is not None and one == other for one, other in roles)
        if not told_by_role and not settlement.proved(pairs, group, context):
            groups.append(Ambiguity(tuple(pairs[i].source for i in group), tuple(pairs[i].target for i in group)))
    return groups


def _unit_outputs(survey: Survey, unit: Unit, trace: Calls) -> tuple[Array, ...] | None:
    call = trace.by_path.get(unit.owner)
    if call is None or unit.kind == BARE:
        return None
    if unit.class_name == PIECE:
        # Only the last piece of an attention layer has outputs of its own: those of the whole layer.
        whole = next((one for one in survey.units if one.path == unit.owner), None)
        if whole is None or whole.kind != "multihead_attention" or not unit.path.endswith(".out"):
            return None
        unit = whole
    return _canonical_outputs(survey, unit, call.outputs)


def _canonical_outputs(survey: Survey, unit: Unit, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """A layer's outputs in the canonical arrangement of its kind."""
    row = layer_kind(unit.kind)
    probe = None if row is None else row.probe
    return outputs if probe is None or not outputs else probe.restore(survey.facts(unit), outputs)


def shapes_of(survey: Survey) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor by name."""
    return {name: survey.shape(name) for name in survey.names}


def run_model(survey: Survey, inputs: Inputs, arrays: Mapping[str, Array], *, side: str) -> Calls:
    """A run of the whole model in evaluation mode, with some tensors (by name) holding other values for the time."""
    arguments, keywords = _call_form(inputs)
    paths = dict.fromkeys(unit.owner for unit in survey.units)
    try:
        return Calls(survey.live.calls(arguments, keywords, paths=paths, arrays=arrays))
    except Exception as error:  # a model's forward pass may raise anything at all
        raise TransferError(
            f"The {side} model ({survey.framework}) could not be run on the inputs: {first_line(error)}"
        ) from error


def _call_form(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    inputs = plain_batch(inputs)
    if isinstance(inputs, np.ndarray):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    raise UsageError(
        f"inputs must be an array, a tuple of arrays, or a dict of arrays by their names; got {type(inputs).__name__}"
    )


@dataclass(frozen=True)
class Leftovers:
    """Names left on either side, those allowed to be, and a reason for each."""

    in_source: tuple[str, ...]
    in_target: tuple[str, ...]
    allowed: tuple[str, ...]
    reasons: dict[str, str]


def find_leftovers(
    source: Survey,
    target: Survey,
    plan: TransferPlan,
    undecided: Sequence[Ambiguity],
    allow_left: Iterable[str],
) -> Leftovers:
    """Everything that the plan does not move. A tied tensor that moves under another name is not left."""
    patterns = (allow_left,) if isinstance(allow_left, str) else tuple(allow_left)
    here = _unused(source, {name for move in plan.moves for name in move.sources})
    there = _unused(target, {move.target for move in plan.moves})
    allowed = [name for name in (*there, *here) if any(fnmatchcase(name, pattern) for pattern in patterns)]
    allowed += [*_bookkeeping(target, there), *_bookkeeping(source, here)]
    reasons: dict[str, str] = {}
    partners = {pair.source.path: pair.target for pair in plan.pairs}
    back = {pair.target.path: pair.source for pair in plan.pairs}
    for names, own, other, partner in ((here, source, target, partners), (there, target, source, back)):
        free = there if own is source else here
        for unit in own.units:
            for name in unit.tensors:
                if name in names:
                    reasons[name] = _reason(name, unit, other, partner.get(unit.path), undecided, free)
    return Leftovers(_without(here, allowed), _without(there, allowed), tuple(dict.fromkeys(allowed)), reasons)


def loose_buffers(model: Any) -> list[str]:
    """Names of the tensors that are not trained and belong to no known layer, as patterns that fit nothing else."""
    found = survey(model)
    names = [unit.path for unit in found.units if unit.kind == BARE]
    return [escape(name) for name in names if name not in found.trained]


def _bookkeeping(survey: Survey, names: Iterable[str]) -> list[str]:
    """Integer tensors that are never trained (indices, position ids, counters): many models do not keep them at all."""
    return [
        name for name in names if name not in survey.trained and survey.dtype(name).startswith(("int", "uint", "bool"))
    ]


def _unused(survey: Survey, used: set[str]) -> tuple[str, ...]:
    held = {survey.first_name(name) for name in used}
    required = {part.tensor: None for unit in survey.units for part in unit.parts if not part.optional}
    return tuple(name for name in required if survey.first_name(name) not in held)


def _without(names: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    kept = set(allowed)
    return tuple(name for name in names if name not in kept)


def _reason(
    name: str, unit: Unit, other: Survey, partner: Unit | None, undecided: Sequence[Ambiguity], free: Sequence[str]
) -> str:
    for group in undecided:
        if any(unit.path in (one.path, one.owner) for one in (*group.sources, *group.targets)):
            one, two = (listed([u.path for u in side], most=3) for side in (group.sources, group.targets))
            return f"{one} and {two} ({group.sources[0].describe()}) fit each other in more than one way"
    if partner is not None:
        return f"'{partner.path}', the partner of '{unit.path}', has nothing to match '{name}'"
    same_path = next((one for one in other.units if one.path == unit.path), None)
    if same_path is not None:
        return f"'{unit.path}' is {unit.describe()} here and {same_path.describe()} there"
    close = near_names(name, free, most=2)
    return f"near '{name}': {listed(close)}" if close else f"nothing fits '{unit.path}' ({unit.describe()})"
