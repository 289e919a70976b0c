"""Training loops that feed other data, or keep gradients."""

from zoo.bases import cnn, gan, mlp
from zoo.plants import step
from zoo.trial import Mistake, Plant, Trial


def fed(change) -> Plant:
    """A step that changes its images before it trains on them."""

    def other_step(model, optimizer, inputs, targets):
        cnn.paddle_loss(model(**{**inputs, "x": change(inputs["x"])}), targets).backward()
        optimizer.step()
        optimizer.clear_grad()

    return step(other_step)


def repeat_a_batch(trial: Trial) -> Trial:
    """Step 2 is given the batch of step 1."""
    seen = []

    def other_step(model, optimizer, inputs, targets):
        seen.append(inputs)
        given = seen[-2] if len(seen) % 4 == 3 else inputs
        mlp.paddle_loss(model(**given), targets).backward()
        optimizer.step()
        optimizer.clear_grad()

    return trial.with_candidate_step(other_step)


def step_that_clears_nothing(model, optimizer, inputs, targets):
    cnn.paddle_loss(model(**inputs), targets).backward()
    optimizer.step()


def gan_step_that_clears_one(models, optimizers, inputs, targets):
    gan.paddle_step(models, optimizers, inputs, targets, clear=False)


DATA = ("data",)

MISTAKES = (
    # Channels the other way round.
    Mistake("data_bgr", cnn.trial, fed(lambda x: x.flip(1)), DATA, ("channels",), ("data",), quick=True),
    Mistake(
        "data_normalised_twice", cnn.trial, fed(lambda x: (x - 0.5) / 0.25), DATA, ("normalised",), ("data",)
    ),
    # Samples in another order.
    Mistake("data_order", cnn.trial, fed(lambda x: x.flip(0)), DATA, ("order",), ("data",)),
    Mistake("data_other_step", mlp.trial, repeat_a_batch, DATA, ("batch of step",), ("step2/data",)),
    # The discriminator keeps the generator's gradients.
    Mistake(
        "gan_not_cleared", gan.trial, step(gan_step_that_clears_one),
        ("gradients_kept",), ("cleared",), ("gradient/discriminator",),
    ),
    Mistake(
        "gradients_not_cleared", cnn.trial, step(step_that_clears_nothing),
        ("gradients_kept",), ("cleared",), ("step1/gradient",),
    ),
)  # fmt: skip
