"""Weights that are not the reference's: transposed, swapped, rounded, scaled, negated, missing, never loaded.

The parameters before the first update are compared in the layout of their layer, so what differs was loaded wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding, Mend
from reprod_log.diagnose.material import Both, Material, other_factor, shown_ratio
from reprod_log.errors import counted
from reprod_log.pairing.values import relative
from reprod_log.recording import Array, Key
from reprod_log.recording.entry import dtype_named

_SAME = 1e-6
"""Loaded weights are copies; the arithmetic of `after - update` leaves less than this."""
_ROUNDED = (("bfloat16", "bfloat16 (8 bits)"), ("float16", "float16 (11 bits)"))


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not case.failed:
        return
    values = {
        path: both
        for path in material.parameters
        if not _was_right(case, material, path) and (both := material.initial(path)) is not None
    }
    wrong = {path: both for path, both in values.items() if relative(*both) > _SAME}
    if len(wrong) > 3 and len(wrong) == sum(bool(both[0].any()) for both in values.values()):
        same = _rounding_of_all(wrong)
        if same is not None:
            yield same
        else:
            yield _nothing_loaded(wrong)
        return
    explained: set[str] = set()
    for whole in _whole_parts(wrong, values):
        explained.update(key.path for key in whole.keys)
        yield whole
    for path, both in wrong.items():
        if path not in explained:
            yield _one(material, path, both, values, explained)


def _was_right(case: Case, material: Material, path: str) -> bool:
    """Whether a parameter that no optimizer moves did what the reference's does in the first step.

    What stands at the end of a single step may have been written in it, after the layer was run.
    """
    step = material.steps[0] if material.steps else 0
    if not material.stepped or Key(path, "update", step) in material.pairs:
        return False
    layer = path.rpartition(".")[0]
    if layer in case.states:
        return case.states[layer] in ("sound", "inherited")
    outputs = [key for key in case.judgements if _is_output(key, layer, step)]
    return bool(outputs) and not any(key in case.failed for key in outputs)


def _is_output(key: Key, layer: str, step: int) -> bool:
    return (
        key.path == layer
        and key.phase == "forward"
        and key.step == step
        and not key.run
        and not key.role.startswith("input")
    )


def _whole_parts(wrong: Mapping[str, Both], values: Mapping[str, Both]) -> Iterable[Finding]:
    """Parts of the model that hold the values of another part, weight by weight: one mistake, said once."""
    found: dict[tuple[str, str], list[str]] = {}
    for path, (_, theirs) in wrong.items():
        for other, (source, _) in values.items():
            parts = _counterparts(path, other)
            if parts is not None and source.shape == theirs.shape and relative(source, theirs) <= _SAME:
                found.setdefault(parts, []).append(path)
    whole = {
        parts: paths
        for parts, paths in found.items()
        if len(paths) > 1 and len(paths) == sum(path.startswith(f"{parts[0]}.") for path in wrong)
    }
    for (part, there), paths in whole.items():
        back = whole.get((there, part), [])
        if back and part > there:
            continue
        cause = (
            f"the weights of {part} and {there} are swapped in the candidate"
            if back
            else f"the weights of {part} in the candidate hold the values of {there}"
        )
        yield Finding(
            rule="weights",
            cause=cause,
            evidence=f"{counted(len(paths), 'the # weight that differs is', 'all # weights that differ are')} equal to "
            "the other's to the last digit",
            confidence="consistent",
            advice=f"load {part} from its own weights; a converter that shares one dict, or a name used twice, "
            "overwrites the earlier",
            keys=tuple(map(Key, (*paths, *back))),
        )


def _counterparts(path: str, other: str) -> tuple[str, str] | None:
    """The two parts of the model in which the names stand, when one word in them is all that differs."""
    ours, theirs = path.split("."), other.split(".")
    differing = [place for place, words in enumerate(zip(ours, theirs, strict=False)) if words[0] != words[1]]
    if len(ours) != len(theirs) or len(differing) != 1 or differing[0] == len(ours) - 1:
        return None
    end = differing[0] + 1
    return ".".join(ours[:end]), ".".join(theirs[:end])


def _one(material: Material, path: str, both: Both, values: Mapping[str, Both], explained: set[str]) -> Finding:
    ours, theirs = both
    said = _transformation(ours, theirs)
    paths = [path]
    if said is None:
        for other, (their_source, _) in values.items():
            if other != path and their_source.shape == theirs.shape and relative(their_source, theirs) <= _SAME:
                back = relative(ours, values[other][1]) <= _SAME
                explained.add(other if back else path)
                paths += [other] if back else []
                words = "are swapped" if back else "was given twice"
                cause = (
                    f"the weights {path} and {other} {words}"
                    if back
                    else f"the weight {path} of the candidate holds the values of {other}"
                )
                said = (cause, "equal to the other layer's weight to the last digit")
                break
    if said is None:
        said = (
            f"the weight {path} was not loaded, or changed since",
            f"it differs by {relative(ours, theirs):.2g} of its size before the first update",
        )
    cause, evidence = said
    return Finding(
        rule="weights",
        cause=cause.replace("the weight is", f"the weight {path} is"),
        evidence=evidence,
        confidence="consistent",
        advice=f"load {path} again into {material.partner(path)}: reprod_log.transfer_weights(reference, candidate) "
        "does it by the rule of the layer",
        keys=tuple(map(Key, paths)),
        mends=tuple(Mend(one.rpartition(".")[0], weights=True) for one in paths),
    )


def _transformation(ours: Array, theirs: Array) -> tuple[str, str] | None:
    """What was done to the weight, if it is one of the things people do."""
    if not theirs.any():
        return "the weight is zero in the candidate", f"the reference's has a size of {np.abs(ours).max():.3g}"
    for name, words in _ROUNDED:
        with np.errstate(over="ignore"):
            rounded = ours.astype(np.float32).astype(dtype_named(name)).astype(np.float64)
        if relative(rounded, theirs) <= _SAME:
            return f"the weight is rounded to {words}", "equal to the reference's after rounding it so"
    if ours.ndim == 2 and ours.shape[0] == ours.shape[1] and relative(ours.T, theirs) <= _SAME:
        return (
            "the weight is transposed",
            "equal to the reference's transposed: the matrix is square, so nothing raised",
        )
    if ours.ndim > 2:
        for axes in ((1, 0, *range(2, ours.ndim)), (0, 1, *range(ours.ndim - 1, 1, -1))):
            turned = ours.transpose(axes)
            if turned.shape == theirs.shape and relative(turned, theirs) <= _SAME:
                return "the weight is transposed", f"equal to the reference's with axes {axes}"
        flipped = np.flip(ours, axis=tuple(range(2, ours.ndim)))
        if relative(flipped, theirs) <= _SAME:
            return "the weight is flipped in space", "a convolution where a cross-correlation is meant"
    ratio = other_factor(ours, theirs, within=1e-5)
    if ratio is not None:
        return f"the weight is multiplied by {shown_ratio(ratio)}", "one number makes the one out of the other"
    return _permuted(ours, theirs)


def _permuted(ours: Array, theirs: Array) -> tuple[str, str] | None:
    if ours.size < 4 or not np.allclose(np.sort(ours, None), np.sort(theirs, None), rtol=1e-6, atol=0):
        return None
    if ours.ndim >= 1 and ours.shape[0] > 1:
        rows = np.sort(ours.reshape(ours.shape[0], -1).sum(1)), np.sort(theirs.reshape(ours.shape[0], -1).sum(1))
        if np.allclose(*rows, rtol=1e-5, atol=1e-6 * float(np.abs(ours).max())):
            return (
                "the weight is permuted along its first axis",
                "the same rows in another order (of gates, of channels?)",
            )
    return "the weight is permuted", "the same numbers in another order: a reshape where a transposition is meant?"


def _nothing_loaded(wrong: Mapping[str, Both]) -> Finding:
    return Finding(
        rule="weights",
        cause="the weights were not loaded: every parameter of the candidate differs from the reference's",
        evidence=f"{counted(len(wrong), 'parameter differs', 'parameters differ')} before the first update",
        confidence="consistent",
        advice="load the reference's weights first, for example with reprod_log.transfer_weights(reference, candidate)",
        keys=tuple(map(Key, wrong))[:5],
    )


def _rounding_of_all(wrong: Mapping[str, Both]) -> Finding | None:
    said = {_transformation(*both) for both in wrong.values()}
    only = next(iter(said))
    if len(said) != 1 or only is None or "rounded" not in only[0]:
        return None
    return Finding(
        rule="weights",
        cause=only[0].replace("the weight is", "all weights are"),
        evidence=f"{counted(len(wrong), 'parameter is', 'parameters are')} {only[1]}",
        confidence="consistent",
        advice="load the weights in float32",
        keys=tuple(map(Key, wrong))[:5],
    )
