"""steps: the alignment steps by subject, and plans of them.

`steps.forward`, `steps.lr` and so on are Subjects; `subject.py` describes what each of them has.
"""

from __future__ import annotations

from reprod_log.errors import UsageError, listed
from reprod_log.steps.initialization import init
from reprod_log.steps.models import backward, forward, inference, training
from reprod_log.steps.optimizers import optimizer, regularization
from reprod_log.steps.schedules import lr
from reprod_log.steps.subject import Subject
from reprod_log.steps.values import data, loss, metric

SUBJECTS = (data, forward, metric, loss, optimizer, lr, regularization, backward, init, training, inference)
"""In the order of the guides."""
GUIDE_ORDER = tuple(subject.name for subject in SUBJECTS)


def subject_named(name: str) -> Subject:
    """The subject of this name."""
    for subject in SUBJECTS:
        if subject.name == name:
            return subject
    raise UsageError(f"no step is called {name!r}; known are {listed(GUIDE_ORDER, most=20)}")
