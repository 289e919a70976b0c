"""Where a run comes from: the script and what it consists of, its place among several processes, its modules."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import xxhash

from reprod_log.capture.guard import Guard
from reprod_log.capture.staging import Stage
from reprod_log.errors import UsageError, near_pattern
from reprod_log.frameworks import Framework
from reprod_log.frameworks.hooks import Undo
from reprod_log.frameworks.installed import variables_of
from reprod_log.frameworks.module_tree import Node, Tree
from reprod_log.messages import Code, Message, Name, Names, message
from reprod_log.recording import Provenance, current_provenance
from reprod_log.recording.program import Program, is_plain
from reprod_log.recording.shards import MESH_FACT, MeshPlace, counted_through

_RANK_VARIABLES = (("RANK", "WORLD_SIZE"), ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"))
_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES"})
"""Variables that differ from one command to the next and say nothing of a program."""
_LIBRARIES = tuple(
    sorted({os.path.realpath(path) for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))})
)
_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, also of another interpreter: an environment may be layered on a second one."""
_OURS = os.path.realpath(Path(__file__).parents[1])

_DRAWN_SEEDS = 2**32
_BETWEEN = (__name__, Guard.__module__, "os", "collections.abc", "_collections_abc")
"""What stands between a reader of the environment and us."""


def rank_and_size() -> tuple[int, int]:
    """Which of how many processes this is, as `torchrun` or `paddle.distributed.launch` say it: (0, 1) when alone."""
    for rank_name, size_name in _RANK_VARIABLES:
        rank, size = os.environ.get(rank_name, ""), os.environ.get(size_name, "")
        if rank.isdigit() and size.isdigit() and int(size) > 1:
            return int(rank), int(size)
    return 0, 1


def path_of_rank(path: str | Path, rank: int, size: int) -> Path:
    """Where this process writes: the path itself when alone, else a part of its own (`rank0` …)."""
    path = Path(path)
    if size == 1:
        return path
    return path.with_name(f"{path.stem}.rank{rank}{path.suffix}") if path.suffix else path / f"rank{rank}"


def provenance_of(
    framework: Framework, tree: Tree, optimizers: Mapping[str, Any], stage: Stage, mesh: Any = None
) -> Provenance:
    """What is known of a run when it starts."""
    state = list(tree.state())
    facts = [framework.tensors.facts(tensor) for _, tensor in state]
    dtypes, devices = Counter(one.dtype for one in facts), Counter(one.device for one in facts)
    process = framework.eager
    return current_provenance(
        framework=framework.name,
        framework_version=framework.version,
        device=_most(devices),
        dtype=_most({name: count for name, count in dtypes.items() if "float" in name} or dtypes),
        seeds=process.seeds(),
        threads=process.threads(),
        weights_hash=_digest(f"{path} {stage.digest(tensor)}" for path, tensor in state) if state else "",
        extra=extra_facts(framework, tree, optimizers, mesh),
    )


def extra_facts(framework: Framework, tree: Tree, optimizers: Mapping[str, Any], mesh: Any = None) -> dict[str, Any]:
    """What has no field of its own: the place among the processes, shared modules and weights, the optimizers."""
    rank, size = rank_and_size()
    facts: dict[str, Any] = {"rank": rank, "world_size": size}
    places = _places(framework, tree, mesh) if size > 1 else ()
    if places:
        facts[MESH_FACT] = [place.to_dict() for place in places]
    facts.update({name: names for name, names in tree.second_names().items() if names})
    if optimizers:
        facts["optimizers"] = {name: _described(framework, tree, one) for name, one in optimizers.items()}
    return facts


def _places(framework: Framework, tree: Tree, mesh: Any) -> tuple[MeshPlace, ...]:
    """Where this process stands on the named axes of the run; () when they are unknown.

    Axes of size one distinguish nothing and are omitted.
    """
    rank, size = rank_and_size()
    if isinstance(mesh, Mapping):
        wrong = [name for name, length in mesh.items() if not isinstance(length, int) or length < 1]
        if wrong or prod(mesh.values()) != size:
            raise UsageError(
                f"mesh={dict(mesh)!r} does not hold the {size} processes of this run: give the sizes of its axes, the "
                'outermost first, e.g. {"dp": 2, "tp": 2}'
            )
        found: tuple[MeshPlace, ...] | None = counted_through(mesh, rank)
    else:
        modules = [*tree.wrappers, *(node.module for node in tree.nodes)]
        tensors = [slot.tensor for slot in tree.slots]
        found = framework.eager.mesh(mesh, modules, tensors)
    if found is None:
        raise UsageError(
            f"mesh must be {framework.name}'s own mesh of processes or the sizes of its axes by name, not a "
            f"{type(mesh).__name__}"
        )
    found = tuple(place for place in found if place.axis.size > 1)
    if found and prod(place.axis.size for place in found) != size:
        if mesh is None:
            # The tensors lie on some of the processes only; they do not tell about the others.
            return ()
        raise UsageError(f"the mesh has {prod(place.axis.size for place in found)} places, but there are {size} ranks")
    return found


def _described(framework: Framework, tree: Tree, optimizer: Any) -> dict[str, Any]:
    """An optimizer's settings, with the paths of its parameters in its order ('' for those of no watched model)."""
    slots = [tree.slot_of(parameter) for parameter in framework.eager.parameters_of(optimizer)]
    paths = ["" if slot is None else slot.path for slot in slots]
    return {**framework.eager.describe(optimizer), "parameters": paths}


class DataHash:
    """One hash of all inputs that were recorded, in order; '' when there were none."""

    def __init__(self) -> None:
        self._hasher: xxhash.xxh3_128 | None = None

    def update(self, hashes: Iterable[str]) -> None:
        for one in hashes:
            self._hasher = self._hasher or xxhash.xxh3_128()
            self._hasher.update(one.encode() + b"\n")

    def __str__(self) -> str:
        return "" if self._hasher is None else self._hasher.hexdigest()


def _digest(lines: Any) -> str:
    hasher = xxhash.xxh3_128()
    for line in lines:
        hasher.update(line.encode() + b"\n")
    return hasher.hexdigest()


def _most(counts: Mapping[str, int]) -> str:
    return max(counts, key=lambda name: counts[name]) if counts else ""


def silence_notes(tree: Tree, called: Collection[Node], unseen: Collection[Node]) -> list[Message]:
    """A note for modules with parameters that were never called by themselves although the run went on around them.

    An attention or recurrent layer uses its children's weights in one fused call, so the children have no outputs of
    their own; their parameters and gradients are recorded all the same. Those that ran `unseen` have their own note.
    """
    if not called:
        return []
    inside: dict[Node, list[str]] = {}
    unused: list[str] = []
    for node in tree.nodes:
        if node in called or node in unseen or not node.can_record or not node.has_parameters or node.is_list:
            continue
        parent = next((above for above in _ancestors(node) if above in called), None)
        if parent is not None and parent.kind:
            inside.setdefault(parent, []).append(node.path)
        else:
            unused.append(node.path)
    notes = [
        message("note.capture.used_directly", paths=Names(paths), parent=Name(parent.path), type=parent.type)
        for parent, paths in inside.items()
    ]
    if unused:
        notes.append(message("note.capture.never_called", paths=Names(unused)))
    return notes


def idle_notes(patterns: Collection[str], names: Collection[str]) -> list[Message]:
    """A note for every pattern that fits none of the names of layers and parameters: it may be misspelt."""
    notes = []
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in names):
            continue
        near = near_pattern(pattern, dict.fromkeys(name for name in names if name))
        notes.append(
            message("note.capture.no_match.near", pattern=Code(repr(pattern)), names=Names(near))
            if near
            else message("note.capture.no_match", pattern=Code(repr(pattern)))
        )
    return notes


def caveat_notes(tree: Tree, called: Collection[Node], caveat: Callable[[Any], str]) -> list[Message]:
    """A note for each kind of layer that listening changes."""
    found: dict[tuple[str, str], list[str]] = {}
    for node in tree.nodes:
        id = caveat(node.content) if node in called else ""
        if id:
            found.setdefault((id, node.type), []).append(node.path)
    return [message(id, paths=Names(paths), type=type) for (id, type), paths in found.items()]


def _ancestors(node: Node) -> list[Node]:
    found = []
    above = node.parent
    while above is not None:
        found.append(above)
        above = above.parent
    return found


# ---- the program ----------------------------------------------------------------------------------------------------


class ScriptFiles:
    """The user's own modules that a script imports, and the environment variables that it and they read."""

    def __init__(self) -> None:
        self._before = set(sys.modules)
        self._read: dict[str, str] = {}

    def watch_environment(self, guard: Guard) -> Undo:
        """Note which variables are read from now on. `os.environ` stays the same object, and answers the same."""
        kind, read = type(os.environ), self._read

        def noted(name: str, value: str) -> None:
            if name not in read and name not in _OF_THE_SHELL and _is_read_by_the_user():
                read[name] = _content_digest(value.encode(errors="surrogateescape"))

        note = guard(noted)

        class Environment(kind):  # type: ignore[misc, valid-type]
            def __getitem__(self, name: str) -> str:
                try:
                    value: str = super().__getitem__(name)
                except KeyError:
                    note(name, "")
                    raise
                note(name, value)
                return value

        os.environ.__class__ = Environment

        def undo() -> None:
            os.environ.__class__ = kind

        return undo

    def modules(self) -> dict[str, str]:
        """The content of every module of the user's own that was imported since."""
        return _own({name: module for name, module in list(sys.modules.items()) if name not in self._before})

    @property
    def environment(self) -> Mapping[str, str]:
        return self._read


def program_of(framework: Framework, started: Program, files: ScriptFiles) -> Program:
    """What has run, now that it has; `started` is what was known before."""
    known = _known_of(framework)
    # A larger one was drawn by the framework, because the script sets none: the numbers tell whether it matters.
    seeds = {} if framework.parts is None else framework.parts.seeds()
    drawn = {f"seed of {name}": number for name, number in seeds.items() if number < _DRAWN_SEEDS}
    return replace(
        started,
        framework=known.framework,
        modules=files.modules(),
        environment={**files.environment, **known.environment},
        settings={**known.settings, **drawn},
    )


def running_program(framework: Framework) -> Program:
    """The program that calls us now, as far as it is known from inside; seeds may change at any time."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    script = main if isinstance(main, str) and _is_of_the_user(main) else ""
    modules = {name: module for name, module in list(sys.modules.items()) if name != "__main__"}
    return replace(
        _known_of(framework),
        script=file_digest(script) if script else "",
        arguments=tuple(sys.argv[1:]) if script else (),
        modules=_own(modules),
    )


def _known_of(framework: Framework) -> Program:
    """What a framework and its variables are set to."""
    variables = {name: _content_digest(os.environ[name].encode()) for name in variables_of(framework.name, os.environ)}
    switches = {one.name: one.read() for one in ([] if framework.parts is None else framework.parts.switches())}
    return Program(
        framework=f"{framework.name} {framework.version}",
        environment=variables,
        settings={name: value for name, value in switches.items() if is_plain(value) and "thread" not in name.lower()},
    )


def _own(modules: Mapping[str, Any]) -> dict[str, str]:
    """The content of those of the modules that are the user's own."""
    found = {}
    for name, module in modules.items():
        # A module that loads itself when an attribute is looked up must not begin to because of us. Its true type is
        # asked: the libraries of cffi claim to be modules, and have no names of their own.
        known = object.__getattribute__(module, "__dict__") if issubclass(type(module), ModuleType) else {}
        path = known.get("__file__")
        if isinstance(path, str) and _is_of_the_user(path):
            found[name] = file_digest(path)
    return found


def file_digest(path: str | Path) -> str:
    """A hash of a file's content; '' when it cannot be read."""
    try:
        return _content_digest(Path(path).read_bytes())
    except OSError:
        return ""


def _content_digest(content: bytes) -> str:
    return xxhash.xxh3_128(content).hexdigest() if content else ""


@cache
def _is_of_the_user(path: str) -> bool:
    place = os.path.realpath(path)
    return not place.startswith((*_LIBRARIES, _OURS)) and _PACKAGES.isdisjoint(Path(place).parts)


def _is_read_by_the_user() -> bool:
    """Whether the code that reads a variable is the user's own."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    path = frame.f_code.co_filename
    return not path.startswith("<") and _is_of_the_user(path)
