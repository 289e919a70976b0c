"""Graph: what depends on what in a recorded program: its batch, its weights, who makes and who uses a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from reprod_log.frameworks.contract import Program
from reprod_log.pairing.anchors import view_of


@dataclass
class Graph:
    """A program with the facts that follow from its kernels."""

    program: Program
    names: tuple[str, ...] = ()
    """The weights; a weight's place here is its bit in `behind`."""
    weights: dict[int, str] = field(default_factory=dict)
    number: dict[str, int] = field(default_factory=dict)
    data: list[bool] = field(default_factory=list)
    """Whether a tensor depends on the batch."""
    behind: list[int] = field(default_factory=list)
    """The weights that a tensor depends on, one bit each."""
    maker: dict[int, int] = field(default_factory=dict)
    """The kernel that made a tensor."""
    users: dict[int, list[int]] = field(default_factory=dict)
    last_use: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> Graph:
        weights = program.weights
        graph = cls(program, tuple(dict.fromkeys(weights.values())))
        graph.weights = dict(weights)
        for number, name in weights.items():
            graph.number.setdefault(name, number)
        size = len(program.arrays)
        graph.data, graph.behind = [False] * size, [0] * size
        bits = {name: 1 << bit for bit, name in enumerate(graph.names)}
        for number, name in weights.items():
            # A part of a weight that is cut out again for every use is one weight under several numbers.
            graph.behind[number] = bits[name]
        given = frozenset(program.given.values())
        for number in given:
            graph.data[number] = True
        for place, kernel in enumerate(program.kernels):
            for number in kernel.inputs:
                graph._follow(number)
                graph.users.setdefault(number, []).append(place)
                graph.last_use[number] = place
            data = any(graph.data[number] for number in kernel.inputs)
            behind = 0
            for number in kernel.inputs:
                behind |= graph.behind[number]
            for number in kernel.outputs:
                if number not in given and number not in weights:
                    graph.data[number], graph.behind[number] = data, behind
                    graph.maker[number] = place
        end = len(program.kernels)
        for number in program.results.values():
            graph._follow(number)
            graph.last_use[number] = end
        return graph

    def _follow(self, number: int) -> None:
        """A tensor that was written through another one depends on what it was before."""
        before = self.program.written.get(number)
        if before is not None and number not in self.maker and not self.data[number]:
            self.data[number], self.behind[number] = self.data[before], self.behind[before]

    def kept_operands(self) -> frozenset[int]:
        """Further results of kernels that are what these were given, kept for the gradient: no evidence of anything."""
        arrays = self.program.arrays
        return frozenset(
            number
            for kernel in self.program.kernels
            for number in kernel.outputs[1:]
            if number not in self.last_use
            and any(
                arrays[one].size == arrays[number].size and view_of(arrays[one], arrays[number]) is not None
                for one in kernel.inputs
            )
        )

    def bits(self, mask: int) -> Iterator[str]:
        while mask:
            low = mask & -mask
            yield self.names[low.bit_length() - 1]
            mask ^= low

    def weights_into(self, place: int) -> int:
        """The weights that reach a kernel without going through the batch: those that it uses itself."""
        mask = 0
        for number in self.program.kernels[place].inputs:
            if not self.data[number]:
                mask |= self.behind[number]
        return mask

    def uses_data(self, place: int) -> bool:
        return any(self.data[number] for number in self.program.kernels[place].inputs)

    def data_inputs(self, place: int) -> list[int]:
        return [number for number in self.program.kernels[place].inputs if self.data[number]]
