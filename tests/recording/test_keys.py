"""Keys print as text that parses back to the same key."""

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
    assert Key.parse(text) == key
    assert str(key) == text


def test_key_of_another_run_differs_only_in_the_run() -> None:
    key = Key.parse("step0/forward/fc#0:output")
    assert str(key.in_run("float64")) == "float64@step0/forward/fc#0:output"
