"""The table of optimizers: their classes, what they keep for a parameter, their settings in shared words.

The canonical state is torch's: moments by torch's names and a number of steps. Moments are laid out like their weights.
A new optimizer is one row; tests/layers holds every row against the installed versions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from reprod_log.errors import TransferError
from reprod_log.layers.lookup import added_optimizers, of_the_tables
from reprod_log.layers.rows import Setting
from reprod_log.recording import Array

STEP = "step"


@dataclass(frozen=True, eq=False)
class Slot:
    """One thing that an optimizer keeps for a parameter."""

    native: str
    option: str = ""
    """The setting without which it is not kept, or not used."""
    factor: Literal["", "lr"] = ""
    """What the stored copy has multiplied in."""
    shape: Literal["parameter", "first element"] = "parameter"
    """`first element`: one number, stored once for every element."""


@dataclass(frozen=True)
class Counter:
    """How the number of steps is kept: as a number of its own, or as powers of settings, a step ahead."""

    native: str = ""
    powers: tuple[tuple[str, str], ...] = ()
    """Native name and setting: after t steps it holds setting ** (t + 1)."""


@dataclass(frozen=True, eq=False)
class OptimizerColumn:
    """One framework's form of an optimizer."""

    classes: tuple[str, ...]
    slots: Mapping[str, Slot] = field(default_factory=dict)
    """By canonical name."""
    counter: Counter = Counter()
    scratch: tuple[str, ...] = ()
    """What is kept beside them and holds no result."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """By shared word, where the framework has a word or a convention of its own."""
    decay: Literal["coupled", "decoupled"] = "coupled"
    """Whether weight decay is added to the gradient or taken off the weights."""
    decay_flag: str = ""
    """The setting that says `decoupled`, where there is one."""
    narrow: bool = False
    """Whether its kernel takes the betas as float32 in a float64 run too, so that even its updates show it."""


@dataclass(frozen=True, eq=False)
class OptimizerKind:
    """One optimizer: what holds in every framework, and a column for each."""

    kind: str
    columns: Mapping[str, OptimizerColumn]
    compared: tuple[str, ...] = ()
    """Shared words of its settings; rates and decay are also compared for each parameter."""
    absent: Mapping[str, Any] = field(default_factory=dict)
    """What it means when a side does not have the setting: the same as 0 or False."""
    averages: Mapping[str, str] = field(default_factory=dict)
    """Slot to the setting that says how much of the old stays."""
    transferable: bool = True
    """Whether slots and counters are the whole state, so that an optimizer goes on from them."""

    @property
    def counted(self) -> bool:
        """Whether any framework counts the steps of this optimizer."""
        return any(column.counter != Counter() for column in self.columns.values())


_BETAS = {"beta1": Setting("betas", "first"), "beta2": Setting("betas", "second")}
# paddle keeps these constants in float32 even when it computes in float64.
_NARROW_BETAS = {"beta1": Setting("beta1", float32=True), "beta2": Setting("beta2", float32=True)}
_NARROW_RHO = {"rho": Setting("rho", float32=True)}
_EPSILON = {"eps": Setting("epsilon")}
_POWERS = Counter(powers=(("beta1_pow_acc", "beta1"), ("beta2_pow_acc", "beta2")))
_STEP = Counter("step")
_TORCH_MOMENTS = {"exp_avg": Slot("exp_avg"), "exp_avg_sq": Slot("exp_avg_sq")}
_PADDLE_MOMENTS = {"exp_avg": Slot("moment1"), "exp_avg_sq": Slot("moment2")}
_TORCH_ADAM = {**_TORCH_MOMENTS, "max_exp_avg_sq": Slot("max_exp_avg_sq", "amsgrad")}
_PADDLE_ADAM = {**_PADDLE_MOMENTS, "max_exp_avg_sq": Slot("moment2_max", "amsgrad")}
_ALWAYS = ("weight_decay", "l1_decay", "maximize")
_NEUTRAL = {"weight_decay": 0.0, "l1_decay": 0.0, "maximize": False}
_ADAM: Mapping[str, Any] = {
    "compared": ("beta1", "beta2", "eps", "amsgrad", *_ALWAYS),
    "absent": {"amsgrad": False, **_NEUTRAL},
    "averages": {"exp_avg": "beta1", "exp_avg_sq": "beta2"},
}
_FLAG = "decoupled_weight_decay"

OPTIMIZERS: tuple[OptimizerKind, ...] = (
    OptimizerKind(
        "sgd",
        {
            "torch": OptimizerColumn(("SGD",), {"momentum_buffer": Slot("momentum_buffer", "momentum")}),
            "paddle": OptimizerColumn(
                ("SGD", "Momentum"),
                {"momentum_buffer": Slot("velocity", "momentum")},
                settings={"nesterov": Setting("use_nesterov"), "weight_decay": Setting("regularization_coeff")},
            ),
        },
        compared=("momentum", "dampening", "nesterov", *_ALWAYS),
        absent={"momentum": 0.0, "dampening": 0.0, "nesterov": False, **_NEUTRAL},
    ),
    OptimizerKind(
        "adam",
        {
            "torch": OptimizerColumn(("Adam",), _TORCH_ADAM, _STEP, settings=_BETAS, decay_flag=_FLAG),
            "paddle": OptimizerColumn(("Adam",), _PADDLE_ADAM, _POWERS, settings={**_NARROW_BETAS, **_EPSILON}),
        },
        **_ADAM,
    ),
    OptimizerKind(
        "adamw",
        {
            "torch": OptimizerColumn(
                ("AdamW",), _TORCH_ADAM, _STEP, settings=_BETAS, decay="decoupled", decay_flag=_FLAG
            ),
            "paddle": OptimizerColumn(
                ("AdamW",),
                _PADDLE_ADAM,
                _POWERS,
                settings={
                    **_NARROW_BETAS,
                    **_EPSILON,
                    # Versions before 3 call it `coeff`.
                    "weight_decay": Setting("weight_decay", also=("coeff",)),
                },
                decay="decoupled",
            ),
        },
        **_ADAM,
    ),
    OptimizerKind(
        "adamax",
        {
            "torch": OptimizerColumn(
                ("Adamax",), {"exp_avg": Slot("exp_avg"), "exp_inf": Slot("exp_inf")}, _STEP, settings=_BETAS
            ),
            "paddle": OptimizerColumn(
                ("Adamax",),
                {"exp_avg": Slot("moment"), "exp_inf": Slot("inf_norm")},
                Counter(powers=_POWERS.powers[:1]),
                settings={**_NARROW_BETAS, **_EPSILON},
            ),
        },
        compared=("beta1", "beta2", "eps", *_ALWAYS),
        absent=_NEUTRAL,
        averages={"exp_avg": "beta1"},
    ),
    OptimizerKind(
        "nadam",
        {
            "torch": OptimizerColumn(
                ("NAdam",),
                {**_TORCH_MOMENTS, "mu_product": Slot("mu_product")},
                _STEP,
                settings=_BETAS,
                decay_flag=_FLAG,
            ),
            "paddle": OptimizerColumn(
                ("NAdam",),
                {**_PADDLE_MOMENTS, "mu_product": Slot("mu_product", shape="first element")},
                scratch=("momentum_decay_pow", "beta2_pow"),
                settings={**_NARROW_BETAS, **_EPSILON},
                narrow=True,
            ),
        },
        compared=("beta1", "beta2", "eps", "momentum_decay", *_ALWAYS),
        absent=_NEUTRAL,
        averages=_ADAM["averages"],
        transferable=False,
    ),
    OptimizerKind(
        "radam",
        {
            "torch": OptimizerColumn(("RAdam",), _TORCH_MOMENTS, _STEP, settings=_BETAS, decay_flag=_FLAG),
            "paddle": OptimizerColumn(
                ("RAdam",),
                _PADDLE_MOMENTS,
                scratch=("beta1_pow", "beta2_pow", "rho"),
                settings={**_NARROW_BETAS, **_EPSILON},
                narrow=True,
            ),
        },
        compared=("beta1", "beta2", "eps", *_ALWAYS),
        absent=_NEUTRAL,
        averages=_ADAM["averages"],
        transferable=False,
    ),
    OptimizerKind(
        "adagrad",
        {
            "torch": OptimizerColumn(("Adagrad",), {"sum": Slot("sum")}, _STEP),
            "paddle": OptimizerColumn(("Adagrad",), {"sum": Slot("moment")}, settings={"eps": Setting("epsilon")}),
        },
        compared=("eps", "lr_decay", "initial_accumulator_value", *_ALWAYS),
        absent={"lr_decay": 0.0, "initial_accumulator_value": 0.0, **_NEUTRAL},
    ),
    OptimizerKind(
        "rmsprop",
        {
            "torch": OptimizerColumn(
                ("RMSprop",),
                {
                    "square_avg": Slot("square_avg"),
                    "grad_avg": Slot("grad_avg", "centered"),
                    "momentum_buffer": Slot("momentum_buffer", "momentum"),
                },
                _STEP,
                settings={"rho": Setting("alpha")},
            ),
            "paddle": OptimizerColumn(
                ("RMSProp",),
                {
                    "square_avg": Slot("mean_square"),
                    "grad_avg": Slot("mean_grad", "centered"),
                    "momentum_buffer": Slot("momentum", "momentum", factor="lr"),
                },
                settings={**_NARROW_RHO, "eps": Setting("epsilon")},
                narrow=True,
            ),
        },
        compared=("rho", "eps", "momentum", "centered", *_ALWAYS),
        absent={"momentum": 0.0, "centered": False, **_NEUTRAL},
        averages={"square_avg": "rho", "grad_avg": "rho"},
    ),
    OptimizerKind(
        "adadelta",
        {
            "torch": OptimizerColumn(
                ("Adadelta",), {"square_avg": Slot("square_avg"), "acc_delta": Slot("acc_delta")}, _STEP
            ),
            "paddle": OptimizerColumn(
                ("Adadelta",),
                {"square_avg": Slot("_avg_squared_grad"), "acc_delta": Slot("_avg_squared_update")},
                settings={**_NARROW_RHO, **_EPSILON},
                narrow=True,
            ),
        },
        compared=("rho", "eps", *_ALWAYS),
        absent=_NEUTRAL,
        averages={"square_avg": "rho"},
    ),
    OptimizerKind(
        "rprop",
        {
            "torch": OptimizerColumn(("Rprop",), {"prev": Slot("prev"), "step_size": Slot("step_size")}, _STEP),
            "paddle": OptimizerColumn(("Rprop",), {"prev": Slot("prevs"), "step_size": Slot("learning_rates")}),
        },
        compared=_ALWAYS,
        absent=_NEUTRAL,
    ),
    OptimizerKind(
        "asgd",
        {"torch": OptimizerColumn(("ASGD",)), "paddle": OptimizerColumn(("ASGD",))},
        compared=("alpha", *_ALWAYS),
        absent=_NEUTRAL,
        transferable=False,
    ),
    OptimizerKind(
        "lamb",
        {
            # Of other packages: torch has none of its own.
            "torch": OptimizerColumn(("Lamb", "FusedLAMB"), _TORCH_MOMENTS, _STEP, settings=_BETAS, decay="decoupled"),
            "paddle": OptimizerColumn(
                ("Lamb",),
                _PADDLE_MOMENTS,
                _POWERS,
                settings={**_NARROW_BETAS, **_EPSILON, "weight_decay": Setting("lamb_weight_decay")},
                decay="decoupled",
            ),
        },
        **_ADAM,
        transferable=False,
    ),
    *(
        OptimizerKind(
            name.lower(),
            {"torch": OptimizerColumn((name,), decay="decoupled", settings=_BETAS if name == "Lion" else {})},
            compared=("beta1", "beta2", "eps", "momentum", "nesterov", "dampening", *_ALWAYS),
            absent={"momentum": 0.0, "dampening": 0.0, "nesterov": False, **_NEUTRAL},
            transferable=False,
        )
        for name in ("Lion", "Muon", "SGDW")
    ),
)

_DECAY = ("weight_decay", "l1_decay")
_CLIPS = {"ClipGradByGlobalNorm": "global_norm", "ClipGradByNorm": "norm", "ClipGradByValue": "value"}


# ---- which row -----------------------------------------------------------------------------------------------------
@of_the_tables
def optimizer_kinds() -> Mapping[str, OptimizerKind]:
    """Every optimizer by its word."""
    found = {row.kind: row for row in OPTIMIZERS}
    for framework, columns in added_optimizers.items():
        for kind, column in columns.items():
            row = found.get(kind, OptimizerKind(kind, {}))
            found[kind] = replace(row, columns={**row.columns, framework: column})
    return found


def find_optimizer(framework: str, class_names: Iterable[str]) -> OptimizerKind | None:
    """The row of the first of these class names (an optimizer's own and those it descends from)."""
    for name in class_names:
        for row in optimizer_kinds().values():
            if framework in row.columns and name in row.columns[framework].classes:
                return row
    return None


def optimizer_kind(settings: Mapping[str, Any]) -> str:
    """The word for the optimizer that these recorded settings are of; that of an unknown class is its own name."""
    return _known(settings).kind or str(settings.get("type", "")).lower()


def _known(settings: Mapping[str, Any]) -> OptimizerKind:
    """The row of recorded settings; for a class that no row names, all rows together."""
    name = str(settings.get("type", ""))
    rows = optimizer_kinds().values()
    found = next((row for row in rows if any(name in column.classes for column in row.columns.values())), None)
    return found or _any_optimizer()


@of_the_tables
def _any_optimizer() -> OptimizerKind:
    compared: dict[str, None] = {}
    absent: dict[str, Any] = {}
    averages: dict[str, str] = {}
    for row in optimizer_kinds().values():
        compared |= dict.fromkeys(row.compared)
        absent |= row.absent
        averages |= row.averages
    return OptimizerKind("", {}, tuple(compared), absent, averages=averages)


# ---- settings ------------------------------------------------------------------------------------------------------
def group_settings(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each group's settings under shared words; what a group does not have has its meaning of absence."""
    row = _known(settings)
    return [{**row.absent, **_of_group(group, row)} for group in settings.get("groups", ())]


def hyperparameters(settings: Mapping[str, Any]) -> dict[str, Array]:
    """The numbers of an optimizer's settings by shared words, without rates and decay and what means nothing.

    A setting that differs between parameter groups is given as all its values, ascending.
    """
    row = _known(settings)
    found: dict[str, set[float]] = {}
    for group in settings.get("groups", ()):
        for name, value in _of_group(group, row).items():
            if name not in _DECAY:
                found.setdefault(name, set()).add(float(value))
    return {
        name: np.array(sorted(values) if len(values) > 1 else next(iter(values)), dtype=np.float64)
        for name, values in found.items()
        if not (name in row.absent and values == {0.0})
    }


def _of_group(group: Mapping[str, Any], row: OptimizerKind) -> dict[str, Any]:
    found: dict[str, Any] = {}
    words = _words(row.kind)
    for native, value in group.items():
        for name, convert in words.get(native, ()):
            if convert in ("first", "second"):
                place = 0 if convert == "first" else 1
                if isinstance(value, (list, tuple)) and len(value) > place:
                    found[name] = value[place]
            elif isinstance(value, (bool, int, float)):
                found[name] = value
    for name in ("weight_decay", "regularization"):
        # An object such as paddle's L2Decay, described by its class and numbers.
        decay = group.get(name)
        if isinstance(decay, Mapping):
            coefficients = [decay[key] for key in ("coeff", "regularization_coeff") if key in decay]
            if coefficients:
                found["l1_decay" if str(decay.get("type", "")).startswith("L1") else "weight_decay"] = coefficients[0]
    return found


@of_the_tables
def _words(kind: str) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Native name to shared words with their conventions; for an unknown optimizer what any row says."""
    rows = [optimizer_kinds()[kind]] if kind else list(optimizer_kinds().values())
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        for name in row.compared:
            settings = [column.settings.get(name, Setting(name)) for column in row.columns.values()]
            for setting in settings:
                for native in (setting.native, *setting.also):
                    # The same name means another thing in some optimizers; the first row that has it counts.
                    words = found.setdefault(native, {})
                    if not words or setting.convert:
                        words[name] = setting.convert
    return {native: tuple(words.items()) for native, words in found.items()}


def built_in_clip(settings: Mapping[str, Any]) -> str:
    """How the optimizer clips by itself, in words ('global_norm 1.0'); '' when it does not."""
    clips = [group.get("grad_clip") for group in settings.get("groups", ())]
    shown = []
    for clip in clips:
        if isinstance(clip, Mapping):
            kind = _CLIPS.get(str(clip.get("type")), str(clip.get("type")))
            numbers = [str(value) for name, value in clip.items() if name in ("clip_norm", "max", "min")]
            shown.append(" ".join([kind, *numbers]))
    return ", ".join(dict.fromkeys(shown))


def is_decoupled(framework: str, class_names: Iterable[str], group: Mapping[str, Any]) -> bool:
    """Whether weight decay is taken off the weights instead of being added to the gradient."""
    names = list(class_names)
    row = find_optimizer(framework, names)
    if row is not None:
        column = row.columns[framework]
        return bool(group.get(column.decay_flag, column.decay == "decoupled"))
    flags = {column.decay_flag for row in optimizer_kinds().values() for column in row.columns.values()} - {""}
    if flags & group.keys():
        return any(group[flag] for flag in flags & group.keys())
    # An optimizer of another package: those that decouple the decay are called after the ones that are known to.
    words = [row.kind for row in optimizer_kinds().values() for one in row.columns.values() if one.decay == "decoupled"]
    return any(word in names[0].lower() for word in words)


def averaged(settings: Mapping[str, Any]) -> Mapping[str, str]:
    """What the optimizer of these recorded settings keeps as a moving average, with the setting of its old share."""
    return _known(settings).averages


def narrow_settings(framework: str, settings: Mapping[str, Any]) -> tuple[frozenset[str], bool]:
    """Settings that the framework keeps in float32 whatever is asked, and whether even updates show it."""
    name = str(settings.get("type", ""))
    rows = optimizer_kinds().values()
    columns = [row.columns[framework] for row in rows if framework in row.columns]
    own = [column for column in columns if name in column.classes]
    found = {word for one in own or columns for word, setting in one.settings.items() if setting.float32}
    return frozenset(found), any(column.narrow for column in own)


# ---- state ---------------------------------------------------------------------------------------------------------
def kept_slot(framework: str, class_names: Iterable[str], native: str) -> tuple[str, Slot] | None:
    """The canonical name of something that an optimizer keeps, and its slot; None for what holds no result."""
    row = find_optimizer(framework, class_names)
    columns = [row.columns[framework]] if row is not None else _columns(framework)
    for column in columns:
        if native in column.scratch or native in (name for name, _ in column.counter.powers):
            return None
        found = next((one for one in column.slots.items() if one[1].native == native), None)
        if found is not None:
            return found if row is not None else (found[0], Slot(native))
    return native, Slot(native)


def _columns(framework: str) -> list[OptimizerColumn]:
    return [row.columns[framework] for row in optimizer_kinds().values() if framework in row.columns]


def to_canonical(
    row: OptimizerKind, framework: str, state: Mapping[str, Array], settings: Mapping[str, float]
) -> dict[str, Array]:
    """A parameter's state under canonical names, with its number of steps where it is known."""
    column = row.columns[framework]
    result = {
        name: state[slot.native] / _rate(framework, slot, settings)
        for name, slot in column.slots.items()
        if slot.native in state
    }
    if column.counter.native in state:
        result[STEP] = state[column.counter.native]
    steps = steps_taken(column, state, settings)
    return result if steps is None else {**result, STEP: np.asarray(steps, np.float32)}


def from_canonical(
    row: OptimizerKind, framework: str, state: Mapping[str, Array], settings: Mapping[str, float]
) -> dict[str, Array]:
    """A parameter's state under the framework's own names."""
    column = row.columns[framework]
    result: dict[str, Array] = {
        slot.native: state[name] * _rate(framework, slot, settings)
        for name, slot in column.slots.items()
        if name in state
    }
    if column.counter.native:
        result[column.counter.native] = state.get(STEP, np.asarray(0.0, np.float32))
    for name, setting in column.counter.powers:
        result[name] = np.asarray([settings[setting] ** (float(state[STEP]) + 1.0)])
    return result


def _rate(framework: str, slot: Slot, settings: Mapping[str, float]) -> Any:
    if slot.factor != "lr":
        return 1
    if not settings["lr"] > 0.0:
        raise TransferError(
            f"{framework} keeps '{slot.native}' multiplied by the learning rate, which is {settings['lr']}: "
            "set it above zero before the transfer."
        )
    return settings["lr"]


def steps_taken(column: OptimizerColumn, state: Mapping[str, Any], settings: Mapping[str, float]) -> float | None:
    """The number of steps from powers of settings: the first that has not yet vanished in float32."""
    steps = None
    for name, setting in column.counter.powers:
        if name not in state or not 0.0 < settings.get(setting, 0.0) < 1.0:
            continue
        power = float(np.asarray(state[name]).reshape(-1)[0])
        # Below this the power has lost its precision; a step count that large makes every bias correction one.
        steps = round(math.log(max(power, 1e-30)) / math.log(settings[setting])) - 1
        if power > 1e-30:
            break
    return None if steps is None else float(steps)
