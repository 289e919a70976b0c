"""What a reader should know of the modules: which never spoke, and which run differently when listened to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from typing import Any

from reprod_log.errors import listed, near_pattern
from reprod_log.frameworks.module_tree import Node, Tree


def silence_notes(tree: Tree, heard: Collection[Node]) -> list[str]:
    """A note for modules with parameters that were never called by themselves although the run went on around them.

    An attention or recurrent layer uses its children's weights in one fused call, so the children have no outputs of
    their own; their parameters and gradients are recorded all the same.
    """
    if not heard:
        return []
    inside: dict[Node, list[str]] = {}
    unused: list[str] = []
    for node in tree.nodes:
        if node in heard or not node.audible or not node.has_parameters:
            continue
        parent = next((above for above in _ancestors(node) if above in heard), None)
        if parent is not None and parent.kind:
            inside.setdefault(parent, []).append(node.path)
        else:
            unused.append(node.path)
    notes = [
        f"{listed(paths)} inside {parent.path!r} ({parent.type}) did not run as modules of their own: the layer uses "
        "their weights directly, so only its own output is recorded"
        for parent, paths in inside.items()
    ]
    if unused:
        notes.append(f"never called as modules: {listed(unused)}")
    return notes


def idle_notes(patterns: Collection[str], names: Collection[str]) -> list[str]:
    """A note for every pattern that fits none of the names of layers and parameters: it may be misspelt."""
    notes = []
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in names):
            continue
        near = near_pattern(pattern, dict.fromkeys(name for name in names if name))
        notes.append(
            f"no layer or parameter fits {pattern!r}; near it: {listed(near)}"
            if near
            else f"no layer or parameter fits {pattern!r}"
        )
    return notes


def caveat_notes(tree: Tree, heard: Collection[Node], caveat: Callable[[Any], str]) -> list[str]:
    """A note for each kind of layer that listening changes."""
    found: dict[str, list[str]] = {}
    for node in tree.nodes:
        said = caveat(node.content) if node in heard else ""
        if said:
            found.setdefault(f"({node.type}): {said}", []).append(node.path or "the model")
    return [f"{listed(paths)} {said}" for said, paths in found.items()]


def _ancestors(node: Node) -> list[Node]:
    found = []
    above = node.parent
    while above is not None:
        found.append(above)
        above = above.parent
    return found
