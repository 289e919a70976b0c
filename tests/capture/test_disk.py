"""A disk that refuses stops the recording, never the training."""

import errno
from pathlib import Path

import numpy as np
import pytest

from reprod_log import load
from reprod_log.capture import watch
from reprod_log.errors import RecordingError, UsageError
from trust.faulty_files import Layer, error_of, faulty


class FullDisk(Layer):
    """A disk with room for two steps, and for what little is written besides."""

    def step(self, path):
        shards = Path(self.folder) / "rec" / "shards"
        return Path(path).parent == shards and len(list(shards.glob("*.safetensors"))) >= 2 and super().step(path)


def test_training_goes_on_when_the_disk_is_full(lab, trained, tmp_path):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with (
        pytest.warns(UserWarning, match="the recording is incomplete.*No space left"),
        faulty(FullDisk(tmp_path, 1, error_of(errno.ENOSPC), lasting=True)),
        watch(model, optimizer=optimizer, save=tmp_path / "rec") as run,
    ):
        losses = trained(lab, model, optimizer, steps=5)
    assert len(losses) == 5
    assert not run.recording.complete
    assert run.recording.steps == (0, 1)
    again = load(tmp_path / "rec")
    assert not again.complete
    assert any("recording stopped at 'step2/" in note and "No space left" in note for note in map(str, again.notes))


def test_training_goes_on_when_the_path_cannot_be_written(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with (
        pytest.warns(UserWarning, match="nothing was recorded: /dev/null/rec cannot be written"),
        watch(model, optimizer=optimizer, save="/dev/null/rec") as run,
    ):
        losses = trained(lab, model, optimizer, steps=2)
    assert len(losses) == 2
    assert not run.recording.complete
    assert "cannot be written" in str(run.recording.notes[0])


def test_recording_stays_in_memory_when_its_file_cannot_be_written_at_the_end(lab, trained):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with (
        pytest.warns(UserWarning, match="the recording is incomplete"),
        watch(model, optimizer=optimizer, save="/dev/null/rec.npz") as run,
    ):
        trained(lab, model, optimizer, steps=1)
    assert not run.recording.complete
    assert np.isfinite(run.recording["step0/loss/loss"].array())


def test_folder_with_something_else_in_it_is_refused_at_once(lab, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RecordingError, match="not a recording"):
        watch(lab.models.Mlp(), save=tmp_path).__enter__()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_older_recording_is_kept_until_the_block_is_entered(lab, tmp_path):
    model = lab.models.Mlp()
    with watch(model, save=tmp_path / "rec"):
        model(lab.tensor(2, 3))
    run = watch(model, save=tmp_path / "rec")
    assert len(load(tmp_path / "rec")) > 0
    with pytest.raises(UsageError, match="nothing is being recorded yet"):
        run.log("x", 1.0)


def test_what_was_written_can_be_read_while_training_goes_on(lab, trained, tmp_path):
    model = lab.models.Mlp()
    optimizer = lab.sgd(model.parameters())
    with watch(model, optimizer=optimizer, save=tmp_path / "rec"):
        trained(lab, model, optimizer, steps=3)
        growing = load(tmp_path / "rec")
        assert growing.steps == (0, 1)
        assert not growing.complete
        assert growing.provenance.framework == lab.name
    assert load(tmp_path / "rec").complete
