"""Weight files: what one framework saved, the other loads and computes the same with."""

import importlib
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import paddle
import pytest
import torch
from paddle import nn as pn
from torch import nn as tn

from reprod_log.errors import ReprodLogError, TransferError, UnreadableFile, UntrustedFile, UsageError
from reprod_log.transfer import convert_weights


def in_torch() -> Any:
    torch.manual_seed(0)
    return tn.Sequential(
        tn.Conv2d(3, 4, 3), tn.BatchNorm2d(4), tn.ReLU(), tn.AdaptiveAvgPool2d(1), tn.Flatten(), tn.Linear(4, 5)
    )


def in_paddle() -> Any:
    paddle.seed(1)
    return pn.Sequential(
        pn.Conv2D(3, 4, 3), pn.BatchNorm2D(4), pn.ReLU(), pn.AdaptiveAvgPool2D(1), pn.Flatten(), pn.Linear(4, 5)
    )


IMAGE = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)


def assert_same(one: Any, other: Any, x: np.ndarray = IMAGE) -> None:
    one.eval()
    other.eval()
    np.testing.assert_allclose(
        one(torch.from_numpy(x)).detach().numpy(), other(paddle.to_tensor(x)).numpy(), rtol=1e-4, atol=1e-5
    )


def load_paddle(model: Any, path: Path) -> None:
    missing, unexpected = model.set_state_dict(paddle.load(str(path)))
    assert (missing, unexpected) == ([], [])


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_torch_file_becomes_a_paddle_file_by_names(tmp_path: Path, suffix: str) -> None:
    source, target = in_torch(), in_paddle()
    source.train()(torch.from_numpy(IMAGE))
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file(source.state_dict(), str(path))
    else:
        torch.save(source.state_dict(), path)

    report = convert_weights(path, tmp_path / "weights.pdparams")

    assert report.complete
    assert {row.verified for row in report.rows} == {"unverified"}
    assert {row.rule for row in report.rows} == {"Conv2d", "BatchNorm", "Linear"}
    load_paddle(target, tmp_path / "weights.pdparams")
    assert_same(source, target)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_paddle_file_becomes_a_torch_file_with_both_models(tmp_path: Path, suffix: str) -> None:
    source, target = in_paddle(), in_torch()
    source.train()(paddle.to_tensor(IMAGE))
    paddle.save(source.state_dict(), str(tmp_path / "weights.pdparams"))
    path = tmp_path / f"weights{suffix}"
    before = {name: value.clone() for name, value in target.state_dict().items()}

    report = convert_weights(tmp_path / "weights.pdparams", path, source_model=source, target_model=target)

    assert {row.verified for row in report.rows} == {"verified"}
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())
    if suffix == ".safetensors":
        from safetensors.torch import load_file

        target.load_state_dict(load_file(str(path)))
    else:
        target.load_state_dict(torch.load(path, weights_only=True))
    assert_same(target, source)


@pytest.mark.parametrize("given", ["source_model", "target_model"])
@pytest.mark.parametrize("direction", ["torch to paddle", "paddle to torch"])
def test_one_model_tells_the_types_of_both_files(tmp_path: Path, given: str, direction: str) -> None:
    one = tn.ModuleDict(
        {"a": tn.MultiheadAttention(8, 2), "r": tn.LSTM(8, 8, 2, bidirectional=True), "b": tn.Bilinear(2, 2, 3)}
    )
    other = pn.LayerDict(
        {"a": pn.MultiHeadAttention(8, 2), "r": pn.LSTM(8, 8, 2, direction="bidirect"), "b": pn.Bilinear(2, 2, 3)}
    )
    forth = direction == "torch to paddle"
    names = (tmp_path / "a.pth", tmp_path / "b.pdparams")
    torch.save(one.state_dict(), names[0])
    paddle.save(other.state_dict(), str(names[1]))
    source, target = (one, other) if forth else (other, one)
    model = source if given == "source_model" else target

    report = convert_weights(*(names if forth else names[::-1]), **{given: model})

    assert {row.verified for row in report.rows} == {"unverified"}
    if forth:
        load_paddle(other, names[1])
    else:
        one.load_state_dict(torch.load(names[0], weights_only=True))
    x = np.random.default_rng(2).standard_normal((2, 5, 8)).astype(np.float32)
    mine, _ = one["a"](*[torch.from_numpy(x).transpose(0, 1)] * 3)
    np.testing.assert_allclose(
        mine.transpose(0, 1).detach().numpy(), other["a"](paddle.to_tensor(x)).numpy(), atol=1e-5
    )
    mine, _ = one["r"](torch.from_numpy(x).transpose(0, 1))
    theirs, _ = other["r"](paddle.to_tensor(x))
    np.testing.assert_allclose(mine.transpose(0, 1).detach().numpy(), theirs.numpy(), atol=1e-5)


def test_square_weight_is_refused_without_a_word_on_it(tmp_path: Path) -> None:
    torch.save(tn.Sequential(tn.Linear(4, 4)).state_dict(), tmp_path / "a.pth")
    with pytest.raises(TransferError, match=r"'0.weight' \(4, 4\) is square.*linear="):
        convert_weights(tmp_path / "a.pth", tmp_path / "b.pdparams")
    assert not (tmp_path / "b.pdparams").exists()


@pytest.mark.parametrize(
    "hint", [{"linear": ["0*"]}, {"layers": {"0": "torch.nn.Linear"}}, {"layers": {"0": "Linear"}}]
)
def test_square_weight_is_transposed_when_told_to_be_linear(tmp_path: Path, hint: dict[str, Any]) -> None:
    source, target = tn.Sequential(tn.Linear(4, 4)), pn.Sequential(pn.Linear(4, 4))
    torch.save(source.state_dict(), tmp_path / "a.pth")
    convert_weights(tmp_path / "a.pth", tmp_path / "b.pdparams", **hint)
    load_paddle(target, tmp_path / "b.pdparams")
    assert_same(source, target, np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32))


def test_matrix_without_bias_is_refused_unless_its_name_says_embedding(tmp_path: Path) -> None:
    state = {"word_embeddings.weight": torch.randn(7, 3), "thing.weight": torch.randn(7, 3)}
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(TransferError, match="1 tensor could be.*'thing.weight'.*no bias"):
        convert_weights(tmp_path / "a.pth", tmp_path / "b.pdparams")
    convert_weights(tmp_path / "a.pth", tmp_path / "b.pdparams", keep=["thing.*"])
    loaded = paddle.load(str(tmp_path / "b.pdparams"))
    assert {name: tuple(value.shape) for name, value in loaded.items()} == {
        "word_embeddings.weight": (7, 3),
        "thing.weight": (7, 3),
    }


def test_compat_layout_in_a_paddle_file_is_seen_by_its_bias(tmp_path: Path) -> None:
    layer = paddle.compat.nn.Linear(3, 5)
    paddle.save({f"fc.{name}": value for name, value in layer.state_dict().items()}, str(tmp_path / "a.pdparams"))
    convert_weights(tmp_path / "a.pdparams", tmp_path / "b.pth")
    loaded = torch.load(tmp_path / "b.pth", weights_only=True)
    np.testing.assert_array_equal(loaded["fc.weight"].numpy(), layer.weight.numpy())


@pytest.mark.parametrize("name", ["resnet18", "lstm_classifier"])
def test_models_of_other_names_convert_by_their_values(tmp_path: Path, name: str) -> None:
    pair = importlib.import_module(f"models_pairs.{name}")
    source, target = pair.build_torch(), pair.build_paddle()
    torch.save(source.state_dict(), tmp_path / "a.pth")
    convert_weights(
        tmp_path / "a.pth",
        tmp_path / "b.pdparams",
        source_model=source,
        target_model=target,
        inputs=pair.make_inputs(0),
    )
    load_paddle(target, tmp_path / "b.pdparams")
    source.eval()
    target.eval()
    inputs = pair.make_inputs(1)
    one = source(**{key: torch.from_numpy(value) for key, value in inputs.items()}).detach().numpy()
    other = target(**{key: paddle.to_tensor(value) for key, value in inputs.items()}).numpy()
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_bfloat16_and_float64_keep_their_bits(tmp_path: Path) -> None:
    state = {
        "a.weight": torch.randn(3, 5).to(torch.bfloat16),
        "a.bias": torch.randn(3).to(torch.bfloat16),
        "b.weight": torch.randn(3, 5, dtype=torch.float64),
        "b.bias": torch.randn(3, dtype=torch.float64),
    }
    torch.save(state, tmp_path / "a.pth")
    convert_weights(tmp_path / "a.pth", tmp_path / "b.pdparams")
    convert_weights(tmp_path / "b.pdparams", tmp_path / "c.pth")
    back = torch.load(tmp_path / "c.pth", weights_only=True)
    for name, value in state.items():
        assert back[name].dtype == value.dtype
        assert torch.equal(back[name], value)
    raw = pickle.loads((tmp_path / "b.pdparams").read_bytes())
    np.testing.assert_array_equal(
        raw["a.weight"].view(ml_dtypes.bfloat16).astype(np.float32), state["a.weight"].float().T
    )


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_wrapping_in_front_of_every_name_is_taken_off(tmp_path: Path, prefix: str) -> None:
    torch.save({prefix + name: value for name, value in in_torch().state_dict().items()}, tmp_path / "a.pth")
    report = convert_weights(tmp_path / "a.pth", tmp_path / "b.pdparams")
    assert "0.weight" in {row.target for row in report.rows}


def test_checkpoint_with_more_than_weights_asks_which_entry(tmp_path: Path) -> None:
    torch.save({"state_dict": in_torch().state_dict(), "epoch": 3}, tmp_path / "a.pth")
    with pytest.raises(UsageError, match="entry=.*'state_dict'"):
        convert_weights(tmp_path / "a.pth", tmp_path / "b.pdparams")
    assert convert_weights(tmp_path / "a.pth", tmp_path / "b.pdparams", entry="state_dict").complete


@pytest.mark.parametrize("protocol", [2, 4])
def test_paddle_checkpoint_with_more_than_weights_is_read(tmp_path: Path, protocol: int) -> None:
    model = pn.Sequential(pn.Linear(2, 3))
    checkpoint = {"model": model.state_dict(), "epoch": 3}
    paddle.save(checkpoint, str(tmp_path / "a.pdparams"), protocol=protocol)
    convert_weights(tmp_path / "a.pdparams", tmp_path / "b.pth", entry="model")
    loaded = torch.load(tmp_path / "b.pth", weights_only=True)
    np.testing.assert_array_equal(loaded["0.weight"].numpy(), model[0].weight.numpy().T)


class Evil:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('it ran')",)


@pytest.mark.parametrize("name", ["evil.pdparams", "evil.pth"])
def test_file_that_would_run_code_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".pth"):
        torch.save({"a": Evil()}, path)
    else:
        path.write_bytes(pickle.dumps({"a": Evil()}, protocol=4))
    with pytest.raises(UntrustedFile, match="not run"):
        convert_weights(path, tmp_path / "b.safetensors")


@pytest.mark.parametrize("name", ["cut.pdparams", "cut.pth", "cut.safetensors"])
def test_cut_file_is_unreadable(tmp_path: Path, name: str) -> None:
    whole = tmp_path / ("whole" + Path(name).suffix)
    if name.endswith(".pdparams"):
        paddle.save(in_paddle().state_dict(), str(whole))
    elif name.endswith(".pth"):
        torch.save(in_torch().state_dict(), whole)
    else:
        torch.save(in_torch().state_dict(), tmp_path / "a.pth")
        convert_weights(tmp_path / "a.pth", whole)
    (tmp_path / name).write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(ReprodLogError):
        convert_weights(tmp_path / name, tmp_path / "out.pdparams")
    assert not (tmp_path / "out.pdparams").exists()


def test_missing_file_and_unknown_ending_are_said(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="no file"):
        convert_weights(tmp_path / "none.pth", tmp_path / "b.pdparams")
    with pytest.raises(UsageError, match="ends with one of"):
        convert_weights(tmp_path / "a.h5", tmp_path / "b.pdparams")


def test_file_of_another_model_is_refused(tmp_path: Path) -> None:
    torch.save(tn.Linear(3, 2).state_dict(), tmp_path / "a.pth")
    with pytest.raises(TransferError, match="lacks 8 tensors: '0.weight'"):
        convert_weights(tmp_path / "a.pth", tmp_path / "b.pdparams", source_model=in_torch(), target_model=in_paddle())
