"""Forward pass: the same weights and the same input give the same output."""

from reprod_log.steps.subject import Subject

SUBJECT = Subject(
    name="forward",
    title="forward pass",
    words=("forward", "model", "logits", "network"),
    limits=("mean_abs:1e-6",),
    why="the guides' threshold",
)
