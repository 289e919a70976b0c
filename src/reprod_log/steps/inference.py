"""Inference: the exported engine gives what the training engine gives."""

from reprod_log.steps.subject import Subject

SUBJECT = Subject(
    name="inference",
    title="inference engine",
    words=("output", "infer", "inference", "export", "deploy"),
    limits=("mean_abs:1e-5",),
    why="the guides' threshold for fused inference kernels",
)
