"""Watch: models that are values in a loop of the user's own; what they give, get back and become is called back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

from reprod_log.frameworks.contract import Listener
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.trees import Engine, Model, Taps
from reprod_log.frameworks.values import Place


class Watch:
    """One listener, from the first call of a model to the updates."""

    def __init__(self, listener: Listener, engine: Engine, taps: type[Taps], wanted: Mapping[Any, str] | None) -> None:
        self.listener, self.engine = listener, engine
        self._taps_class = taps
        self._names: dict[Any, str] = dict(wanted or {})
        """Of the outermost models, by how they are known again."""
        self._only = wanted is not None
        self.models: dict[str, Model] = {}
        """Those that report, by name."""
        self._described: set[str] = set()
        self.taps: Taps | None = None
        """Those of the outermost call that is under way."""
        self._name, self._number = "", 0
        self._numbers = count()
        self.made = 0
        """How many outermost calls there were."""

    def named(self, signature: Any, title: str, model: Callable[[], Model]) -> str | None:
        """The name of a model that is listened to, None for any other. The first that is found needs none.

        Compiled functions put models together anew, so they are known by a signature.
        """
        if signature not in self._names and not self._only:
            plain = title if self._names else ""
            self._names[signature] = plain if plain not in self._names.values() else f"{plain}{len(self._names)}"
        name = self._names.get(signature)
        if name is not None and name not in self.models:
            self.models[name] = model()
            self.listener.know(self.models[name].about)
            self.listener.found(name, [])
        return name

    def outermost(self, name: str, args: Any, kwargs: Any, call: Callable[[Taps], Any]) -> Any:
        """What the call of a model gives."""
        self._number, self.made = next(self._numbers), self.made + 1
        for role, leaf in (*self.engine.tensors_in(args, "input"), *self.engine.tensors_in(kwargs, "input")):
            self.put("data", name, leaf, role, self._number)
        self._name, self.taps = name, self._taps_class(self.engine, live=self._marked)
        try:
            output = call(self.taps)
            self.listener.attempt(self._describe, name, self.taps)
        finally:
            self.taps = None
        return output

    def _describe(self, name: str, taps: Taps) -> None:
        """Modules may be known after a call only."""
        infos = self.models[name].built(taps.modules).infos()
        new = [one for one in infos if below(name, one.path) not in self._described]
        self._described |= {below(name, one.path) for one in new}
        if new:
            self.listener.found(name, new)

    def _marked(self, taps: Taps, place: Place, leaf: Any) -> Any:
        marked = self.listener.attempt(self._emitted, taps, place, leaf)
        return leaf if marked is None else marked

    def _emitted(self, taps: Taps, place: Place, leaf: Any) -> Any:
        path, number, role = place

        def receiver(phase: str) -> Callable[..., None]:
            return partial(
                self.listener.report,
                phase,
                below(self._name, path),
                role=role,
                number=(self._number, number),
                layer_type=taps.types[path],
            )

        if role.startswith("output") and self.engine.is_floating(leaf):
            return self.engine.tapped(receiver("forward"), receiver("backward"), leaf)
        self.engine.emit(receiver("forward"), leaf)
        return leaf

    def put(self, phase: str, path: str, tensor: Any, role: str = "", number: int = 0) -> None:
        receive = partial(self.listener.report, phase, path, role=role, number=number)
        self.listener.attempt(self.engine.emit, receive, tensor)

    def put_all(self, phase: str, name: str, tensors: Mapping[str, Any], role: str = "") -> None:
        for path, one in tensors.items():
            self.put(phase, below(name, path), one, role)


def below(name: str, path: str) -> str:
    """A path inside a model of this name."""
    return join(name, path) if path else name
