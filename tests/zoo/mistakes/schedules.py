"""Learning rates that follow another schedule, or none."""

from paddle.optimizer import lr

from zoo.bases import bert, cnn, lstm, mlp
from zoo.plants import optimizer
from zoo.trial import Mistake, Plant


def schedule(make, kind, *arguments, **more) -> Plant:
    """The optimizer of `make` with a schedule of its own each time: a schedule counts its steps."""
    return optimizer(lambda model: make(model, schedule=kind(*arguments, **more)))


def one_step_ahead(model):
    made, rates = lstm.paddle_optimizer(model)
    rates.step()
    return made, rates


def other_warm_up(step: int) -> float:
    return min((step + 1) / 2, 1.0) * (1 - step / 20)


RULES, PLACE = ("learning_rate",), ("/lr/",)

MISTAKES = (
    # A cosine of half the length.
    Mistake(
        "lr_cycles", mlp.trial, schedule(mlp.paddle_optimizer, lr.CosineAnnealingDecay, 0.5, 6),
        RULES, ("length", "cycles"), PLACE,
    ),
    Mistake(
        "lr_double", cnn.trial, schedule(cnn.paddle_optimizer, lr.StepDecay, 0.2, 2, 0.5),
        RULES, ("2 times",), PLACE, quick=True,
    ),
    Mistake("lr_early", lstm.trial, optimizer(one_step_ahead), RULES, ("off by one", "0.9 times"), PLACE),
    # A cosine that ends higher.
    Mistake(
        "lr_end", mlp.trial, schedule(mlp.paddle_optimizer, lr.CosineAnnealingDecay, 0.5, 12, eta_min=0.05),
        RULES, ("higher",), PLACE,
    ),
    Mistake(
        "lr_gamma", lstm.trial, schedule(lstm.paddle_optimizer, lr.ExponentialDecay, 5e-3, 0.8),
        RULES, ("gamma",), PLACE,
    ),
    # Another step size.
    Mistake(
        "lr_milestone", cnn.trial, schedule(cnn.paddle_optimizer, lr.StepDecay, 0.1, 1, 0.5),
        RULES, ("falls at other steps",), PLACE,
    ),
    Mistake(
        "lr_never_stepped", cnn.trial, optimizer(lambda model: cnn.paddle_optimizer(model)[0]),
        RULES, ("never stepped",), PLACE,
    ),
    Mistake(
        "lr_warm_up", bert.trial, schedule(bert.paddle_optimizer, lr.LambdaDecay, 1e-2, other_warm_up),
        RULES, ("warm-up",), PLACE,
    ),
)  # fmt: skip
