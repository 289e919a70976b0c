"""The rules as data: what the folder must hold, that every recipe can be undone."""

import importlib
import pkgutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprod_log.layers import rules
from reprod_log.layers.rule import Rule
from reprod_log.layers.rules import all_rules
from reprod_log.layers.transform import Transform

FILES = [module.name for module in pkgutil.iter_modules(rules.__path__)]


@pytest.mark.parametrize("name", FILES)
def test_file_in_the_rules_folder_has_rules(name: str) -> None:
    found = importlib.import_module(f"reprod_log.layers.rules.{name}").RULES
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
