"""Live ports built to pass although they are wrong, each a change of one small model, its loss, optimizer or step.

The reference and the port are the same model but for the change, so that names, order and weights never give it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

RNG = np.random.default_rng(0)
STEPS = 4
INPUTS = [{"x": RNG.normal(size=(8, 6)).astype("f4")} for _ in range(STEPS)]
TARGETS = [RNG.normal(size=(8, 3)).astype("f4") for _ in range(STEPS)]

Change = Callable[["Net", Any], Any]
Make = Callable[[], Any]
FORWARD_ONLY: dict[str, Any] = {"targets": None, "loss": None, "optimizer": None}


def squares(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets) ** 2).mean()


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


class Backward(torch.autograd.Function):
    """Gives what it is given, and a gradient of one's own."""

    @staticmethod
    def forward(ctx: Any, x: Any, change: Any) -> Any:
        ctx.change = change
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.change(ctx.saved_tensors[0], gradients[0]), None


def backward(change: Callable[[Any, Any], Any]) -> Change:
    return lambda net, x: Backward.apply(x, change)


def late(calls: int, change: Change) -> Change:
    """The change from so many calls on."""
    return lambda net, x: change(net, x) if net.calls > calls else x


class Net(nn.Module):
    """Two layers, a residual one and a head; changes may stand before, in the middle and at the end."""

    def __init__(
        self, middle: Change | None = None, *, start: Change | None = None, end: Change | None = None,
        drop: float = 0.0, batch: bool = False, eps: float = 1e-5, momentum: float | None = 0.1,
    ) -> None:  # fmt: skip
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8, eps, momentum) if batch else nn.LayerNorm(8, eps)
        self.act, self.drop = nn.Tanh(), nn.Dropout(drop)
        self.start, self.middle, self.end = start, middle, end
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        x = x if self.start is None else self.start(self, x)
        h = self.drop(self.act(self.norm(self.one(x))))
        h = h if self.middle is None else self.middle(self, h)
        y = self.head(h + self.act(self.two(h)))
        return y if self.end is None else self.end(self, y)


class Tied(Net):
    """A layer more, which shares its weight with another one or begins with the same."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.three = nn.Linear(8, 8, bias=False)
        self.three.weight = self.two.weight if tied else nn.Parameter(self.two.weight.detach().clone())

    def forward(self, x: Any) -> Any:
        return self.head(self.three(self.act(self.two(self.act(self.norm(self.one(x)))))))


@dataclass(frozen=True)
class Port:
    """Two models and the options of `align_models`."""

    candidate: Make
    reference: Make = Net
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def given(self) -> dict[str, Any]:
        return {"targets": TARGETS, "loss": squares, "optimizer": (sgd, sgd), **self.options}


def ports() -> list[dict[str, Port]]:
    """Every pair by its name, theme by theme."""
    themes = (_backward, _forward, _modes, _frozen, _optimizers, _schedules, _losses, _steps, _several, _options)
    return [dict(theme()) for theme in themes]


Named = Iterator[tuple[str, Port]]

GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "doubled": lambda x, g: 2 * g,
    "zero": lambda x, g: 0 * g,
    "negated": lambda x, g: -g,
    "1e-3 off": lambda x, g: g * 1.001,
    "1e-5 off": lambda x, g: g * 1.00001,
    "clipped": lambda x, g: g.clamp(-1e-3, 1e-3),
    "without its mean": lambda x, g: g - g.mean(),
    "without the first sample": lambda x, g: torch.cat([0 * g[:1], g[1:]]),
    "with the last feature doubled": lambda x, g: torch.cat([g[:, :-1], 2 * g[:, -1:]], 1),
    "of the next sample": lambda x, g: g.roll(1, 0),
    "where the value is small": lambda x, g: g * (x.abs() < 0.5),
    "where the value is not large": lambda x, g: g * (x < 0.9),
    "rounded to half precision": lambda x, g: g.half().to(g.dtype),
}


def _backward() -> Named:
    for name, change in GRADIENTS.items():
        yield f"backward {name}", Port(lambda change=change: Net(backward(change)))
        yield f"backward {name}, without a loss", Port(lambda change=change: Net(backward(change)), Net, FORWARD_ONLY)
    doubled = backward(GRADIENTS["doubled"])
    yield "backward of the output, without a loss", Port(lambda: Net(end=doubled), Net, FORWARD_ONLY)
    yield "backward of the input, without a loss", Port(lambda: Net(start=doubled), Net, FORWARD_ONLY)
    yield "graph cut", Port(lambda: Net(lambda net, h: h.detach()))
    yield "graph cut, without a loss", Port(lambda: Net(lambda net, h: h.detach()), Net, FORWARD_ONLY)
    yield "backward from the second call on", Port(lambda: Net(late(1, doubled)))
    yield "backward in the last call", Port(lambda: Net(late(STEPS - 1, doubled)))
    for share in (1.001, 1.05):
        narrow = backward(lambda x, g, share=share: g * (share if g.dtype == torch.float32 else 1))
        yield f"backward {share} in float32 only", Port(lambda narrow=narrow: Net(narrow))


def _forward() -> Named:
    wrong: dict[str, Change] = {
        "from the second call on": late(1, lambda net, h: h * 1.01),
        "from the third call on": late(2, lambda net, h: h * 1.01),
        "by noise": lambda net, h: h + 1e-3 * torch.randn_like(h),
        "by little noise": lambda net, h: h + 1e-6 * torch.randn_like(h),
        "in float32 only": lambda net, h: h * (1.001 if h.dtype == torch.float32 else 1),
        "in float64 only": lambda net, h: h * (1.001 if h.dtype == torch.float64 else 1),
        "for one sample": lambda net, h: torch.cat([h[:1] * 1.01, h[1:]]),
        "where values are large": lambda net, h: h.clamp(-0.95, 0.95),
        "while it trains": lambda net, h: h * 1.01 if net.training else h,
        "for eight samples": lambda net, h: h * 1.01 if len(h) == 8 else h,
        "because its weights shrink": lambda net, h: (net.two.weight.data.mul_(0.999), h)[1],
    }
    for name, change in wrong.items():
        yield f"wrong {name}", Port(lambda change=change: Net(change))
    normed: Change = lambda net, y: (net.one.weight.data.div_(net.one.weight.data.norm()), y)[1]  # noqa: E731
    yield "weights normed after the call", Port(lambda: Net(end=normed))
    yield "input changed in place", Port(lambda: Net(start=lambda net, x: x.mul_(1.01)))
    yield "output detached", Port(lambda: Net(end=lambda net, y: y.detach() + 0 * y))
    yield "output rounded to half", Port(lambda: Net(end=lambda net, y: y.half().to(y.dtype)))
    for name, end in {"half": lambda net, y: y.half(), "flat": lambda net, y: y.reshape(-1), "turned": lambda net, y: y.T}.items():  # fmt: skip  # noqa: E501
        yield f"output {name}", Port(lambda end=end: Net(end=end), Net, FORWARD_ONLY)
    yield "NaN on both sides", Port(*[lambda: Net(end=lambda net, y: y * float("nan"))] * 2)


def _evaluated(net: Net, name: str) -> Net:
    getattr(net, name).eval()
    return net


def _modes() -> Named:
    dropping: Make = lambda: Net(drop=0.3)  # noqa: E731
    yield "dropout stronger", Port(lambda: Net(drop=0.5), dropping)
    yield "dropout absent", Port(Net, dropping)
    yield "dropout in evaluation", Port(lambda: _evaluated(Net(drop=0.3), "drop"), dropping)
    yield "port in evaluation", Port(lambda: Net(drop=0.3).eval(), dropping)
    yield "dropout by hand", Port(lambda: Net(lambda net, h: nn.functional.dropout(h, 0.3)), dropping)
    yield "dropout not scaled", Port(lambda: Net(lambda net, h: h * 0.7, drop=0.3), dropping)
    batch: Make = lambda: Net(batch=True)  # noqa: E731
    yield "batch norm with another momentum", Port(lambda: Net(batch=True, momentum=0.2), batch)
    yield "batch norm that never moves", Port(lambda: Net(batch=True, momentum=0.0), batch)
    yield "batch norm that counts", Port(lambda: Net(batch=True, momentum=None), batch)
    yield "batch norm with another epsilon", Port(lambda: Net(batch=True, eps=1e-3), batch)
    yield "batch norm in evaluation", Port(lambda: _evaluated(Net(batch=True), "norm"), batch)
    reset: Change = lambda net, x: (net.norm.running_var.fill_(1.5), x)[1]  # noqa: E731
    yield (
        "statistics that are set anew",
        Port(lambda: Net(batch=True, start=reset).eval(), lambda: Net(batch=True).eval()),
    )
    yield "layer norm with another epsilon", Port(lambda: Net(eps=1e-4))
    for name, factor in (("by a hundredth", 1.01), ("by a thousandth", 1.001), ("by its sign", -1.0)):
        end: Change = lambda net, h, by=factor: h if torch.is_grad_enabled() else by * h  # noqa: E731
        yield f"wrong without gradients {name}", Port(partial(Net, end=end))
        yield f"the same with dropout, {name}", Port(partial(Net, end=end, drop=0.3), dropping)
        made = partial(Net, end=end)
        evaluated: Make = lambda made=made: made().eval()  # noqa: E731
        yield f"the same in evaluation mode, {name}", Port(evaluated, lambda: Net().eval())
        end = lambda net, h, by=factor: h if net.training else by * h  # noqa: E731
        yield f"wrong in evaluation mode only, {name}", Port(partial(Net, end=end))


def _without_gradient(*names: str) -> Net:
    net = Net()
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name not in names)
    return net


def _frozen() -> Named:
    yield "bias frozen", Port(lambda: _without_gradient("two.bias"))
    yield "bias frozen, no optimizer", Port(lambda: _without_gradient("two.bias"), Net, {"optimizer": None})
    yield "norm frozen", Port(lambda: _without_gradient("norm.weight", "norm.bias"))
    yield "first layer frozen", Port(lambda: _without_gradient("one.weight", "one.bias"))
    for name, options in {"": {}, ", no optimizer": {"optimizer": None}}.items():
        yield f"weights not tied{name}", Port(lambda: Tied(False), lambda: Tied(True), options)
        yield f"weights tied{name}", Port(lambda: Tied(True), lambda: Tied(False), options)


class _Strange(torch.optim.SGD):
    """Steps as it is told: with the number of the step and what a usual one does."""

    def __init__(self, model: Any, act: Callable[[int, Callable[[], Any], list[Any]], None]) -> None:
        super().__init__(model.parameters(), 0.1, momentum=0.9)
        self.act, self.number = act, 0

    def step(self, closure: Any = None) -> None:
        self.number += 1
        self.act(self.number, super().step, [one for group in self.param_groups for one in group["params"]])


class _Keeping(torch.optim.SGD):
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget nothing."""


def _clip(number: int, step: Callable[[], Any], parameters: list[Any]) -> None:
    nn.utils.clip_grad_norm_(parameters, 0.05)
    step()


def _centre(number: int, step: Callable[[], Any], parameters: list[Any]) -> None:
    for one in parameters:
        one.grad.sub_(one.grad.mean() * 1e-2)
    step()


def _restored(model: Any) -> Any:
    optimizer = sgd(model)
    for one in model.parameters():
        optimizer.state[one]["momentum_buffer"] = torch.full_like(one, 1e-3)
    return optimizer


def _late_adam(model: Any) -> Any:
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for one in model.parameters():
        zeros = [torch.zeros_like(one) for _ in range(2)]
        optimizer.state[one] = {"step": torch.tensor(1000.0), "exp_avg": zeros[0], "exp_avg_sq": zeros[1]}
    return optimizer


def _grouped(model: Any) -> Any:
    named = list(model.named_parameters())
    groups = [{"params": [one for name, one in named if ("bias" in name) is bias]} for bias in (True, False)]
    return torch.optim.SGD([groups[0], {**groups[1], "weight_decay": 1e-3}], 0.1, momentum=0.9)


def _optimizers() -> Named:
    def made(kind: Any, rate: float, **settings: Any) -> Make:
        return lambda model: kind(model.parameters(), rate, **settings)  # type: ignore[misc]

    kinds = torch.optim
    adam = made(kinds.Adam, 1e-2, weight_decay=1e-2)
    wrong: dict[str, tuple[Any, Any]] = {
        "another rate": (sgd, made(kinds.SGD, 0.1001, momentum=0.9)),
        "dampening": (sgd, made(kinds.SGD, 0.1, momentum=0.9, dampening=0.1)),
        "Nesterov": (sgd, made(kinds.SGD, 0.1, momentum=0.9, nesterov=True)),
        "a decay of 1e-5": (sgd, made(kinds.SGD, 0.1, momentum=0.9, weight_decay=1e-5)),
        "AdamW for Adam": (adam, made(kinds.AdamW, 1e-2, weight_decay=1e-2)),
        "another beta": (adam, made(kinds.Adam, 1e-2, betas=(0.9, 0.99), weight_decay=1e-2)),
        "another epsilon": (adam, made(kinds.Adam, 1e-2, eps=1e-6, weight_decay=1e-2)),
        "AMSGrad": (adam, made(kinds.Adam, 1e-2, amsgrad=True, weight_decay=1e-2)),
        "no decay of biases": (made(kinds.SGD, 0.1, momentum=0.9, weight_decay=1e-3), _grouped),
        "a bias left out": (
            sgd, lambda m: kinds.SGD([p for n, p in m.named_parameters() if n != "two.bias"], 0.1, momentum=0.9)
        ),
        "two steps in one": (sgd, lambda m: _Strange(m, lambda number, step, all: (step(), step())[1])),
        "no third step": (sgd, lambda m: _Strange(m, lambda number, step, all: number == 3 or step())),
        "clipping inside": (sgd, lambda m: _Strange(m, _clip)),
        "centred gradients": (sgd, lambda m: _Strange(m, _centre)),
        "gradients that are kept": (sgd, made(_Keeping, 0.1, momentum=0.9)),
        "a momentum from before": (sgd, _restored),
        "a late Adam": (made(kinds.Adam, 1e-2), _late_adam),
    }  # fmt: skip
    for name, pair in wrong.items():
        yield f"optimizer with {name}", Port(Net, Net, {"optimizer": pair})
    yield "quick, with another rate", Port(Net, Net, {"optimizer": wrong["another rate"], "quick": True})


def _schedules() -> Named:
    def scheduled(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def both(model: Any) -> Any:
            optimizer = sgd(model)
            return optimizer, make(optimizer)

        return both

    kinds = torch.optim.lr_scheduler
    right = scheduled(lambda one: kinds.StepLR(one, 2, 0.5))
    wrong = {
        "another length": scheduled(lambda one: kinds.StepLR(one, 3, 0.5)),
        "another factor": scheduled(lambda one: kinds.StepLR(one, 2, 0.4)),
        "one step early": scheduled(lambda one: kinds.LambdaLR(one, lambda n: 0.5 ** ((n + 1) // 2))),
        "another end": scheduled(lambda one: kinds.LambdaLR(one, lambda n: 0.5 ** (n // 2) if n < 3 else 0.4)),
        "none": sgd,
    }
    for name, make in wrong.items():
        yield f"schedule: {name}", Port(Net, Net, {"optimizer": (right, make)})


def _losses() -> Named:
    wrong: dict[str, Callable[[Any, Any], Any]] = {
        "a sum": lambda o, t: ((o - t) ** 2).sum(),
        "half": lambda o, t: ((o - t) ** 2).mean() / 2,
        "regularised": lambda o, t: ((o - t) ** 2).mean() + 1e-4 * (o**2).mean(),
        "without the last sample": lambda o, t: ((o[:-1] - t[:-1]) ** 2).mean(),
        "the same value and another gradient": lambda o, t: ((o - t) ** 2).mean() + (o - o.detach()).sum() * 1e-5,
        "one column without gradient": lambda o, t: squares(torch.cat([o[:, :1].detach(), o[:, 1:]], 1), t),
    }
    for name, loss in wrong.items():
        yield f"loss: {name}", Port(Net, Net, {"loss": (squares, loss)})


def _usual(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    optimizer.zero_grad()
    squares(model(**inputs), targets).backward()
    optimizer.step()


def _accumulated(share: float) -> Callable[..., None]:
    def step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        optimizer.zero_grad()
        for part in (slice(4), slice(4, 8)):
            (squares(model(inputs["x"][part]), targets[part]) * share).backward()
        optimizer.step()

    return step


def _steps() -> Named:
    def kept(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        squares(model(**inputs), targets).backward()
        optimizer.step()

    def clipped(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        optimizer.zero_grad()
        squares(model(**inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    def twice(*given: Any) -> None:
        _usual(*given)
        _usual(*given)

    def shrunk(model: Any, *given: Any) -> None:
        _usual(model, *given)
        with torch.no_grad():
            for one in model.parameters():
                one.mul_(0.9999)

    wrong = {
        "gradients kept": (_usual, kept), "clipped": (_usual, clipped), "twice": (_usual, twice),
        "weights shrunk": (_usual, shrunk), "accumulated, not divided": (_accumulated(0.5), _accumulated(1.0)),
    }  # fmt: skip
    for name, pair in wrong.items():
        yield f"step: {name}", Port(Net, Net, {"step": pair, "loss": None})


def both() -> dict[str, nn.Module]:
    """Two models that are trained as one."""
    net = Net()
    return {"a": net, "b": nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))}


def trained(names: str) -> Callable[[Any], Any]:
    return lambda models: torch.optim.SGD([one for name in names for one in models[name].parameters()], 0.1)


def through(change: Callable[[Any], Any]) -> Callable[..., None]:
    """A step through both models, with a change between them."""

    def step(models: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        optimizer.zero_grad()
        squares(models["b"](change(models["a"](inputs["x"]))), targets).backward()
        optimizer.step()

    return step


def two(change: Callable[[Any], Any], names: str = "ab") -> Port:
    steps = through(lambda h: h), through(change)
    return Port(both, both, {"step": steps, "loss": None, "optimizer": (trained("ab"), trained(names))})


def _several() -> Named:
    yield "two models, scaled between", two(lambda h: h * 1.001)
    yield "two models, cut between", two(lambda h: h.detach())
    yield "two models, backward doubled between", two(lambda h: Backward.apply(h, GRADIENTS["doubled"]))
    yield "two models, one of them trained", two(lambda h: h, "a")


def _options() -> Named:
    loose: tuple[dict[str, Any], ...] = (
        {"allow_unmatched": "*"}, {"limits": "float16/mean_abs:1e9"}, {"limits": "nothing=mean_abs:1e9"},
        {"allow_unproven": True}, {"quick": True}, {"detailed": 1}, {"equal_nan": True}, {"steps": 1},
        {"transfer": False},
    )  # fmt: skip
    for options in loose:
        yield f"1 % off with {options}", Port(lambda: Net(lambda net, h: h * 1.01), Net, options)
    last = late(STEPS - 1, lambda net, h: h * 1.001)
    yield "wrong in the last step, one step in detail", Port(lambda: Net(last), Net, {"detailed": 1})
