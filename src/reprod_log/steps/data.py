"""Data reading: length of the data set, its samples, and batches without shuffling."""

from reprod_log.steps.subject import Subject

SUBJECT = Subject(
    name="data",
    title="data reading",
    words=("data", "dataset", "dataloader", "dataload"),
    limits=("max_abs:0",),
    why="the same file read by the same rule gives the same bits",
)
