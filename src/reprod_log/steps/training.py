"""Training: the final score of a real training run, within the tolerance of the contest."""

from reprod_log.steps.subject import Subject

SUBJECT = Subject(
    name="training",
    title="training accuracy",
    words=("train", "training"),
    limits=("mean_abs:0.0015",),
    why="the guides' tolerance for a score in [0, 1] after independent training runs",
)
