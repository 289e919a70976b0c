"""Wrong ports as two scripts, each a whole small program with one change: a GAN, a distillation, a penalty, an attack …

`PROGRAMS` are programs that are written alike for both frameworks; `CHANGES` names for each what its port gets wrong.
Every program without a change is a correct port, which passes.
"""

from __future__ import annotations

COMMON = """
import json, sys
import numpy as np
given = json.loads(sys.argv[1])
program = given.pop("program")
def wrong(name):
    return bool(given.get(name))
drawn = np.random.default_rng(5)
def normal(*size):
    return drawn.normal(size=size).astype("float32")
WEIGHTS = [(normal(8, 6) / 2, normal(8)), (normal(8, 8) / 3, normal(8)), (normal(3, 8) / 3, normal(3))]
MORE = [(normal(8, 8) / 3, normal(8)), (normal(1, 8) / 3, normal(1)), (normal(11, 8), None)]
BATCHES = [(normal(8, 6), drawn.integers(0, 3, 8), normal(8, 4), drawn.integers(1, 11, (8, 5))) for _ in range(4)]
MORE[2][0][0] = 0
for batch in BATCHES:
    batch[3][::2, 3:] = 0
"""
TORCH = (
    COMMON
    + """
import torch
from torch import nn
F = nn.functional
tensor, no_grad, relu, tanh, cat = torch.tensor, torch.no_grad, F.relu, torch.tanh, torch.cat
def linear(pair, bias=True):
    w, b = pair
    made = nn.Linear(w.shape[1], w.shape[0], bias=bias)
    with torch.no_grad():
        made.weight.copy_(torch.tensor(w))
        if bias:
            made.bias.copy_(torch.tensor(b))
    return made
def table(values, padding=None):
    made = nn.Embedding(*values.shape, padding_idx=padding)
    with torch.no_grad():
        made.weight.copy_(torch.tensor(values))
    return made
Module, frozen = nn.Module, lambda one: [p.requires_grad_(False) for p in one.parameters()]
thawed = lambda one: [p.requires_grad_(True) for p in one.parameters()]
def sgd(parameters, lr=0.1, momentum=0.9, decay=0.0):
    return torch.optim.SGD(list(parameters), lr, momentum=momentum, weight_decay=decay)
def clear(opt):
    opt.zero_grad()
def asking(x):
    return torch.tensor(x, requires_grad=True)
def gradient(y, x, **more):
    return torch.autograd.grad(y, x, **more)[0]
def softmax(x):
    return F.softmax(x, -1)
def log_softmax(x):
    return F.log_softmax(x, -1)
def copied(target, source, share):
    with torch.no_grad():
        for one, other in zip(target.parameters(), source.parameters()):
            one.mul_(share).add_(other * (1 - share))
def set_rate(opt, rate):
    for group in opt.param_groups:
        group["lr"] = rate
def turned(x):
    return x.transpose(1, 2)
def ones_below(n):
    return torch.tril(torch.ones(n, n))
def as_numbers(x, like):
    return x.to(like.dtype)
cross_entropy = F.cross_entropy
norms = lambda x: x.norm(dim=1)
"""
)
PADDLE = (
    COMMON
    + """
import paddle
from paddle import nn
F = nn.functional
tensor, no_grad, relu, tanh, cat = paddle.to_tensor, paddle.no_grad, F.relu, paddle.tanh, paddle.concat
def linear(pair, bias=True):
    w, b = pair
    made = nn.Linear(w.shape[1], w.shape[0], bias_attr=None if bias else False)
    made.weight.set_value(w.T)
    if bias:
        made.bias.set_value(b)
    return made
def table(values, padding=None):
    made = nn.Embedding(*values.shape, padding_idx=padding)
    made.weight.set_value(values)
    return made
Module = nn.Layer
def frozen(one):
    for p in one.parameters():
        p.stop_gradient = True
def thawed(one):
    for p in one.parameters():
        p.stop_gradient = False
def sgd(parameters, lr=0.1, momentum=0.9, decay=0.0):
    return paddle.optimizer.Momentum(lr, momentum, parameters=list(parameters), weight_decay=decay or None)
def clear(opt):
    opt.clear_grad()
def asking(x):
    return paddle.to_tensor(x, stop_gradient=False)
def gradient(y, x, **more):
    return paddle.grad(y, x, **more)[0]
def softmax(x):
    return F.softmax(x, -1)
def log_softmax(x):
    return F.log_softmax(x, -1)
def copied(target, source, share):
    with paddle.no_grad():
        for one, other in zip(target.parameters(), source.parameters()):
            one.set_value((one * share + other * (1 - share)).astype(one.dtype))
def set_rate(opt, rate):
    opt.set_lr(rate)
def turned(x):
    return x.transpose([0, 2, 1])
def ones_below(n):
    return paddle.tril(paddle.ones([n, n]))
def as_numbers(x, like):
    return x.astype(like.dtype)
cross_entropy = F.cross_entropy
norms = lambda x: x.norm(axis=1)
"""
)
PROGRAMS = """
class Net(Module):
    def __init__(self, first=WEIGHTS[0], second=WEIGHTS[1], head=WEIGHTS[2]):
        super().__init__()
        self.one, self.two, self.head = linear(first), linear(second), linear(head)
        self.through = None
    def forward(self, x):
        if self.through is not None:
            x = self.through(x)
        return self.head(tanh(self.two(tanh(self.one(x)))))

class Twins(Module):
    # Two layers that begin with the same weights.
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = linear(WEIGHTS[1]), linear(WEIGHTS[1]), linear(WEIGHTS[2])
        self.enter = linear(WEIGHTS[0])
    def forward(self, x):
        h = tanh(self.enter(x))
        one, two = (self.two, self.one) if wrong("twins exchanged") else (self.one, self.two)
        if wrong("one twin used twice"):
            two = one
        if wrong("twins in parallel"):
            return self.head(one(h) + two(h))
        return self.head(two(tanh(one(h))))

class Words(Module):
    def __init__(self):
        super().__init__()
        self.table = table(MORE[2][0], 0)
        self.key, self.query, self.head = linear(WEIGHTS[1]), linear(MORE[0]), linear(WEIGHTS[2])
    def forward(self, ids):
        h = self.table(ids) * (1.0 if wrong("no scale of the table") else 8**0.5)
        scores = self.query(h) @ turned(self.key(h)) / (8 if wrong("scores divided by the size") else 8**0.5)
        below = as_numbers(ones_below(5), h)
        if not wrong("future seen"):
            scores = scores * below - 1e9 * (1 - below)
        h = softmax(scores) @ h
        kept = as_numbers(ids != 0, h).unsqueeze(-1)
        if wrong("padding in the mean"):
            return self.head(h.mean(1))
        return self.head((h * kept).sum(1) / kept.sum(1))

def classify(net, opt, batches=BATCHES, loss=None):
    for number, (x, y, _, _) in enumerate(batches):
        found = (loss or cross_entropy)(net(tensor(x)), tensor(y))
        found.backward(); opt.step(); clear(opt)

def plain():
    net = Net()
    opt = sgd(net.parameters())
    l1 = 0.0 if wrong("no penalty of weights") else 1e-3
    def loss(out, y):
        found = cross_entropy(out, y)
        parameters = list(net.parameters())
        if wrong("penalty of one weight"):
            parameters = parameters[:1]
        return found + l1 * sum(abs(p).sum() for p in parameters)
    classify(net, opt, loss=loss)

def weighted():
    net = Net()
    opt = sgd(net.parameters())
    weights = np.array([1.0, 2.0, 0.5], "float32")
    if wrong("weights of classes exchanged"):
        weights = weights[[1, 0, 2]]
    def loss(out, y):
        weight = as_numbers(tensor(weights), out)
        rows = cross_entropy(out, y, reduction="none")
        of_row = weight[y]
        rows = rows * (of_row.unsqueeze(-1) if len(rows.shape) > 1 else of_row)
        if wrong("mean over rows"):
            return rows.mean()
        if wrong("hardest left out"):
            return (rows.sum() - rows.max()) / of_row.sum()
        return rows.sum() / of_row.sum()
    classify(net, opt, loss=loss)

def twins():
    net = Twins()
    for x, *_ in BATCHES:
        with no_grad():
            net(tensor(x))

def twins_trained():
    net = Twins()
    classify(net, sgd(net.parameters()))

def distilled():
    teacher, net = Net(second=MORE[0]), Net()
    frozen(teacher)
    opt = sgd(net.parameters())
    warm = 1.0 if wrong("another temperature") else 2.0
    for x, y, *_ in BATCHES:
        out, wanted = net(tensor(x)), teacher(tensor(x))
        if wrong("teacher and student exchanged"):
            soft = (softmax(out / warm) * (log_softmax(out / warm) - log_softmax(wanted / warm))).sum(-1).mean()
        else:
            soft = -(softmax(wanted / warm) * log_softmax(out / warm)).sum(-1).mean()
        share = 0.51 if wrong("another share") else 0.5
        factor = 1.0 if wrong("no square of the temperature") else warm * warm
        loss = share * cross_entropy(out, tensor(y)) + (1 - share) * factor * soft
        loss.backward(); opt.step(); clear(opt)

def averaged():
    net, average = Net(), Net()
    frozen(average)
    opt = sgd(net.parameters())
    for number, (x, y, *_) in enumerate(BATCHES):
        loss = cross_entropy(net(tensor(x)), tensor(y))
        loss.backward()
        share = 0.9 if not wrong("another average") else 0.89
        if wrong("average before the step"):
            copied(average, net, share)
        opt.step(); clear(opt)
        if not wrong("average before the step") and not (wrong("no average in the second step") and number == 1):
            copied(average, net, share)
        with no_grad():
            (net if wrong("evaluation of the network itself") else average)(tensor(x))

def adversarial():
    maker = Net(head=(MORE[0][0][:6], MORE[0][1][:6]))
    critic = Net(head=MORE[1])
    makes, judges = sgd(maker.parameters(), 0.05), sgd(critic.parameters(), 0.02 if wrong("another rate") else 0.05)
    softplus = F.softplus
    for x, y, noise, _ in BATCHES:
        z = tensor(np.concatenate([noise, noise[:, :2]], 1))
        fake = maker(z)
        seen = fake if wrong("gradients of the critic's step reach the maker") else fake.detach()
        times = 2 if wrong("fakes count twice") else 1
        loss = softplus(-critic(tensor(x))).mean() + times * softplus(critic(seen)).mean()
        loss.backward(); judges.step(); clear(judges)
        if not wrong("gradients of the critic's step reach the maker"):
            clear(makes)
        fake = maker(z)
        loss = -softplus(critic(fake)).mean() if wrong("loss that saturates") else softplus(-critic(fake)).mean()
        loss.backward(); makes.step(); clear(makes)
        if not wrong("critic not cleared"):
            clear(judges)

def penalised():
    critic = Net(head=MORE[1])
    opt = sgd(critic.parameters(), 0.02)
    for x, *_ in BATCHES:
        given_x = asking(x)
        out = critic(given_x)
        slope = gradient(out.sum(), given_x, create_graph=not wrong("penalty without a graph"))
        size = norms(slope) if not wrong("norm of the batch") else (slope**2).sum().sqrt()
        centre = 0.0 if wrong("penalty around zero") else 1.0
        factor = 9.99 if wrong("another factor") else 10.0
        loss = out.mean() + factor * ((size - centre) ** 2).mean()
        loss.backward(); opt.step(); clear(opt)

def explained():
    net = Net()
    if wrong("gradient of data cut in half"):
        net.through = lambda x: 0.5 * x + 0.5 * x.detach()
    if wrong("gradient of one feature lost"):
        net.through = lambda x: cat([x[:, :5], x[:, 5:].detach()], 1)
    for x, *_ in BATCHES:
        x = asking(x)
        out = net(x)
        gradient(out[:, 0].sum() if not wrong("another class") else out[:, 1].sum(), x)

def attacked():
    net = Net()
    opt = sgd(net.parameters())
    for x, y, *_ in BATCHES:
        start = asking(x)
        slope = gradient(cross_entropy(net(start), tensor(y)), start)
        step = 0.1 if not wrong("a smaller attack") else 0.0999
        moved = (start + step * (slope.sign() if not wrong("attack without signs") else slope)).detach()
        if wrong("attack the other way"):
            moved = (start - step * slope.sign()).detach()
        loss = cross_entropy(net(moved), tensor(y))
        loss.backward(); opt.step(); clear(opt)

def accumulated():
    net = Net()
    opt = sgd(net.parameters())
    for number, (x, y, *_) in enumerate(BATCHES):
        loss = cross_entropy(net(tensor(x)), tensor(y))
        (loss if wrong("batches that are not averaged") else loss / 2).backward()
        if number % 2 or wrong("a step for every batch"):
            opt.step(); clear(opt)

def thawing():
    net = Net()
    opt = sgd(net.parameters())
    frozen(net.one)
    for number, (x, y, *_) in enumerate(BATCHES):
        if number == (2 if wrong("thawed late") else 1):
            thawed(net.one if not wrong("another layer thawed") else net.two)
        loss = cross_entropy(net(tensor(x)), tensor(y))
        loss.backward(); opt.step(); clear(opt)

def carried():
    net = Net(head=(MORE[0][0][:6], MORE[0][1][:6]))
    opt = sgd(net.parameters())
    state = tensor(np.zeros((8, 6), "float32"))
    for number, (x, *_) in enumerate(BATCHES):
        if wrong("state forgotten"):
            state = tensor(np.zeros((8, 6), "float32"))
        first = net(tensor(x) + state)
        out = net(first.detach() if wrong("state cut") else first)
        loss = (out**2).mean()
        loss.backward(); opt.step(); clear(opt)
        state = out.detach() * (1.0 if not wrong("state that fades") else 0.999)

def grouped():
    net = Net()
    weights = [p for p in net.parameters() if len(p.shape) > 1]
    biases = [p for p in net.parameters() if len(p.shape) == 1]
    decay = 1e-2
    first = sgd(weights, decay=decay)
    second = sgd(biases, decay=decay if wrong("biases decay") else 0.0, lr=0.1 if wrong("one rate for all") else 0.2)
    for number, (x, y, *_) in enumerate(BATCHES):
        if number == 2:
            set_rate(first, 0.01 if not wrong("rate that does not fall") else 0.1)
        if wrong("rate of biases falls too") and number == 2:
            set_rate(second, 0.02)
        loss = cross_entropy(net(tensor(x)), tensor(y))
        loss.backward()
        for opt in (first, second):
            opt.step()
        for opt in (first, second):
            clear(opt)

def words():
    net = Words()
    opt = sgd(net.parameters())
    for _, y, _, ids in BATCHES:
        loss = cross_entropy(net(tensor(ids)), tensor(y))
        loss.backward(); opt.step(); clear(opt)

def read():
    net = Words()
    for _, y, _, ids in BATCHES:
        with no_grad():
            out = net(tensor(ids))

globals()[program]()
"""
SCRIPTS = {"torch": TORCH + PROGRAMS, "paddle": PADDLE + PROGRAMS}

CHANGES: dict[str, tuple[str, ...]] = {
    "plain": ("no penalty of weights", "penalty of one weight"),
    "weighted": ("weights of classes exchanged", "mean over rows", "hardest left out"),
    "twins": ("twins exchanged", "one twin used twice", "twins in parallel"),
    "twins_trained": ("twins exchanged", "one twin used twice", "twins in parallel"),
    "distilled": (
        "another temperature",
        "teacher and student exchanged",
        "another share",
        "no square of the temperature",
    ),
    "averaged": (
        "another average",
        "average before the step",
        "no average in the second step",
        "evaluation of the network itself",
    ),
    "adversarial": (
        "another rate",
        "gradients of the critic's step reach the maker",
        "fakes count twice",
        "loss that saturates",
        "critic not cleared",
    ),
    "penalised": ("penalty without a graph", "norm of the batch", "penalty around zero", "another factor"),
    "explained": ("gradient of data cut in half", "gradient of one feature lost", "another class"),
    "attacked": ("a smaller attack", "attack without signs", "attack the other way"),
    "accumulated": ("batches that are not averaged", "a step for every batch"),
    "thawing": ("thawed late", "another layer thawed"),
    "carried": ("state forgotten", "state cut", "state that fades"),
    "grouped": ("biases decay", "one rate for all", "rate that does not fall", "rate of biases falls too"),
    "words": (
        "no scale of the table",
        "scores divided by the size",
        "future seen",
        "padding in the mean",
    ),
    "read": ("no scale of the table", "scores divided by the size", "future seen", "padding in the mean"),
}
