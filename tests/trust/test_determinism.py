"""The same inputs give the same verdict and the same bytes of JSON: twice, on 1 and 2 threads, in another process."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np

from reprod_log import Recording, align
from reprod_log.report.formats.json import render


def sides() -> tuple[Recording, Recording]:
    chance = np.random.default_rng(3)
    truth = {
        f"step{step}/forward/layer{n}#0:output": chance.normal(size=(7, 33)) for step in range(2) for n in range(9)
    }
    truth["step0/loss/loss"] = np.array(2.5)
    truth["step0/data/x"] = chance.integers(0, 9, 50)
    truth["step1/forward/large#0:output"] = chance.normal(size=300_000)
    found = []
    for seed in (1, 2):
        noise = np.random.default_rng(seed)
        arrays = {}
        for key, value in truth.items():
            exact = value.dtype.kind == "i"
            shaken = value if exact else (value * (1 + 1e-7 * noise.normal(size=value.shape))).astype(np.float32)
            arrays[key] = shaken
            if not exact:
                arrays[f"float64@{key}"] = value
        found.append(Recording.from_arrays(arrays))
    return found[0], found[1]


def not_cleared() -> tuple[Recording, Recording]:
    """Gradients of the second step with those of the first still in them, for parameters of many names."""
    chance = np.random.default_rng(4)
    steps = [{f"layer{n}.weight": chance.normal(size=(5, 6)) for n in range(12)} for _ in range(2)]
    kept = [steps[0], {name: steps[0][name] + steps[1][name] for name in steps[0]}]
    ours, theirs = (
        {f"step{step}/gradient/{name}:raw": value for step, found in enumerate(side) for name, value in found.items()}
        for side in (steps, kept)
    )
    return Recording.from_arrays(ours), Recording.from_arrays(theirs)


def written(threads: int) -> str:
    return render(align(*sides(), threads=threads)) + render(align(*not_cleared(), threads=threads))


def test_json_is_the_same_to_the_byte_when_made_again() -> None:
    assert written(1) == written(1)


def test_json_is_the_same_to_the_byte_on_one_and_two_threads() -> None:
    one, two, four = (written(threads) for threads in (1, 2, 4))
    assert one == two == four
    assert '"passed": true' in one
    assert "are not cleared in the candidate" in one


def test_json_is_the_same_to_the_byte_in_another_process(tmp_path: Path) -> None:
    program = (
        "import hashlib; from trust.test_determinism import written; "
        "print(hashlib.sha256(written(2).encode()).hexdigest())"
    )
    usual = {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    answers = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            cwd=Path(__file__).parents[1], env={**usual, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert answers == {hashlib.sha256(written(1).encode()).hexdigest()}


def test_same_recording_gives_the_same_file_to_the_byte(tmp_path: Path) -> None:
    recording = sides()[0]
    for suffix in (".safetensors", ".npy", ".npz"):
        first, second = (recording.save(tmp_path / f"{name}{suffix}").read_bytes() for name in ("a", "b"))
        if suffix == ".npz":
            # A zip keeps the time of each member.
            assert len(first) == len(second)
        else:
            assert first == second
