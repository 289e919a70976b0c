"""The converter script of a map, run on saved checkpoints in both directions; outputs compared in float64."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from ports.pair import batch, flat, make_generic, make_pair, precision
from ports.tables import all_ports
from reprod_log.errors import TransferError
from reprod_log.frameworks.side import Side
from reprod_log.messages import words
from reprod_log.pairing.links import Link, Recipe, WeightMap
from reprod_log.pairing.live_map import find_weight_map, with_file_names
from reprod_log.pairing.saved_map import link_steps, map_from_dict, map_to_dict
from reprod_log.transfer.converter import write_converter

PAIRS = {
    "llama/fused": "transposed; 3 joined along axis 1",
    "alibi/separate": "transposed; part 2 of 3 along axis 1",
    "simple_rnn/hand": "sum of 2",
    "text_conv/two_d": "axes (0, 2, 1); reshaped",
    "encoder_layer/framework": "transposed; part 2 of 3",
    "tied/parameter": "transposed",
    "residual/nested": "as is",
    "vae/dict": "2 joined along axis 0",
    "swin_windows/separate": "part 1 of 3 along axis 0",
}
"""Ports of the development half, each with a transform that its map has."""
_TURNED = Recipe(axes=(1, 0))
SUMMED = WeightMap(
    (
        Link("W", (4, 5), ("rnn.weight_ih_l0",), ((5, 4),), _TURNED, "values"),
        Link("U", (5, 5), ("rnn.weight_hh_l0",), ((5, 5),), _TURNED, "values"),
        Link("b", (5,), ("rnn.bias_ih_l0", "rnn.bias_hh_l0"), ((5,), (5,)), Recipe(added=True), "values"),
        Link("out.weight", (5, 3), ("fc.weight",), ((3, 5),), _TURNED, "values"),
        Link("out.bias", (3,), ("fc.bias",), ((3,),), Recipe(), "values"),
    ),
    agrees=True,
)
"""The map of a recurrent layer that keeps two biases and one by hand that keeps their sum."""


@pytest.mark.parametrize("name", PAIRS)
def test_a_checkpoint_is_converted_and_back(name: str, tmp_path: Path) -> None:
    port, formulation = _port(name)
    with precision("float64"):
        ours, theirs = make_pair(port, formulation, 0, loaded=False)
        # The search for maps has tests of its own; the converter of this one is tested whether or not it is found.
        found = SUMMED if name == "simple_rnn/hand" else _map(port, formulation, ours, theirs)
        assert found.agrees
        steps = {words("en")(link_steps(link)) for link in found.links}
        assert PAIRS[name] in steps
        script = write_converter(found, tmp_path / "convert.py")

        # Into the candidate: another seed's weights, so that nothing is left over from the search.
        make_generic(ours, 5, port.kept)
        torch.save(ours.state_dict(), tmp_path / "ours.pth")
        paddle.save(theirs.state_dict(), str(tmp_path / "base.pdparams"))
        _run(script, tmp_path, "ours.pth", "theirs.pdparams", "--base", "base.pdparams")
        missing, unexpected = theirs.set_state_dict(paddle.load(str(tmp_path / "theirs.pdparams")))
        assert not missing
        assert not unexpected
        before = _outputs(port, ours)
        _same(before, _outputs(port, theirs), port.tolerance)

        # And back, into a model with other weights.
        torch.manual_seed(99)
        again = port.reference()
        (again.train if port.mode == "train" else again.eval)()
        torch.save(again.state_dict(), tmp_path / "base.pth")
        paddle.save(theirs.state_dict(), str(tmp_path / "theirs2.pdparams"))
        _run(script, tmp_path, "--back", "theirs2.pdparams", "back.pth", "--base", "base.pth")
        again.load_state_dict(torch.load(tmp_path / "back.pth"))
        _same(before, _outputs(port, again), port.tolerance)


def test_a_map_is_saved_and_read_again() -> None:
    port, formulation = _port("alibi/separate")
    ours, theirs = make_pair(port, formulation, 0, loaded=False)
    found = _map(port, formulation, ours, theirs)
    assert map_from_dict(json.loads(json.dumps(map_to_dict(found)))) == found


def test_interleaved_heads_and_flips_go_both_ways(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    links = (
        Link("qkv", (18, 4), ("q", "k", "v"), ((6, 4),) * 3, Recipe(join=0, heads=3), "values"),
        Link("kernel", (2, 3, 5, 5), ("turned",), ((2, 3, 5, 5),), Recipe(flip=(2, 3)), "values"),
        Link("both", (6,), ("one", "other"), ((6,), (6,)), Recipe(added=True), "values"),
    )
    weights = WeightMap(links, agrees=True)
    state = {
        name: rng.normal(size=shape)
        for link in links
        for name, shape in zip(link.sources, link.source_shapes, strict=True)
    }
    script = write_converter(weights, tmp_path / "convert.py")
    np.savez(tmp_path / "a.npz", **state)
    _run(script, tmp_path, "a.npz", "b.npz")
    made = dict(np.load(tmp_path / "b.npz"))
    assert all(np.array_equal(made[name], array) for name, array in weights.apply(state.__getitem__).items())
    _run(script, tmp_path, "--back", "b.npz", "c.npz")
    back = dict(np.load(tmp_path / "c.npz"))
    assert all(np.array_equal(back[name], state[name]) for name in ("q", "k", "v", "turned"))
    assert np.array_equal(back["one"], state["one"] + state["other"])
    assert not back["other"].any()


def test_several_models_are_converted_by_name(tmp_path: Path) -> None:
    link = Link("g.out.weight", (3, 2), ("g.fc.weight",), ((2, 3),), Recipe(axes=(1, 0)), "values")
    script = write_converter(WeightMap((link,), agrees=True, models=("g",)), tmp_path / "convert.py")
    torch.save({"g": {"fc.weight": torch.arange(6.0).reshape(2, 3)}}, tmp_path / "a.pth")
    _run(script, tmp_path, "a.pth", "b.pdparams")
    made = paddle.load(str(tmp_path / "b.pdparams"), return_numpy=True)
    assert np.array_equal(made["g"]["out.weight"], np.arange(6.0).reshape(2, 3).T)


def test_the_script_names_what_does_not_fit(tmp_path: Path) -> None:
    link = Link("out.weight", (3, 2), ("fc.weight",), ((2, 3),), Recipe(axes=(1, 0)), "values")
    script = write_converter(WeightMap((link,), agrees=True), tmp_path / "convert.py")
    np.savez(tmp_path / "a.npz", **{"fc.weight": np.zeros((2, 4))})
    done = subprocess.run([sys.executable, script, "a.npz", "b.npz"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "'fc.weight' is (2, 4) in the checkpoint and (2, 3) in the map" in done.stderr
    assert not (tmp_path / "b.npz").exists()


def test_a_map_that_is_not_proven_makes_no_script(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="not proven"):
        write_converter(WeightMap((), agrees=False), tmp_path / "convert.py")


def _port(name: str) -> Any:
    port, _, formulation = name.partition("/")
    return all_ports()[port], all_ports()[port].formulation(formulation)


def _map(port: Any, formulation: Any, ours: Any, theirs: Any) -> WeightMap:
    losses = port.loss or (None, None)
    sides = Side(ours, losses[0]), Side(theirs, formulation.loss or losses[1])
    return with_file_names(find_weight_map(*sides, batch(port, 0)), *sides)


def _outputs(port: Any, model: Any) -> list[np.ndarray]:
    inputs, _ = batch(port, 3)
    side = Side(model)
    return [one.detach().numpy() for one in flat(side.call(model, side.tensors(inputs, "float64")))]


def _same(ours: list[np.ndarray], theirs: list[np.ndarray], tolerance: float) -> None:
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        scale = float(np.abs(one).max())
        assert scale > 0
        np.testing.assert_allclose(other.reshape(one.shape), one, rtol=0, atol=tolerance * scale)


def _run(script: Path, folder: Path, *arguments: str) -> None:
    """Run the script as `python convert.py …` would, in this process: it need not import both frameworks again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", [str(script), *arguments])
        runpy.run_path(str(script), run_name="__main__")
