"""Keys print as text that parses back to the same key."""

from dataclasses import astuple, replace

import pytest

from reprod_log.recording import Key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            "step0/forward/encoder.0.linear#0:output",
            Key("encoder.0.linear", phase="forward", step=0, call=0, role="output"),
        ),
        ("step3/gradient/fc.weight:raw", Key("fc.weight", phase="gradient", step=3, role="raw")),
        (
            "float64@step0/forward/fc#1:output.0",
            Key("fc", phase="forward", step=0, call=1, role="output.0", run="float64"),
        ),
        ("step12/lr/group0", Key("group0", phase="lr", step=12)),
        ("loss_0", Key("loss_0")),
        ("step1/unknown/fc", Key("step1/unknown/fc")),
        ("key: with, odd #signs", Key("key: with, odd #signs")),
        ("", Key("")),
    ],
)
def test_key_survives_when_printed_and_parsed(text: str, key: Key) -> None:
    assert astuple(Key.parse(text)) == astuple(key)
    assert str(key) == text


def test_key_equals_its_text_and_finds_itself_under_it() -> None:
    key = Key("fc", "forward", 0, 0, "output")
    assert key == "step0/forward/fc#0:output"
    assert key != "step0/forward/fc#1:output"
    assert key != 0
    assert {"step0/forward/fc#0:output": 1}[key] == 1


@pytest.mark.parametrize(
    ("text", "role", "region"),
    [
        ("isolated@step0/gradient/fc.weight:raw of fc", "raw", "fc"),
        ("isolated.float64@step0/buffer/bn.mean:of bn", "", "bn"),
        ("isolated@step0/gradient/fc.weight:raw of model", "raw", ""),
        ("isolated@step0/gradient/model.fc.weight:raw of 'model'", "raw", "model"),
        ("isolated@step0/gradient/fc.weight:raw", "raw", None),
        ("step0/gradient/fc.weight:state of mind", "state of mind", None),
        ("isolated@step0/forward/fc#0:output of fc", "output of fc", None),
    ],
)
def test_region_that_ran_alone_is_a_part_of_the_key(text: str, role: str, region: str | None) -> None:
    key = Key.parse(text)
    assert (key.role, key.region) == (role, region)
    assert str(replace(key, step=0)) == text


def test_key_of_another_run_differs_only_in_the_run() -> None:
    key = Key.parse("step0/forward/fc#0:output")
    assert str(key.in_run("float64")) == "float64@step0/forward/fc#0:output"
