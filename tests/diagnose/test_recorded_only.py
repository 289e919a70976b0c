"""Two recorded scripts without a cause: the report tells what live models would add."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reprod_log import Recording, align
from reprod_log.recording import Key, ModuleInfo
from reprod_log.recording.recording import entry_of

OUTPUT = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


def recorded(folder: Path, name: str, output: np.ndarray, *, modules: bool = True) -> Recording:
    entry = entry_of(Key("fc", "forward", 0, 0, "output"), output)
    found = (ModuleInfo("fc", "Linear", "linear"),) if modules else ()
    return replace(Recording((entry,)), modules=found, source=str(folder / name))


@pytest.mark.parametrize(("modules", "told"), [(True, 1), (False, 0)])
def test_failure_without_a_cause_tells_what_live_models_would_add(tmp_path: Path, modules: bool, told: int) -> None:
    other = np.random.default_rng(1).normal(size=OUTPUT.shape).astype(np.float32)
    sides = [recorded(tmp_path, name, one, modules=modules) for name, one in (("a", OUTPUT), ("b", other))]
    rules = [one.rule for one in align(sides[0], sides[1]).findings]
    assert rules.count("recorded_only") == told


def test_recordings_that_pass_need_no_live_models(tmp_path: Path) -> None:
    found = align(recorded(tmp_path, "a", OUTPUT), recorded(tmp_path, "b", OUTPUT.copy()))
    assert "recorded_only" not in [one.rule for one in found.findings]
