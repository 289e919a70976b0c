"""Metric: the same predictions give the same score."""

from reprod_log.steps.subject import Subject

SUBJECT = Subject(
    name="metric",
    title="metric",
    words=("metric", "metrics", "eval", "acc", "val"),
    limits=("mean_abs:1e-6",),
    why="the guides' threshold",
)
