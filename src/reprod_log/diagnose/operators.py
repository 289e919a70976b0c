"""Operator search: for every layer at fault, the operators of both sides that differ, as a finding with their lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from reprod_log.alignment import Alignment
from reprod_log.diagnose import Finding
from reprod_log.diagnose.layers import layer_states
from reprod_log.experiments.operators import Culprits, culprits_in, culprits_in_loss
from reprod_log.experiments.passes import FLOAT64, Experiments
from reprod_log.frameworks.contract import Operator
from reprod_log.recording import Key


def operators_at_fault(alignment: Alignment, runs: Experiments, tried: Sequence[Finding]) -> Iterator[Finding]:
    """For every layer at fault that no finding explains yet, or whose parts are right: the operator that differs."""
    states = layer_states(alignment.verdict.judgements)
    wrong = {
        key.layer_alone
        for one in alignment.verdict.judgements
        if not one.status.passed and (key := one.key).run == "isolated" and key.phase != "buffer"
    }
    right_alone = "" not in wrong
    if any(one.rule == "cut_graph" for one in tried):
        # What has no gradient at all on one side is not compared, and so not wrong, alone.
        wrong.add("")
        if states.get("") not in ("own", "inside"):
            states[""] = "glue"
    explained = {layer for one in tried if one.kind == "cause" for layer in _layers_of(one)}
    shared = any(one.rule == "tied_weights" for one in tried)
    for call in runs.calls:
        state = states.get(call.path)
        if call.path not in wrong or not (state == "glue" or (state == "own" and call.path not in explained)):
            continue
        calls = call, runs.their_calls.get(call.path, call)
        found = culprits_in(runs.ours, runs.theirs, calls, runs.partners[call.path], FLOAT64)
        if isinstance(found, str):
            yield _untraced(call.path, found)
        elif found and found.written:
            yield _written_by_hand(call.path, found)
        elif found and found.cut:
            yield _cut(call.path, found)
        elif found and not (found.backward and (shared or (right_alone and not call.path))):
            # The gradient of a weight that one side shares is a sum there, which no single operator gives back. And a
            # model that gives back the same gradients alone has no operator that does not: it was only looked for cuts.
            yield _operator(call.path, found)


def operators_of_the_loss(alignment: Alignment, runs: Experiments, tried: Sequence[Finding]) -> Iterator[Finding]:
    """The operator of the loss that differs, where it is known that the loss does and not how."""
    unexplained = [one.keys for one in tried if one.confidence == "possible" and _is_about_the_loss(one)]
    first = alignment.first_divergence
    if not any(one.kind == "cause" for one in tried) and first is not None and _is_given_back(first.key):
        unexplained.append((first.key,))
    if not unexplained or runs.ours.loss is None or runs.theirs.loss is None:
        return
    found = culprits_in_loss(runs.ours, runs.theirs, runs.batches[0], FLOAT64)
    if isinstance(found, str) or not found:
        return
    said = _cut(_LOSS, found) if found.cut else _operator(_LOSS, found)
    yield replace(said, keys=unexplained[0])


_LOSS = "the loss"


def _is_given_back(key: Key) -> bool:
    """Whether it is a gradient on its way back through the program, which may have left the loss wrong already."""
    return key.phase == "backward" and not key.run


def _is_about_the_loss(finding: Finding) -> bool:
    """Whether it says that the loss is another one, or that it gives the outputs another gradient."""
    if finding.rule == "loss_function":
        return True
    return finding.rule == "cut_graph" and any(_is_given_back(key) for key in finding.keys)


def _layers_of(finding: Finding) -> Iterator[str]:
    """The layers that a finding speaks of."""
    yield from (mend.layer for mend in finding.mends)
    for key in finding.keys:
        if key.phase:
            yield key.layer_alone
        else:
            # Rules give the bare name of a layer, or of a weight of one.
            yield from (key.path, key.path.rpartition(".")[0])


def _operator(path: str, found: Culprits) -> Finding:
    names = [
        f"{one.name} in the {side}" + (f" ({one.line})" if one.line else "")
        for side, one in (("reference", found.reference), ("candidate", found.candidate))
        if one is not None
    ]
    what = "whose backward pass differs" if found.backward else "that differs"
    evidence = (
        f"its inputs are the same, its results hold the same numbers in another order: {found.order}"
        if found.order
        else "the gradient it is given is found on the other side, the one it gives back is not"
        if found.backward
        else "its inputs are found on the other side, its result and all that follows is not"
    )
    given = found.given
    lines = [one.line for one in (found.reference, found.candidate) if one is not None and one.line]
    lonely = "reference" if found.candidate is None else "candidate" if found.reference is None else ""
    return Finding(
        rule="operator",
        cause=f"inside {path or 'the model'} the first operator {what} is {', '.join(names)}"
        + (f": only the {lonely} has it" if lonely and found.instead is None and not found.backward else "")
        + (f": its input is given to {_placed(found.instead)} in the other" if found.instead is not None else ""),
        evidence=f"{evidence}; its arguments are {given[0]} in the reference, {given[1]} in the candidate"
        if given is not None
        else evidence,
        confidence="consistent",
        advice=_advice(path, lines, lonely),
        keys=(_key(path, found),),
    )


def _placed(one: Operator) -> str:
    return f"{one.name} ({one.line})" if one.line else one.name


def _advice(path: str, lines: Sequence[str], lonely: str) -> str:
    if lonely and lines:
        return "compare this line with what the other side does in its place"
    if lines:
        return "compare these two lines"
    return f"compare settings, mode (train or eval) and buffers of {path or 'the model'} on both sides"


def _written_by_hand(path: str, found: Culprits) -> Finding:
    classes = [
        f"{one.written} in the {side}"
        for side, one in (("reference", found.reference), ("candidate", found.candidate))
        if one is not None and one.written
    ]
    others = [
        f"{one.name} ({one.line})" if one.line else one.name
        for one in (found.reference, found.candidate)
        if one is not None and not one.written
    ]
    return Finding(
        rule="wrong_backward",
        cause=f"a backward pass written by hand differs ({'; '.join(classes)}), although the outputs agree",
        evidence=f"inside {path or 'the model'} it is given a gradient that the other side knows, and gives back one "
        "that it does not" + (f", in place of {', '.join(others)}" if others else ""),
        confidence="consistent",
        advice="derive the gradient again, or check it by finite differences in float64 (torch.autograd.gradcheck, or "
        "a small step to either side in paddle)",
        keys=(_key(path, found),),
    )


def _cut(path: str, found: Culprits) -> Finding:
    side, one = next(
        (side, one) for side, one in (("reference", found.reference), ("candidate", found.candidate)) if one is not None
    )
    return Finding(
        rule="cut_graph",
        cause=f"the graph is cut in the {side}: {one.name} gives no gradient to one of its inputs"
        + (f" ({one.line})" if one.line else ""),
        evidence=f"inside {path or 'the model'} the outputs agree, and the other side has a gradient there",
        confidence="consistent",
        advice="look for detach(), stop_gradient=True, no_grad or .numpy() in this line and those before it",
        keys=(_key(path, found),),
    )


def _untraced(path: str, why: str) -> Finding:
    return Finding(
        rule="operator",
        cause=f"the operators inside {path or 'the model'} could not be looked at",
        evidence=why,
        kind="remark",
    )


def _key(path: str, found: Culprits) -> Key:
    phase, role = ("backward", "input.0") if found.backward else ("forward", "output")
    return Key(path, phase, 0, 0, role, "isolated")
