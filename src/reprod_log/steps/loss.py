"""Loss: the same output and the same label give the same loss."""

from reprod_log.steps.subject import Subject

SUBJECT = Subject(
    name="loss",
    title="loss",
    words=("loss", "losses", "criterion"),
    limits=("mean_abs:1e-6",),
    why="the guides' threshold",
)
