"""The report as text and as data."""

import re

import paddle
import pytest
from paddle import nn as pn
from torch import nn as tn

from reprod_log.errors import TransferError
from reprod_log.transfer import TransferReport, transfer_weights


def deep(build: object, depth: int) -> object:
    for number in range(depth):
        build = (tn.ModuleDict if isinstance(build, tn.Module) else pn.LayerDict)(
            {f"a_rather_long_name_{number}": build}
        )
    return build


def test_text_fits_eighty_columns_whatever_the_names() -> None:
    source, target = deep(tn.MultiheadAttention(8, 2), 6), deep(pn.MultiHeadAttention(8, 2), 6)
    source.add_module("left_over_in_the_source_" + "x" * 80, tn.Linear(2, 2))
    report = transfer_weights(source, target, dry_run=True)
    assert max(map(len, str(report).splitlines())) <= 80
    assert "INCOMPLETE" in str(report)


def test_text_says_layer_rule_way_and_check() -> None:
    text = str(transfer_weights(tn.ModuleDict({"fc": tn.Linear(3, 3)}), pn.LayerDict({"fc": pn.Linear(3, 3)})))
    assert text.splitlines() == [
        "torch -> paddle: 2 tensors, 2 verified; complete",
        "fc <- fc",
        "    Linear · name · verified",
        "    weight <- weight: transposed",
    ]


def test_chinese_text_has_the_same_lines_without_english_sentences() -> None:
    source = tn.ModuleDict({"fc": tn.Linear(3, 3), "own": tn.Linear(3, 3)})
    report = transfer_weights(source, pn.LayerDict({"fc": pn.Linear(3, 3)}), dry_run=True, verify=False)
    chinese = report.text("zh")
    assert len(chinese.splitlines()) == len(str(report).splitlines())
    assert not re.search(r"[a-z]+ [a-z]+ [a-z]+", chinese)


def test_empty_report_is_not_complete() -> None:
    report = TransferReport("torch", "paddle", ())
    assert not report.complete
    with pytest.raises(TransferError, match="Nothing to transfer"):
        report.raise_if_incomplete()


def test_report_carries_its_plan_for_later() -> None:
    source, target = tn.Linear(3, 3), paddle.nn.Linear(3, 3)
    report = transfer_weights(source, target)
    assert report.plan is not None
    assert set(report.plan.by_target) == {"weight", "bias"}
