"""Backward pass: losses, gradients and updates of several iterations from equal weights and data."""

from reprod_log.steps.subject import Subject

SUBJECT = Subject(
    name="backward",
    title="backward pass",
    words=("bp", "backward", "backprop", "grad", "gradient", "gradients"),
    limits=("mean_abs:1e-6",),
    why="the guides' threshold",
)
