"""reprod run: our options before the script or after it, and the script's own left to it."""

import pytest

from reprod_log.cli.app import command
from reprod_log.cli.commands.run import options_first


@pytest.mark.parametrize(
    ("given", "arranged"),
    [
        ("-o ref train.py --steps 3", "-o ref train.py --steps 3"),
        ("--output=ref train.py -o mine", "--output=ref train.py -o mine"),
        ("train.py -o ref", "-o ref train.py"),
        ("train.py -o ref --dtype float64 --lr 0.1", "-o ref --dtype float64 train.py --lr 0.1"),
        ("train.py -o ref -- --steps 3", "-o ref train.py --steps 3"),
        ("--steps 3 train.py --output=ref data", "--steps 3 --output=ref train.py data"),
        ("train.py", "train.py"),
        ("train.py --lr 0.1 -o ref", "train.py --lr 0.1 -o ref"),
        ("", ""),
        ("--help", "--help"),
    ],
)
def test_options_come_before_the_script(given: str, arranged: str) -> None:
    assert options_first(given.split(), command(["run"]).commands["run"]) == arranged.split()
