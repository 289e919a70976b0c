"""reprod run: our options before the script or after it, and the script's own left to it."""

import pytest

from reprod_log.cli.app import command
from reprod_log.cli.arguments import options_first


@pytest.mark.parametrize(
    ("given", "arranged"),
    [
        ("run -o ref train.py --steps 3", "run -o ref train.py --steps 3"),
        ("run --output=ref train.py -o mine", "run --output=ref train.py -o mine"),
        ("run train.py -o ref", "run -o ref train.py"),
        ("run train.py -o ref --dtype float64 --lr 0.1", "run -o ref --dtype float64 train.py --lr 0.1"),
        ("run train.py -o ref -- --steps 3", "run -o ref train.py --steps 3"),
        ("run --steps 3 train.py --output=ref data", "run --steps 3 --output=ref train.py data"),
        ("run train.py", "run train.py"),
        ("run train.py --lr 0.1 -o ref", "run train.py --lr 0.1 -o ref"),
        ("run", "run"),
        ("run --help", "run --help"),
    ],
)
def test_options_come_before_the_script(given: str, arranged: str) -> None:
    assert options_first(given.split(), command(["run"]).commands["run"]) == arranged.split()
