"""Models given as functions that make them, whole or in blocks: the same verdicts, and a block at a time."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Alignment, Blocks, Status, align_models
from reprod_log.errors import TransferError, UsageError
from reprod_log.transfer.files import write_weights

WIDTH = 12
ROWS = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 5, 6)
LOSSES = {torch: torch.nn.functional.cross_entropy, paddle: paddle.nn.functional.cross_entropy}


def blocks(library: Any, *, name: str = "blocks", wrong: tuple[int, ...] = ()) -> dict[str, Any]:
    """Three blocks in either framework, in the middle two norms of which some have another epsilon."""
    nn = library.nn
    module, eps = (nn.Module, "eps") if library is torch else (nn.Layer, "epsilon")

    class Middle(module):  # type: ignore[misc]
        def __init__(self, place: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH, **{eps: 1e-3 if place in wrong else 1e-5})
            self.wide, self.act, self.narrow = nn.Linear(WIDTH, 20), nn.GELU(), nn.Linear(20, WIDTH)

        def forward(self, x: Any) -> Any:
            return x + self.narrow(self.act(self.wide(self.norm(x))))

    middle = {f"{name}.{place}": partial(Middle, place) for place in range(2)}
    return {"enter": lambda: nn.Linear(8, WIDTH), **middle, "leave": lambda: nn.Linear(WIDTH, 5)}


def aligned(reference: Any, candidate: Any, libraries: tuple[Any, Any] = (torch, paddle), **options: Any) -> Alignment:
    losses = (LOSSES[libraries[0]], LOSSES[libraries[1]])
    return align_models(reference, candidate, (ROWS,), targets=LABELS, loss=losses, quick=True, **options)


def failing(alignment: Alignment) -> list[str]:
    return [str(one.key) for one in alignment.verdict.judgements if not one.status.passed]


@pytest.mark.parametrize("libraries", [(torch, paddle), (paddle, torch)], ids=["to_paddle", "to_torch"])
def test_blocks_of_a_right_port_pass(libraries: tuple[Any, Any], tmp_path: Path) -> None:
    ours, theirs = libraries
    alignment = aligned(Blocks(blocks(ours)), Blocks(blocks(theirs, name="layers")), libraries)
    alignment.raise_if_failed()
    rows = {str(row.key): str(row.candidate_key) for row in alignment.comparison.rows}
    assert rows["step0/forward/blocks.1#0:output"] == "step0/forward/layers.1#0:output"
    assert rows["isolated@step0/forward/blocks.1.norm#0:output"] == "isolated@step0/forward/layers.1.norm#0:output"
    assert "step0/loss/loss" in rows
    assert alignment.weight_map is not None
    assert alignment.weight_map.by_target["layers.0.wide.weight"].sources == ("blocks.0.wide.weight",)
    again = Alignment.load(alignment.save(tmp_path / "saved.json"))
    assert again.verdict == alignment.verdict


@pytest.mark.usefixtures("weights_by_name")
def test_each_block_that_is_wrong_is_named_and_no_other() -> None:
    alignment = aligned(Blocks(blocks(torch)), Blocks(blocks(paddle, wrong=(0, 1))))
    assert alignment.status is Status.FAIL
    assert alignment.first_divergence is not None
    assert alignment.first_divergence.key == "isolated@step0/forward/blocks.0.norm#0:output"
    (cause,) = [one for one in alignment.findings if one.kind == "cause"]
    assert cause.confidence == "proven"
    assert "blocks.0" in cause.text()
    assert "blocks.1" in cause.text()
    assert "eps of norm" in cause.text()
    # Behind the wrong blocks only what goes through the chain differs.
    behind = [key for key in failing(alignment) if "/blocks." not in key]
    assert behind == ["step0/forward/leave#0:output", "step0/loss/loss"]


def test_only_one_pair_of_blocks_is_there_at_a_time() -> None:
    alive: list[weakref.ref[Any]] = []
    most = 0

    def counted(make: Any) -> Any:
        def made() -> Any:
            nonlocal most
            gc.collect()
            block = make()
            alive.append(weakref.ref(block))
            most = max(most, sum(one() is not None for one in alive))
            return block

        return made

    sides = ({name: counted(make) for name, make in blocks(library).items()} for library in (torch, paddle))
    assert aligned(*map(Blocks, sides)).passed
    assert len(alive) == 8
    assert most == 2


def files(folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """The same weights as a file of torch's names and layouts and one of paddle's."""
    state: dict[str, Any] = {}
    turned: dict[str, Any] = {}
    torch.manual_seed(0)
    for name, make in blocks(torch).items():
        for key, tensor in make().state_dict().items():
            state[f"{name}.{key}"] = tensor.numpy()
            turned[f"{name}.{key}"] = tensor.numpy().T if tensor.ndim == 2 else tensor.numpy()
    write_weights(folder / "ours.safetensors", state, framework="torch")
    write_weights(folder / "theirs.pdparams", turned, framework="paddle")
    return folder / "ours.safetensors", folder / "theirs.pdparams", state


def test_blocks_get_their_weights_from_checkpoints(tmp_path: Path) -> None:
    ours, theirs, state = files(tmp_path)
    aligned(Blocks(blocks(torch), ours), Blocks(blocks(paddle), theirs), transfer=False).raise_if_failed()
    state["blocks.1.wide.weight"] = state["blocks.1.wide.weight"] * 1.001
    write_weights(ours, state, framework="torch")
    alignment = aligned(Blocks(blocks(torch), ours), Blocks(blocks(paddle), theirs), transfer=False)
    assert alignment.status is Status.FAIL
    assert not any("blocks.0" in key for key in failing(alignment))


def test_tensors_of_a_checkpoint_that_no_block_takes_are_noted(tmp_path: Path) -> None:
    ours, _, state = files(tmp_path)
    write_weights(ours, {**state, "rotary.table": np.ones(3, np.float32)}, framework="torch")
    alignment = aligned(Blocks(blocks(torch), [ours]), Blocks(blocks(paddle)))
    assert any(
        "1 tensor of the checkpoint belongs to no block: rotary.table" in str(note)
        for note in alignment.reference.notes
    )


def test_a_checkpoint_without_a_tensor_or_of_other_sizes_is_refused(tmp_path: Path) -> None:
    ours, _, state = files(tmp_path)
    lacking = {name: one for name, one in state.items() if name != "blocks.1.norm.bias"}
    write_weights(ours, lacking, framework="torch")
    with pytest.raises(
        UsageError, match=r"block 'blocks.1' of the reference needs 'blocks.1.norm.bias'.*ours.safetensors"
    ):
        aligned(Blocks(blocks(torch), ours), Blocks(blocks(paddle)))
    write_weights(ours, {**state, "leave.bias": np.ones(7, np.float32)}, framework="torch")
    with pytest.raises(UsageError, match=r"'leave.bias' has the shape \[7\].*\[5\] in block 'leave' of the reference"):
        aligned(Blocks(blocks(torch), ours), Blocks(blocks(paddle)))


def test_blocks_of_other_sizes_are_refused_with_the_name_of_the_block() -> None:
    other = blocks(paddle) | {"blocks.1": lambda: paddle.nn.Linear(WIDTH, WIDTH + 1)}
    with pytest.raises(TransferError, match=r"block 'blocks.1': "):
        aligned(Blocks(blocks(torch)), Blocks(other))


def test_a_function_that_fails_is_named() -> None:
    def broken() -> Any:
        raise RuntimeError("no such layer")

    other = blocks(paddle) | {"leave": broken}
    with pytest.raises(UsageError, match=r"makes block 'leave' of the candidate raised RuntimeError: no such layer"):
        aligned(Blocks(blocks(torch)), Blocks(other))
    with pytest.raises(UsageError, match="makes the reference raised RuntimeError: no such layer"):
        aligned(broken, blocks(paddle)["enter"])


def test_what_cannot_be_compared_block_by_block_is_refused() -> None:
    ours, theirs = Blocks(blocks(torch)), blocks(paddle)
    with pytest.raises(
        UsageError, match=r"reference has 4 blocks \('enter', .*candidate 3 \('enter', 'blocks.0', 'leave'\)"
    ):
        aligned(ours, Blocks({name: make for name, make in theirs.items() if name != "blocks.1"}))
    with pytest.raises(UsageError, match="the candidate is a Linear. Give both as Blocks"):
        aligned(ours, theirs["leave"]())
    with pytest.raises(UsageError, match="leave optimizer and step out"):
        aligned(ours, Blocks(theirs), optimizer=lambda model: None)
    with pytest.raises(UsageError, match="Blocks takes functions.*'leave': 'Linear'"):
        Blocks({"leave": theirs["leave"]()})
    with pytest.raises(UsageError, match=r"rename has 'norm': 'ln', and no block"):
        aligned(ours, Blocks(theirs), rename={"norm": "ln"})


@pytest.mark.parametrize("form", ["tuple", "dict"])
def test_blocks_pass_on_what_they_give(form: str) -> None:
    def made(library: Any) -> dict[str, Any]:
        module = library.nn.Module if library is torch else library.nn.Layer

        class First(module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.fc = library.nn.Linear(8, WIDTH)

            def forward(self, x: Any) -> Any:
                kept = x[:, :1] > 0
                return (self.fc(x), kept) if form == "tuple" else {"x": self.fc(x), "kept": kept}

        class Second(module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.fc = library.nn.Linear(WIDTH, 5)

            def forward(self, x: Any, kept: Any) -> Any:
                return self.fc(x * kept.astype(x.dtype) if library is paddle else x * kept)

        return {"first": First, "second": Second}

    aligned(Blocks(made(torch)), Blocks(made(paddle))).raise_if_failed()


def test_what_no_block_can_be_given_is_refused() -> None:
    class Nested(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return [(super().forward(x), x)]

    ours = blocks(torch) | {"enter": lambda: Nested(8, WIDTH)}
    with pytest.raises(UsageError, match="block 'enter': it gives '0.0', '0.1'"):
        aligned(Blocks(ours), Blocks(ours), (torch, torch))


def test_whole_models_are_made_by_functions_and_loaded_from_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    weights = {name: one.numpy() for name, one in torch.nn.Linear(8, 5).state_dict().items()}
    write_weights(tmp_path / "model.safetensors", weights, framework="torch")
    alignment = aligned(
        Blocks({"": lambda: torch.nn.Linear(8, 5)}, tmp_path / "model.safetensors"),
        lambda: paddle.nn.Linear(8, 5),
        optimizer=(
            lambda model: torch.optim.SGD(model.parameters(), 0.1),
            lambda model: paddle.optimizer.SGD(0.1, model.parameters()),
        ),
        steps=1,
    )
    alignment.raise_if_failed()
    assert alignment.row("step0/update/weight") is not None


def test_ctrl_c_leaves_the_blocks_that_are_done() -> None:
    def stop() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        aligned(Blocks(blocks(torch)), Blocks(blocks(paddle) | {"blocks.1": stop}))
    partial_ = stopped.value.result  # type: ignore[attr-defined]
    assert partial_.status is Status.UNPROVEN
    assert "2 of 4 blocks were compared" in str(stopped.value)
    assert partial_.row("step0/forward/blocks.0#0:output") is not None
