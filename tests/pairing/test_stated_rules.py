"""One grammar for the rules that a user states: names of either side, several models by name, errors that help."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from pairing.made import PADDLE, TORCH, Model
from reprod_log import align_models
from reprod_log.errors import TransferError, UsageError
from reprod_log.pairing import match, order
from reprod_log.pairing.rename import oriented, renamed_path

OURS = ("net.t1", "net.t1.weight", "net.t2", "other.t1")
THEIRS = ("net.first", "net.first.weight", "net.second", "other.t1")
RULES = {"t1": "a", "t1.inner": "b", "": "front"}


@pytest.mark.parametrize(
    ("path", "renamed", "rule"),
    [
        ("t1", "a", "t1"),
        ("t1.weight", "a.weight", "t1"),
        ("t1.inner.weight", "b.weight", "t1.inner"),
        ("t1/0", "a/0", "t1"),
        ("t10.weight", "front.t10.weight", ""),
    ],
)
def test_the_longest_rule_that_fits_a_path_wins(path: str, renamed: str, rule: str) -> None:
    assert renamed_path(path, RULES) == (renamed, rule)


def test_a_rule_may_begin_with_either_side() -> None:
    assert oriented({"net.t1": "net.first", "net.second": "net.t2"}, OURS, THEIRS) == {
        "net.t1": "net.first",
        "net.t2": "net.second",
    }


@pytest.mark.parametrize(
    ("rename", "models", "message"),
    [
        ({"t1": "first"}, ("net", "other"), "'t1' of model 'net' is 'net.t1'. Write the model's name in front"),
        ({"model.net.t1": "first"}, (), "'model.net.t1' is 'net.t1' of the one model there is. Leave 'model' out"),
        ({"net.t3": "net.first"}, (), r"Near names: '.*net\.t"),
        ({"net.first": "nowhere"}, (), "nor anything named 'nowhere'"),
    ],
)
def test_a_rule_that_fits_nothing_is_explained(rename: dict[str, str], models: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        oriented(rename, OURS, THEIRS, models)


def test_recordings_take_rules_of_either_side() -> None:
    ours = Model().linear("fc", np.ones((2, 3)), np.ones((4, 2))).recording()
    theirs = Model(PADDLE).linear("dense", np.ones((2, 3)), np.ones((4, 2))).recording()
    one, other = (match(ours, theirs, rename=rule) for rule in ({"fc": "dense"}, {"dense": "fc"}))
    assert {str(pair.candidate.key) for pair in one.pairs} == {str(pair.candidate.key) for pair in other.pairs}
    assert not one.only_in_reference
    assert not other.only_in_reference


def _pair(names: tuple[str, str]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    ours = torch.nn.Sequential()
    theirs = paddle.nn.Sequential()
    for name in names:
        ours.add_module(name, torch.nn.Linear(4, 4))
        theirs.add_sublayer(f"{name}_there", paddle.nn.Linear(4, 4))
    return ours, theirs


def _step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    model["one"](inputs[0])
    model["two"](inputs[0])


@pytest.mark.usefixtures("weights_by_name")
@pytest.mark.parametrize("backwards", [False, True])
def test_several_models_are_renamed_as_reports_name_them(backwards: bool) -> None:
    (a, b), (c, d) = _pair(("t1", "t2")), _pair(("t1", "t2"))
    rename = {f"{model}.{name}": f"{model}.{name}_there" for model in ("one", "two") for name in ("t1", "t2")}
    if backwards:
        rename = {new: old for old, new in rename.items()}
    batch = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    alignment = align_models({"one": a, "two": c}, {"one": b, "two": d}, batch, step=_step, rename=rename)
    assert alignment.passed, str(alignment)


def test_a_rule_without_the_model_in_front_is_explained() -> None:
    ours, theirs = _pair(("t1", "t2"))
    with pytest.raises(UsageError, match="'t1' of model 'net' is 'net.t1'"):
        align_models({"net": ours}, {"net": theirs}, np.ones((2, 4), "float32"), step=_step, rename={"t1": "t1_there"})


class _WithPooler(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.pooler = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.fc(x)


class _Twice(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.extra = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        return self.fc(x) + 0 * self.extra(x).mean()


def test_align_models_takes_what_its_error_advises() -> None:
    batch = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    with pytest.raises(TransferError, match=r"Pass rename=\{...\}, or allow_left=\(...\)"):
        align_models(_WithPooler(), _Twice(), batch)
    alignment = align_models(_WithPooler(), _Twice(), batch, allow_left=("pooler.*", "extra.*"))
    # What is left out is listed; a layer that runs on one side only still has no partner.
    assert {"pooler.weight", "extra.weight"} <= {key.path for key in alignment.verdict.allowed}
    assert not alignment.passed


def _deep(names: str, layout: dict[str, str]) -> Model:
    generator = np.random.default_rng(0)
    model = Model(layout)
    for place in range(3000):
        model.linear(names.format(place), generator.normal(size=(3, 3)), generator.normal(size=(2, 3)))
    return model


@pytest.mark.parametrize("stated", [False, True])
def test_three_thousand_renamed_layers_pair_without_a_table_of_all(
    stated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = _deep("layers.{}.fc", TORCH).recording(), _deep("blocks.{}.dense", PADDLE).recording()
    rename = {f"layers.{place}.fc": f"blocks.{place}.dense" for place in range(3000)} if stated else {}
    table = order.best_alignment

    def small_table(here: Any, there: Any, score: Any) -> Any:
        assert len(here) * len(there) < 10_000
        return table(here, there, score)

    monkeypatch.setattr(order, "best_alignment", small_table)
    pairing = match(ours, theirs, rename=rename)
    assert len(pairing.pairs) == 9000
    assert all(
        pair.reference.key.path.replace("layers", "blocks").replace("fc", "dense") == pair.candidate.key.path
        for pair in pairing.pairs
        if pair.reference.key.phase == "forward"
    )
