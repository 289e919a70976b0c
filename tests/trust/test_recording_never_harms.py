"""An exception of ours stops the recording, never the training, whose numbers stay those of the unwatched run."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from reprod_log.recording import Recording
from reprod_log.recording.stores import load
from trust.watched_training import ERRORS, PLACES, Outcome, failing, train

FRAMEWORKS = ("torch", "paddle")
SCALER = ("Gradients.unscaled", "Losses.scaled", "Updates.unscaled", "ModelRun._skipped")
"""Paddle's scaler works on accelerators only."""
AT_THE_END = ("ModelRun._finish", "Recorder.close", "FolderWriter.close")
WRITER = ("recorder.Background.", "folder.FolderWriter.")


@cache
def unwatched(framework: str) -> Outcome:
    return train(framework, watched=False)


@cache
def whole(framework: str) -> Recording:
    outcome = train(framework)
    assert outcome.recording is not None
    assert outcome.recording.complete
    return outcome.recording


def agrees(found: Recording, framework: str) -> None:
    """What is there has the numbers of the whole recording."""
    reference = whole(framework)
    for entry in found:
        np.testing.assert_array_equal(entry.array(), reference[entry.key].array())


CASES = [
    pytest.param(framework, place, error, id=f"{framework}-{place.split('.', 2)[2]}-{error}")
    for framework in FRAMEWORKS
    for place in PLACES
    for error in ERRORS
    if framework == "torch" or not place.endswith(SCALER)
]


@pytest.mark.parametrize(("framework", "place", "error"), CASES)
def test_training_goes_on_when_the_recording_fails(framework: str, place: str, error: str, tmp_path: Path) -> None:
    at = 1 if place.endswith((*AT_THE_END, "_skipped")) else 2
    with failing(place, ERRORS[error], at) as fault:
        outcome = train(framework, tmp_path / "rec")
    assert fault.happened
    assert outcome.numbers == unwatched(framework).numbers
    assert len(outcome.warnings) == 1
    recording = outcome.recording
    assert recording is not None
    assert not recording.complete
    assert any(error.removesuffix("Error") in str(note) or "No space left" in str(note) for note in recording.notes)
    assert not load(tmp_path / "rec").complete
    agrees(load(tmp_path / "rec"), framework)
