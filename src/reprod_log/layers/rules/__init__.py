"""One file per kind or family of layers, found by listing the folder. A file has `RULES`, a tuple of Rule."""

import importlib
import pkgutil
from functools import cache

from reprod_log.layers.rule import Layout, Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of every file in this folder, in the order of the file names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(rule for module in modules for rule in module.RULES)


@cache
def rule_table() -> dict[tuple[str, str], tuple[Rule, Layout]]:
    """Rule and layout by family and class name."""
    return {
        (layout.family, class_name): (rule, layout)
        for rule in all_rules()
        for layout in rule.layouts
        for class_name in layout.classes
    }
