"""Steps: which training step the program is in."""

from __future__ import annotations

from collections.abc import Hashable


class Steps:
    """Counts steps by what the program does.

    With optimizers, a step is everything up to an update: it ends when an optimizer has stepped, and the next one
    begins with the next call of a model or the next logged batch. So a loss logged after `optimizer.step()` still
    belongs to the step it was computed in; several batches accumulated into one update are one step; two optimizers
    that step one right after the other are one step; and a GAN that updates its discriminator and then its generator
    has two, as it has when the two take turns. `after` names the one optimizer whose update ends a step instead.

    Without optimizers every call of a model is a step of its own; several models, or several parts of one, that are
    called in turn share a step, until one of them is called again.

    Inside `hold` … `release` only these two count.
    """

    def __init__(self, *, has_optimizers: bool, after: str | None = None) -> None:
        self.number = 0
        self.has_optimizers = has_optimizers or after is not None
        self.after = after
        self._updated = False
        self._held = False
        self._called: set[Hashable] = set()
        self._busy = False

    @property
    def busy(self) -> bool:
        """Whether anything has happened in this step."""
        return self._busy

    def ends_before_call(self, module: Hashable) -> bool:
        """Whether the step is over now that `module` is about to be called from outside."""
        if self._held:
            return False
        return self._updated if self.has_optimizers else module in self._called

    def ends_before_data(self) -> bool:
        """Whether the step is over now that a new batch is logged."""
        return not self._held and self._updated

    def called(self, module: Hashable) -> None:
        self._called.add(module)
        self._busy = True

    def touched(self) -> None:
        """Something was recorded."""
        self._busy = True

    def updated(self, optimizer: str) -> None:
        """The optimizer has stepped (or would have, had its gradients been finite)."""
        self._busy = True
        if self.after is None or optimizer == self.after:
            self._updated = True

    def advance(self) -> None:
        self.number += 1
        self._updated = self._busy = False
        self._called.clear()

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
