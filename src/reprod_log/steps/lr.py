"""Learning rate: two schedulers stepped side by side give the same rate at every step."""

from reprod_log.steps.subject import Subject

SUBJECT = Subject(
    name="lr",
    title="learning rate",
    words=("lr", "scheduler", "schedule", "learning"),
    limits=("max_rel:1e-6",),
    why="relative to the rate: the guides' absolute 1e-6 is 3 % of a rate of 3e-5",
)
