"""Operators: for every layer at fault, the operators of both sides that differ, as a finding with their lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from reprod_log.diagnose.case import Case, layer_states
from reprod_log.diagnose.finding import Finding, Fix, merged, side, told
from reprod_log.experiments.operators import Culprits, culprits_in, culprits_in_loss, plain_name
from reprod_log.experiments.passes import FLOAT64, Experiments
from reprod_log.frameworks.contract import Operator
from reprod_log.frameworks.side import Scope, StandIns
from reprod_log.messages import Code, Message, Name, message
from reprod_log.recording import Key, Recording

_AROUND_MODELS = ("loss_function", "data")
_NO_GRADIENT = ("cut_graph", "cut_call")
_SHARED = "tied_weights"
_LINE_OF = {"cause.between_layers": "operator", "cause.cut_graph": "cut_graph", "cause.cut_call": "cut_graph"}
"""By a cause that knows the place of a mistake: the rule under which the search of operators finds its line."""


def operators_at_fault(
    case: Case, runs: Experiments, tried: Sequence[Finding], known: Sequence[Finding] = ()
) -> Iterator[Finding]:
    """For every layer at fault that no finding explains yet, or whose parts are right: the operator that differs."""
    states = layer_states(case.verdict.judgements)
    failed = [one.key for one in case.verdict.judgements if not one.status.passed and one.key.run == "isolated"]
    wrong = {key.layer_alone for key in failed if key.phase != "buffer"}
    forward = {key.layer_alone for key in failed if key.phase == "forward"}
    right_alone = "" not in wrong
    if any(one.rule in _NO_GRADIENT for one in tried):
        # What has no gradient at all on one side is not compared, and so not wrong, alone.
        wrong.add("")
        if states.get("") not in ("own", "inside"):
            states[""] = "glue"
    explained = {path for one in tried if one.kind == "cause" for path in _layers_of(one)}
    set_otherwise = {fix.layer for one in tried if one.kind == "hint" for fix in one.fixes if fix.settings}
    shared = any(one.rule == _SHARED for one in (*known, *tried))
    fixes = [fix for one in known if one.confidence == "proven" for fix in one.fixes]
    for call in runs.calls:
        state = states.get(call.path)
        if call.path not in wrong or not (state == "glue" or (state == "own" and call.path not in explained)):
            continue
        calls = call, runs.their_calls.get(call.path, call)
        scope, is_wrong = _with(fixes, runs), call.path in forward
        found = culprits_in(runs.ours, runs.theirs, calls, runs.partners[call.path], scope, forward=is_wrong)
        place, key = Name(call.path), _key(call.path, backward=not isinstance(found, str) and found.backward)
        if isinstance(found, str):
            yield _untraced(place, found)
        elif call.path in set_otherwise and not any(one.line for _, one in _sides(found) if one is not None):
            # Operators of the framework's own code are a consequence of how the layer is set.
            continue
        elif found and found.written:
            yield _written_by_hand(place, found, key)
        elif found and found.cut:
            yield _cut(place, found, key)
        elif found and not (found.backward and (shared or (right_alone and not call.path))):
            # The gradient of a weight that one side shares is a sum there, which no single operator gives back. And a
            # model that gives back the same gradients alone has no operator that does not: it was only looked for cuts.
            yield _operator(place, found, key)


def _with(fixes: Sequence[Fix], runs: Experiments) -> Scope:
    """A run in float64 of the candidate with these fixes."""
    known = [(runs.partners[fix.layer], fix) for fix in fixes if fix.layer in runs.partners]
    settings: dict[str, dict[str, Any]] = {}
    for path, fix in known:
        settings.setdefault(path, {}).update(fix.settings)
    weights = {name: array for _, fix in known if fix.weights for name, array in runs.weights_for(fix.layer).items()}
    return Scope(dtype=FLOAT64, settings=settings, state=weights)


def operators_of_the_loss(
    case: Case, runs: Experiments, reference: Recording, tried: Sequence[Finding]
) -> Iterator[Finding]:
    """The operator of the loss, or around the models, that differs, where it is known that they do and not how."""
    unexplained = [one.keys for one in tried if one.confidence == "hint" and _is_around_models(one)]
    first = case.verdict.first_divergence
    if not any(one.kind == "cause" for one in tried) and first is not None and _is_given_back(first.key):
        unexplained.append((first.key,))
    if not unexplained or any(one.loss is None and one.step is None for one in (runs.ours, runs.theirs)):
        return
    # Whatever is wrong in the models, the loss is given what the reference's give.
    fed = StandIns(runs.given_back(reference), {}, {})
    found = culprits_in_loss(runs.ours, runs.theirs, runs.batches[0], Scope(dtype=FLOAT64, stand_ins=fed))
    if isinstance(found, str) or not found:
        return
    key = unexplained[0][0]
    place = message("word.the_step" if key.phase == "data" else "word.the_loss")
    finding = _cut(place, found, key) if found.cut else _operator(place, found, key)
    yield replace(finding, keys=unexplained[0])


def one_of_each(tried: Sequence[Finding], found: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Both, with operators that a known cause is about among its evidence: one mistake is named once."""
    left, known = list(found), list(tried)
    for place, one in enumerate(tried):
        rule = _LINE_OF.get(one.cause.id) if one.kind == "cause" else None
        around = [other for other in left if other.rule == rule and _is_around(other.keys, one.keys)]
        # The same line may be run by other blocks, too.
        mine = merged(other for other in left if other.mistake in {found.mistake for found in around})
        if mine:
            left = [other for other in left if other.mistake not in {found.mistake for found in mine}]
            lines = (*one.evidence, *(other.cause for other in mine))
            known[place] = replace(one, evidence=lines, advice=mine[0].advice)
    return known, left


def _is_around(regions: Sequence[Key], inside: Sequence[Key]) -> bool:
    """Whether what one finding is first about lies in the region that the other is first about."""
    if not regions or not inside or regions[0].run != "isolated":
        return False
    path = regions[0].path
    return not path or inside[0].path.startswith(f"{path}.")


def _is_given_back(key: Key) -> bool:
    """Whether it is a gradient on its way back through the program, which may have left the loss wrong already."""
    return key.phase == "backward" and not key.run


def _is_around_models(finding: Finding) -> bool:
    """Whether the loss is another one, or gives the outputs another gradient, or models are given something else."""
    if finding.rule in _AROUND_MODELS:
        return True
    return finding.rule in _NO_GRADIENT and any(_is_given_back(key) for key in finding.keys)


def _layers_of(finding: Finding) -> Iterator[str]:
    """The layers that a finding is about."""
    yield from (fix.layer for fix in finding.fixes)
    for key in finding.keys:
        if key.phase and key.phase != "parameter":
            yield key.layer_alone
        else:
            # Hypotheses give the bare name of a layer, or of a weight of one.
            yield from (key.path, key.path.rpartition(".")[0])


_WAYS = {
    "order": ("word.operator.order", "evidence.operator.order"),
    "backward": ("word.operator.backward_differs", "evidence.operator.backward"),
    "forward": ("word.operator.differs", "evidence.operator.forward"),
}
"""What of an operator differs: the word for it, and the evidence."""


def _operator(place: Name | Message, found: Culprits, key: Key) -> Finding:
    sides = [(name, one) for name, one in _sides(found) if one is not None]
    only = sides[0][0] if len(sides) == 1 else ""
    word, reason = _WAYS["order" if found.order else "backward" if found.backward else "forward"]
    makers = found.elsewhere or (None, None)
    evidence = [
        *([] if any(makers) else [message(reason)]),
        *([message("evidence.operator.tried")] if found.confirmed else []),
    ]
    if found.given is not None:
        ours, theirs = found.given
        evidence.append(message("evidence.operator.arguments", ours=Code(ours), theirs=Code(theirs)))
    id = "cause.operator.only" if only and found.confirmed else "cause.operator"
    id = "cause.operator.given_another" if any(makers) else id
    return told(
        id,
        (key,),
        evidence=evidence,
        advice=_advice(place, [one for _, one in sides], bool(only)),
        # What the other side lacks first need not be what differs: it may only take the result of that.
        sure=None if found.confirmed or found.parted or found.order else "hint",
        path=place,
        what=message(word) if found.order is None else message(word, how=found.order),
        operators=tuple(_in_side(name, one) for name, one in sides),
        side=side(only),
        ours=_made_by(makers[0]),
        theirs=_made_by(makers[1]),
    )


def _sides(found: Culprits) -> tuple[tuple[str, Operator | None], ...]:
    return ("reference", found.reference), ("candidate", found.candidate)


def _in_side(name: str, one: Operator) -> Message:
    if one.line:
        return message("word.operator.in_side_at", name=Code(_shown(one)), side=side(name), line=Code(one.line))
    return message("word.operator.in_side", name=Code(_shown(one)), side=side(name))


def _placed(one: Operator) -> Message:
    if one.line:
        return message("word.operator.at", name=Code(_shown(one)), line=Code(one.line))
    return message("word.operator.name", name=Code(_shown(one)))


def _made_by(one: Operator | None) -> Message:
    return message("word.the_input") if one is None else message("word.output_of", path=_placed(one))


def _shown(one: Operator) -> str:
    """Its name as people call it: that of an operator of Python without its underscores."""
    return plain_name(one.name) if one.name.startswith("__") else one.name


def _advice(place: Name | Message, operators: Sequence[Operator], alone: bool) -> Message:
    if any(one.line for one in operators):
        return message("advice.operator.compare_this_line" if alone else "advice.operator.compare_lines")
    return message("advice.operator.compare_settings", path=place)


def _written_by_hand(place: Name | Message, found: Culprits, key: Key) -> Finding:
    classes = tuple(
        message("word.operator.in_side", name=Code(one.written), side=side(name))
        for name, one in _sides(found)
        if one is not None and one.written
    )
    others = tuple(_placed(one) for _, one in _sides(found) if one is not None and not one.written)
    return told(
        "cause.wrong_backward.by_hand",
        (key,),
        evidence=message("evidence.operator.by_hand_in_place_of", path=place, others=others)
        if others
        else message("evidence.operator.by_hand", path=place),
        classes=classes,
    )


def _cut(place: Name | Message, found: Culprits, key: Key) -> Finding:
    name, one = next((name, one) for name, one in _sides(found) if one is not None)
    return told("cause.cut_graph.operator", (key,), side=side(name), operator=_placed(one), path=place)


def _untraced(place: Name | Message, why: str) -> Finding:
    return told("cause.operator.untraced", evidence=(Message.from_dict(why),), path=place)


def _key(path: str, *, backward: bool) -> Key:
    phase, role = ("backward", "input.0") if backward else ("forward", "output")
    return Key(path, phase, 0, 0, role, "isolated")
