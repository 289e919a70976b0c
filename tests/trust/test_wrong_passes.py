"""Pairs that are built to pass wrongly, each with its reason: none passes, and the right ones do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from reprod_log import Recording, Status, align
from reprod_log.recording import Entry, Provenance, entry_of
from sampling import sampled
from trust.wrong_passes import joined, recorded

CHANGES: dict[str, dict[str, Any]] = {
    "another epsilon": {"eps": 1e-3},
    "an epsilon that is ten times as large": {"eps": 1e-4},
    "a first weight that is scaled": {"scale": 1.001},
    "an output that is scaled by 1e-4": {"output": 1.0001},
    "an output that is scaled by 1e-5": {"output": 1.00001},
    "another activation": {"act": "silu"},
    "GELU for tanh": {"act": "gelu"},
    "another learning rate": {"lr": 0.11},
    "another momentum": {"momentum": 0.8},
    "a weight decay": {"decay": 1e-2},
    "another schedule": {"gamma": 0.8},
    "a sum for a mean": {"mean": False},
    "other data": {"data": 1},
    "brighter data": {"brightness": 1.001},
    "other data from the second step on": {"late": 1},
    "other labels": {"labels": 1},
    "no bias": {"bias": 0.0},
    "clipped gradients": {"clip": 0.01},
    "label smoothing": {"smooth": 0.1},
    "fewer steps": {"steps": 2},
    "more steps": {"steps": 4},
}

Pair = Callable[[dict[str, Any]], tuple[Recording, Recording]]


def torch(wide: bool, changes: dict[str, Any] | None = None) -> Recording:
    return recorded("torch", wide, **(changes or {}))


def paddle(wide: bool, changes: dict[str, Any] | None = None) -> Recording:
    return recorded("paddle", wide, **(changes or {}))


WAYS: dict[str, Pair] = {
    "a wrong port, both passes of each side right": lambda d: (
        joined(torch(False), torch(True)),
        joined(paddle(False, d), paddle(True, d)),
    ),
    "a wrong port; the reference's float64 pass is of its script": lambda d: (
        joined(torch(False), torch(True, d)),
        joined(paddle(False, d), paddle(True, d)),
    ),
    "the same, and the port has no float64 pass": lambda d: (
        joined(torch(False), torch(True, d)),
        joined(paddle(False, d), None),
    ),
    "a wrong port whose float64 pass is of a right one": lambda d: (
        joined(torch(False), torch(True)),
        joined(paddle(False, d), paddle(True)),
    ),
    "a reference whose plain pass is of another program": lambda d: (
        joined(torch(False, d), torch(True)),
        joined(paddle(False), paddle(True)),
    ),
    "crossed passes": lambda d: (
        joined(torch(False), torch(True, d)),
        joined(paddle(False, d), paddle(True)),
    ),
}


def test_the_right_pair_passes() -> None:
    for way in WAYS.values():
        assert align(*way({})).status is Status.PASS


# Of an odd number of changes every second row meets each of them, in one half of the ways.
@pytest.mark.parametrize(("way", "change"), sampled(product(WAYS, CHANGES), 2))
def test_no_pair_of_wrong_passes_is_aligned(way: str, change: str) -> None:
    found = align(*WAYS[way](CHANGES[change]))
    assert not found.passed, f"{way}: {change}"


@pytest.mark.parametrize("change", [name for name in CHANGES if "steps" not in name])
def test_programs_that_differ_are_doubted_even_where_the_numbers_agree(change: str) -> None:
    """The recorded arguments differ: that is enough, however small the change."""
    reference = joined(
        torch(False), replace(torch(True), provenance=torch(True, CHANGES[change]).provenance), programs=True
    )
    found = align(reference, joined(paddle(False), paddle(True), programs=True))
    assert found.status is Status.UNPROVEN
    assert [str(one.cause) for one in found.doubts] == ["the passes of the reference come from different programs"]


SMALL: dict[str, dict[str, Any]] = {
    "a weight 1 % off": {"scale": 1.01},
    "a weight 1e-3 off": {"scale": 1.001},
    "an output 1e-4 off": {"output": 1.0001},
    "an output 1e-5 off": {"output": 1.00001},
    "ten times the epsilon": {"eps": 1e-4},
    "another momentum": {"momentum": 0.899},
    "a small weight decay": {"decay": 1e-4},
    "a little label smoothing": {"smooth": 1e-3},
    "brighter data": {"brightness": 1.001},
}


ANY = CHANGES | SMALL


OTHERS = ("a weight 1 % off", "a weight 1e-3 off", "brighter data", "a sum for a mean")


@pytest.mark.parametrize(("change", "other"), sampled(product((*SMALL, "other labels", "label smoothing"), OTHERS), 3))
def test_a_wrong_float64_pass_is_no_tolerance_for_another_mistake(change: str, other: str) -> None:
    """The reference's float64 pass is of another program, and the port has a smaller mistake."""
    reference = joined(torch(False), torch(True, ANY[other]))
    candidate = joined(paddle(False, ANY[change]), paddle(True, ANY[change]))
    assert not align(reference, candidate).passed


# Single pairs


def arrays(**named: Any) -> Recording:
    return Recording.from_arrays({name.replace("__", "/"): value for name, value in named.items()})


def only(recording: Recording, keep: Callable[[Entry], bool]) -> Recording:
    return replace(recording, entries=tuple(entry for entry in recording.entries if keep(entry)))


def changed(recording: Recording, part: str, change: Callable[[np.ndarray], np.ndarray]) -> Recording:
    entries = tuple(
        entry_of(entry.key, change(entry.array().copy())) if part in str(entry.key) else entry
        for entry in recording.entries
    )
    return replace(recording, entries=entries)


def good() -> tuple[Recording, Recording]:
    return joined(torch(False), torch(True)), joined(paddle(False), paddle(True))


def other_plain_data() -> tuple[Recording, Recording]:
    reference, candidate = good()
    return reference, changed(candidate, "step0/data/", lambda x: x if x.dtype == np.float64 else x + 1)


def plain_pass_of_one_float64_of_the_other() -> tuple[Recording, Recording]:
    return joined(torch(False), None), joined(None, paddle(True))


def one_given_twice() -> tuple[Recording, Recording]:
    reference, _ = good()
    return reference, reference


def a_copy() -> tuple[Recording, Recording]:
    reference, _ = good()
    return replace(reference, source="ref"), replace(reference, source="copy of ref")


def a_copy_under_another_name() -> tuple[Recording, Recording]:
    reference, _ = good()
    posing = replace(reference.provenance, framework="paddle", framework_version="3.3.1")
    return replace(reference, source="ref"), replace(reference, source="cand", provenance=posing)


def torch_that_is_named_paddle() -> tuple[Recording, Recording]:
    reference, _ = good()
    again = replace(reference, source="out/paddle", provenance=replace(reference.provenance, time="later"))
    return replace(reference, source="out/torch"), again


def layers_of_torch_in_a_recording_of_paddle() -> tuple[Recording, Recording]:
    reference, candidate = good()
    layers = tuple(replace(one, origin="torch.nn.modules.linear.Linear") for one in candidate.modules)
    return reference, replace(candidate, modules=layers)


def two_frameworks_bit_for_bit() -> tuple[Recording, Recording]:
    rng = np.random.default_rng(0)
    same = {f"step{i}/update/w": rng.normal(size=900).astype("float32") for i in range(4)}
    sides = [Recording.from_arrays(same, provenance=Provenance(framework=name)) for name in ("torch", "paddle")]
    return replace(sides[0], source="a"), replace(sides[1], source="b")


def never_stepped() -> tuple[Recording, Recording]:
    rates = {f"step{i}/lr/optimizer:group0": np.array(0.1) for i in range(9)}
    return Recording.from_arrays(rates), Recording.from_arrays(rates)


def never_stepped_as_one_array() -> tuple[Recording, Recording]:
    return arrays(lr=np.full(90, 0.1)), arrays(lr=np.full(90, 0.1))


def flat_loss() -> tuple[Recording, Recording]:
    sides = [
        {f"loss_{i}": np.float32(5.9915 + 1e-6 * i + noise * (-1) ** i) for i in range(5)} for noise in (0.0, 4e-7)
    ]
    return Recording.from_arrays(sides[0]), Recording.from_arrays(sides[1])


def identical_losses() -> tuple[Recording, Recording]:
    losses = {f"loss_{i}": np.float32(2.3 - 0.1 * i) for i in range(6)}
    return Recording.from_arrays(losses), Recording.from_arrays(losses)


def output_that_is_its_input() -> tuple[Recording, Recording]:
    x = np.random.default_rng(0).normal(size=(2, 8))
    return arrays(input=x, logits=x), arrays(input=x, logits=x)


def zeros_below_the_limit() -> tuple[Recording, Recording]:
    return arrays(gradient=np.full(9, 4e-7)), arrays(gradient=np.zeros(9))


def nan_on_both_sides() -> tuple[Recording, Recording]:
    return arrays(x=np.full(3, np.nan)), arrays(x=np.full(3, np.nan))


def nothing_in_common() -> tuple[Recording, Recording]:
    return arrays(a=np.ones(3)), arrays(b=np.ones(3))


def nothing_at_all() -> tuple[Recording, Recording]:
    return arrays(), arrays()


def one_entry_missing() -> tuple[Recording, Recording]:
    reference, candidate = good()
    return reference, only(candidate, lambda entry: "step1/loss" not in str(entry.key))


def last_step_missing() -> tuple[Recording, Recording]:
    reference, candidate = good()
    return reference, only(candidate, lambda entry: entry.key.step != 2)


def cut_short() -> tuple[Recording, Recording]:
    reference, candidate = good()
    return reference, replace(candidate, complete=False)


def both_cut_short() -> tuple[Recording, Recording]:
    reference, candidate = good()
    return replace(reference, complete=False), replace(candidate, complete=False)


def rates_of_the_other_pass() -> tuple[Recording, Recording]:
    reference, candidate = good()
    return changed(reference, "float64@step2/lr/", lambda rate: rate * 1.01), candidate


def plain_rates_of_the_candidate() -> tuple[Recording, Recording]:
    reference, candidate = good()
    plain = only(candidate, lambda entry: not entry.key.run)
    wide = only(candidate, lambda entry: bool(entry.key.run))
    moved = changed(plain, "step1/lr/", lambda rate: rate * 1.001)
    return reference, replace(candidate, entries=(*moved.entries, *wide.entries))


def plain_entry(part: str, change: Callable[[np.ndarray], np.ndarray]) -> tuple[Recording, Recording]:
    """One entry of the candidate's plain pass is wrong, its float64 pass right."""
    reference, candidate = good()
    plain = changed(only(candidate, lambda entry: not entry.key.run), part, change)
    wide = only(candidate, lambda entry: bool(entry.key.run))
    return reference, replace(candidate, entries=(*plain.entries, *wide.entries))


def wide_entry(part: str, change: Callable[[np.ndarray], np.ndarray]) -> tuple[Recording, Recording]:
    """One entry of the float64 passes of both sides is wrong in the same way, the reference's plain pass right."""
    reference, candidate = good()
    return changed(reference, f"float64@{part}", change), changed(
        changed(candidate, f"float64@{part}", change), f"{part}", lambda x: x if x.dtype == np.float64 else change(x)
    )


def taken_out(side: int, key: str) -> tuple[Recording, Recording]:
    """One entry of one pass of one side is missing."""
    sides = list(good())
    sides[side] = only(sides[side], lambda entry: str(entry.key) != key)
    return sides[0], sides[1]


def spoiled(side: int, key: str, change: Callable[[np.ndarray], np.ndarray]) -> tuple[Recording, Recording]:
    """One entry of one pass of one side is wrong."""
    sides = list(good())
    entries = (entry_of(e.key, change(e.array().copy())) if str(e.key) == key else e for e in sides[side].entries)
    sides[side] = replace(sides[side], entries=tuple(entries))
    return sides[0], sides[1]


def scaled(by: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: (x * by).astype(x.dtype)


SIDES = ("reference", "candidate")
OF_ONE_PASS = (
    "step0/data/#0:input.0",
    "step0/forward/one#0:input.0",
    "step0/forward/two#0:input.0",
    "step0/forward/norm#0:output",
    "step0/loss/loss",
    "step0/backward/norm#0:output",
    "step0/gradient/norm.weight:raw",
    "step0/gradient/one.weight:raw",
    "step0/update/one.weight",
    "step0/optimizer/two.bias:momentum_buffer",
)
OF_A_LATER_STEP = (
    "step1/forward/norm#0:output",
    "step1/loss/loss",
    "step1/backward/norm#0:output",
    "step1/gradient/one.weight:raw",
    "step2/forward/two#0:output",
    "step2/update/one.weight",
    "step2/parameter/two.bias",
    "step2/optimizer/two.bias:momentum_buffer",
)
PARTS = ("step0/forward/two#0:output", "step0/loss/loss", "step0/gradient/two.weight", "step0/update/two.weight")
SINGLE: dict[str, Callable[[], tuple[Recording, Recording]]] = {
    "other data as it runs, the right data in float64": other_plain_data,
    "a plain pass against a float64 pass": plain_pass_of_one_float64_of_the_other,
    "one recording given twice": one_given_twice,
    "a recording and its copy": a_copy,
    "a copy that says it is of the other framework": a_copy_under_another_name,
    "torch under the name of paddle": torch_that_is_named_paddle,
    "layers of torch in a recording of paddle": layers_of_torch_in_a_recording_of_paddle,
    "two frameworks bit for bit over a training": two_frameworks_bit_for_bit,
    "a schedule that is never stepped": never_stepped,
    "the same as one array": never_stepped_as_one_array,
    "a loss that hardly moves": flat_loss,
    "losses that are equal to the last bit": identical_losses,
    "an output that is its own input": output_that_is_its_input,
    "a lost gradient below the usual limit": zeros_below_the_limit,
    "NaN on both sides": nan_on_both_sides,
    "nothing in common": nothing_in_common,
    "nothing at all": nothing_at_all,
    "an entry that is missing": one_entry_missing,
    "a step that is missing": last_step_missing,
    "a recording that was cut short": cut_short,
    "two recordings that were cut short": both_cut_short,
    "learning rates of another float64 pass": rates_of_the_other_pass,
    "learning rates that are right in float64 alone": plain_rates_of_the_candidate,
    **{f"{part} 1e-4 off as it runs": lambda part=part: plain_entry(part, scaled(1.0001)) for part in PARTS},
    **{f"{part} 1 % off as it runs": lambda part=part: plain_entry(part, scaled(1.01)) for part in PARTS},
    **{f"{part} NaN as it runs": lambda part=part: plain_entry(part, lambda x: x * np.nan) for part in PARTS},
    **{
        f"{run}{key} is missing in the {name}": lambda side=side, key=run + key: taken_out(side, key)
        for run in ("", "float64@")
        for key in OF_ONE_PASS
        for side, name in enumerate(SIDES)
    },
    **{
        f"{run}{key} is {how} in the {name}": lambda side=side, key=run + key, by=by: spoiled(side, key, scaled(by))
        for run in ("", "float64@")
        for key in OF_ONE_PASS
        for how, by in (("1 % off", 1.01), ("NaN", np.nan))
        for side, name in enumerate(SIDES)
    },
    **{
        f"float64@{key} is 8 % off in the {name}": lambda side=side, key=key: spoiled(
            side, f"float64@{key}", scaled(1.08)
        )
        for key in OF_ONE_PASS[3:]
        for side, name in enumerate(SIDES)
    },
    **{
        f"{key} is {share:.0%} off in the {name}": lambda side=side, key=key, by=1 + share: spoiled(
            side, key, scaled(by)
        )
        for key in OF_A_LATER_STEP
        for share in (0.01, 0.05)
        for side, name in enumerate(SIDES)
    },
    **{
        f"{side} has a NaN in the gradient of its output": lambda side=side: spoiled(
            side, "step0/backward/#0:output", scaled(np.nan)
        )
        for side in (0, 1)
    },
    **{
        f"{part} 1e-4 off, and in both float64 passes": lambda part=part: wide_entry(part, scaled(1.0001))
        for part in PARTS
    },
}


@pytest.mark.parametrize("name", SINGLE)
def test_no_pair_of_wrong_recordings_is_aligned(name: str) -> None:
    found = align(*SINGLE[name]())
    assert not found.passed, name


def test_there_are_enough_of_them() -> None:
    assert len(WAYS) * len(CHANGES) + len(CHANGES) - 2 + len(SINGLE) >= 310


# What is right stays so


def test_same_framework_twice_recorded_as_such_is_aligned() -> None:
    reference, _ = good()
    again = replace(reference, provenance=replace(reference.provenance, time="later"))
    found = align(replace(reference, source="before"), replace(again, source="after"))
    assert found.status is Status.PASS
    assert [one.kind for one in found.findings if one.rule == "same_program"] == ["remark"]
    newer = replace(again, provenance=replace(again.provenance, framework_version="2.14.0"), source="torch 2.14")
    assert align(replace(reference, source="torch 2.13"), newer).passed


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_side_with_noisy_kernels_is_not_odd(side: str) -> None:
    """Ten times the rounding of the other side, everywhere."""
    rng = np.random.default_rng(0)

    def noisy(recording: Recording) -> Recording:
        wide = {str(entry.key): entry for entry in recording.entries if entry.key.run}
        entries = []
        for entry in recording.entries:
            truth = wide.get(f"float64@{entry.key}")
            if entry.key.run or truth is None or entry.key.phase in ("data", "lr") or entry.dtype != "float32":
                entries.append(entry)
                continue
            exact = truth.array()
            size = 1e-6 * np.sqrt(np.mean(exact**2))
            entries.append(entry_of(entry.key, (exact + size * rng.standard_normal(exact.shape)).astype("float32")))
        return replace(recording, entries=tuple(entries))

    reference, candidate = good()
    sides = (noisy(reference), candidate) if side == "reference" else (reference, noisy(candidate))
    assert align(*sides).passed


def test_a_candidate_that_casts_to_float32_itself_is_not_odd() -> None:
    """Its float64 pass is its plain pass: it converts what it is given."""
    reference, candidate = good()
    plain = {str(entry.key): entry.array() for entry in candidate.entries if not entry.key.run}
    entries = tuple(
        entry_of(entry.key, plain[str(entry.key.in_run(""))].astype("float64"))
        if entry.key.run and entry.key.phase == "forward" and entry.dtype == "float64"
        else entry
        for entry in candidate.entries
    )
    found = align(reference, replace(candidate, entries=entries))
    assert not found.doubts
    assert found.passed
