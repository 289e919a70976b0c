"""The rules as data: what the folder must hold, that every recipe can be undone, and views without a framework."""

import importlib
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprod_log.transfer import rules
from reprod_log.transfer.layouts import find_view
from reprod_log.transfer.rule import Rule
from reprod_log.transfer.rules import all_rules
from reprod_log.transfer.transform import Transform

FILES = [module.name for module in pkgutil.iter_modules(rules.__path__)]


@pytest.mark.parametrize("name", FILES)
def test_file_in_the_rules_folder_has_rules(name: str) -> None:
    found = importlib.import_module(f"reprod_log.transfer.rules.{name}").RULES
    assert found
    for rule in found:
        assert isinstance(rule, Rule)
        assert {layout.family for layout in rule.layouts} >= {"torch", "paddle"}
        assert all(layout.family in ("torch", "paddle", "paddle.compat") for layout in rule.layouts)


def test_no_class_has_two_rules() -> None:
    claimed = [(layout.family, name) for rule in all_rules() for layout in rule.layouts for name in layout.classes]
    assert len(claimed) == len(set(claimed))
    assert len({rule.kind for rule in all_rules()}) == len(all_rules())


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.kind)
def test_families_of_a_rule_share_their_canonical_tensors(rule: Rule) -> None:
    per_family = [{part for map_ in layout.maps for part in map_.canonical} for layout in rule.layouts]
    # Each family may lack some (paddle's attention has no bias_k), but none may have a word of its own.
    everything = set().union(*per_family)
    assert per_family[0] | {"weight_hr"} >= everything


@given(st.data())
def test_transform_is_undone_by_its_inverse(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = data.draw(st.one_of(st.none(), st.permutations(range(len(shape))).map(tuple)))
    transform = Transform(axes, data.draw(st.booleans()), data.draw(st.sampled_from([1, 2, 3])))
    array = np.arange(np.prod(shape)).reshape(shape)
    if not transform.fits(shape):
        return
    parts = transform.split(array)
    assert {part.shape for part in parts} == {transform.part_shape(shape)}
    np.testing.assert_array_equal(transform.join(parts, shape), array)


def test_linear_gradient_of_paddle_is_seen_in_the_layout_of_torch() -> None:
    view = find_view("torch.nn.modules.linear.Linear", "paddle.nn.layer.common.Linear", "weight")
    assert view is not None
    assert str(view) == "transposed"
    gradient = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(view.apply([gradient], shape=(4, 3)), gradient.T)


def test_linear_of_compat_is_comparable_as_it_stands() -> None:
    view = find_view("torch.nn.Linear", "paddle.compat.nn.Linear", "weight")
    assert view is not None
    assert view.unchanged
    assert str(view) == "as is"


def test_packed_attention_is_joined_from_three() -> None:
    names = ["q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight"]
    view = find_view(
        "torch.nn.MultiheadAttention", "paddle.nn.MultiHeadAttention", "in_proj_weight", candidate_names=names
    )
    assert view is not None
    assert view.candidate == ("q_proj.weight", "k_proj.weight", "v_proj.weight")
    parts = [np.full((2, 2), n) + np.array([[0.0, 0.5], [0.1, 0.2]]) for n in range(3)]
    np.testing.assert_array_equal(view.apply(parts, shape=(6, 2)), np.concatenate([part.T for part in parts]))


def test_separate_attention_is_cut_from_packed() -> None:
    view = find_view(
        "paddle.nn.MultiHeadAttention",
        "torch.nn.MultiheadAttention",
        "k_proj.weight",
        candidate_names=["in_proj_weight", "out_proj.weight"],
    )
    assert view is not None
    assert view.candidate == ("in_proj_weight",)
    assert str(view) == "transposed, part 2 of 3"
    packed = np.arange(12.0).reshape(6, 2)
    np.testing.assert_array_equal(view.apply([packed], shape=(2, 2)), packed[2:4].T)


@pytest.mark.parametrize(
    ("reference", "candidate", "name", "partner"),
    [
        ("torch.nn.BatchNorm2d", "paddle.nn.BatchNorm2D", "running_mean", "_mean"),
        ("paddle.nn.BatchNorm2D", "torch.nn.SyncBatchNorm", "_variance", "running_var"),
        ("torch.nn.InstanceNorm1d", "paddle.nn.InstanceNorm1D", "weight", "scale"),
        ("torch.nn.LSTM", "paddle.nn.LSTM", "weight_hr_l1_reverse", "1.cell_bw.weight_ho"),
    ],
)
def test_tensor_has_another_name_in_the_other_framework(
    reference: str, candidate: str, name: str, partner: str
) -> None:
    view = find_view(reference, candidate, name, candidate_names=[partner])
    assert view is not None
    assert view.candidate == (partner,)


def test_recurrent_weight_is_found_under_either_of_its_names() -> None:
    for names in (["weight_ih_l0"], ["0.cell.weight_ih"], ["0.cell_fw.weight_ih"]):
        view = find_view("torch.nn.LSTM", "paddle.nn.LSTM", "weight_ih_l0", candidate_names=names)
        assert view is not None
        assert view.candidate == tuple(names)


def test_weight_norm_is_found_under_all_its_names() -> None:
    names = ["weight_g", "weight_v", "bias"]
    own = ["parametrizations.weight.original0", "parametrizations.weight.original1", "bias"]
    view = find_view("torch.nn.Linear", "paddle.nn.Linear", own[1], reference_names=own, candidate_names=names)
    assert view is not None
    assert (view.candidate, str(view)) == (("weight_v",), "transposed")


@pytest.mark.parametrize(
    ("reference", "candidate", "name"),
    [
        ("torch.nn.Linear", "paddle.nn.Conv2D", "weight"),
        ("my_package.Linear", "paddle.nn.Linear", "weight"),
        ("torch.nn.Linear", "paddle.nn.Linear", "no_such_name"),
        ("torch.nn.MultiheadAttention", "paddle.nn.MultiHeadAttention", "bias_k"),
    ],
)
def test_there_is_no_view_where_layers_do_not_correspond(reference: str, candidate: str, name: str) -> None:
    assert find_view(reference, candidate, name) is None


def test_layouts_need_no_framework() -> None:
    program = "import reprod_log.transfer.layouts, reprod_log.transfer, sys; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in answer.stdout.split()}
    assert not loaded & {"torch", "paddle"}
    assert "numpy" in loaded
