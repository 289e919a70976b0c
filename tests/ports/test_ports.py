"""The tables of ports hold what they promise. How `align_models` does on them is scored by run.py, not here."""

from dataclasses import replace

import pytest

from ports.check import another_function, crossed, same_function, straight
from ports.exchanged import port_of
from ports.outcome import Case, Outcome, names_crossing
from ports.pair import parts, sources, tensors_of
from ports.planting import changed, plant, source_of
from ports.run import cases, record
from ports.tables import HALVES, all_exchanged, all_mistakes, all_ports, all_stated

QUICK = (
    "causal_chomp/two_d", "depthwise/folded", "attention_packed/interleaved", "rotary/pairs", "rms_upcast/flat",
    "weight_normed/removed", "fused_gru/gates", "experts/stacked", "vae/dict", "adam/hand", "several_models/bare",
)  # fmt: skip


def port_and_formulation(name: str):
    port, _, formulation = name.partition("/")
    return all_ports()[port], all_ports()[port].formulation(formulation)


def test_tables_are_as_large_as_promised() -> None:
    ports = all_ports().values()
    assert len(ports) >= 60
    assert all(len(port.formulations) >= 2 and len(port.seeds) >= 3 for port in ports)
    assert sum(port.swap for port in ports) >= len(ports) / 3
    assert len(all_exchanged()) >= 20
    assert len(all_mistakes()) >= 60
    every = {(port.name, one.name) for port in ports for one in port.formulations}
    assert {(row.port, row.formulation) for row in all_mistakes().values()} == every
    assert sum(row.loaded and row.correct for row in all_stated().values()) >= 20


def test_each_half_has_a_good_part_of_each_table() -> None:
    for table in ("correct", "exchanged", "mistakes", "stated"):
        halves = [case.half for case in cases(1) if case.table == table]
        assert all(halves.count(half) >= len(halves) / 3 for half in HALVES), table


@pytest.mark.parametrize("name", QUICK)
def test_formulation_is_the_same_function_under_its_converter(name: str) -> None:
    assert same_function(*port_and_formulation(name), 0)


def test_sources_are_the_weights_that_the_converter_reads() -> None:
    found = sources(*port_and_formulation("depthwise/folded"))
    assert found["b.weight"] == {"depth.0.weight", "depth.1.weight", "depth.1.running_var"}
    assert found["b.bias"] == {f"depth.1.{leaf}" for leaf in ("weight", "bias", "running_mean", "running_var")}
    gates = sources(*port_and_formulation("fused_lstm/gates"))
    assert gates["new.bias"] == {"lstm.bias_ih_l0", "lstm.bias_hh_l0"}


def test_stated_maps_are_right_or_wrong_as_the_table_says() -> None:
    for row in all_stated().values():
        made = sources(*port_and_formulation(f"{row.port}/{row.formulation}"))
        right = all(
            any(name == new or name.startswith(f"{new}.") for name in made)
            and all(
                source == old or source.startswith(f"{old}.")
                for name, found in made.items()
                if name == new or name.startswith(f"{new}.")
                for source in found
            )
            for old, new in row.rename.items()
        )
        assert right != row.wrong, row.name


def test_self_check_fails_when_two_weights_are_exchanged() -> None:
    port, formulation = port_and_formulation("attention_separate/scaled_dot")
    wrong = crossed(formulation, "query.weight", "key.weight")
    assert not same_function(port, wrong, 0)
    assert another_function(port, wrong, 0)


def test_self_check_fails_when_a_loss_differs() -> None:
    port, formulation = port_and_formulation("clip/hand")
    assert not same_function(port, replace(formulation, loss=lambda logits: logits.mean()), 0)


@pytest.mark.parametrize("name", ["gate_up", "llama_key_value"])
def test_exchanged_pair_is_the_same_function_only_crosswise(name: str) -> None:
    row = all_exchanged()[name]
    port = port_of(row)
    assert same_function(port, port.formulations[0], 0)
    assert another_function(port, straight(port, row.crossing), 0)


@pytest.mark.parametrize("name", ["small_unet/nested: skip behind the deep part", "adam/hand: epsilon"])
def test_planted_mistake_makes_another_function(name: str) -> None:
    mistake = all_mistakes()[name]
    port = all_ports()[mistake.port]
    assert another_function(port, plant(mistake, port).formulation, 0)


def test_every_mistake_has_its_line_and_its_place() -> None:
    for mistake in all_mistakes().values():
        port = all_ports()[mistake.port]
        changed(source_of(port), mistake)
        made = port.reference()
        paths = {
            f"{prefix}.{name}".strip(".") for prefix, one in parts(made).items() for name, _ in one.named_modules()
        }
        known = paths | set(tensors_of(made)) | {"", "loss"}
        assert set(mistake.place) <= known, mistake.name


def test_crossing_is_named_only_by_both_names_in_one_line() -> None:
    row = all_exchanged()["gate_up"]
    assert names_crossing("agrees only crosswise: gate_proj → up, up_proj → gate", row)
    assert not names_crossing("first divergence: gate_proj\nwhat to do: look it up", row)
    letters = all_exchanged()["towers_digits"]
    assert not names_crossing("net1 has a lot to do with the layer's t", letters)
    assert names_crossing("net1 → t", letters)


def test_scored_cases_stay_hidden_when_written() -> None:
    outcome = Outcome(Case("correct", "some_port", "form"), "failed", ("causes named",), "some/key", ("a cause",), 1.0)
    assert record("scored", [outcome], shown=False) == {
        "half": "scored",
        "totals": {"correct": {"cases": 1, "passed": 0, "failed": 1, "refused": 0, "broken": 0, "causes named": 1}},
        "seconds": 1.0,
        "outcomes": [],
    }
    assert "some_port" in str(record("scored", [outcome], shown=True))
