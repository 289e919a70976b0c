"""No port of the table passes, and the right ones do."""

from collections.abc import Sequence
from typing import Any

import pytest

from reprod_log import align_models
from reprod_log.errors import ReprodLogError
from sampling import sampled
from trust.wrong_ports import INPUTS, Net, Port, ports, two

THEMES = ports()
PORTS = {name: port for theme in THEMES for name, port in theme.items()}


@pytest.fixture(autouse=True)
def without_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Causes are proven by running again, which takes most of the time and changes no verdict."""

    def as_found(case: Any, findings: Sequence[Any], *_: Any) -> Sequence[Any]:
        return findings

    monkeypatch.setattr("reprod_log.alignment.models.proven", as_found)


def passes(port: Port) -> bool:
    try:
        return align_models(port.reference(), port.candidate(), INPUTS, **port.given).passed
    except ReprodLogError:
        # Refused with a reason, which is not a pass.
        return False


def test_there_are_enough_of_them() -> None:
    assert len(PORTS) >= 100


@pytest.mark.parametrize("port", [Port(Net), two(lambda h: h)], ids=["one model", "two models"])
def test_right_port_passes(port: Port) -> None:
    assert passes(port)


@pytest.mark.parametrize("name", [name for theme in THEMES for name in sampled(theme, 8)])
def test_no_wrong_port_passes(name: str) -> None:
    assert not passes(PORTS[name])
