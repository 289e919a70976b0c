"""What `reprod run` listens to besides a watched model fails without harm to the script."""

import os
from pathlib import Path

import pytest

from reprod_log.capture.script import run_script
from reprod_log.errors import CaptureError
from trust.watched_training import ERRORS, failing

SCRIPT = """
import os, sys
import torch
os.environ.get("FIRST"); os.environ.get("SECOND")
torch.manual_seed(0)
nets = [torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)]
losses = []
for net in nets:
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        opt.zero_grad()
        loss = net(torch.ones(4, 3)).square().mean()
        loss.backward(); opt.step(); losses.append(loss.item())
with open(sys.argv[1], "w") as file:
    file.write(repr(losses))
"""
PLACES = (
    "capture.script._Watcher._made",
    "capture.script._Watcher._take",
    "capture.script._Watcher._settle",
    "capture.script._Watcher._adopt",
    "capture.script._Watcher._attach_optimizers",
    "capture.script._Watcher.imported",
    "capture.script.program_of",
    "capture.provenance._is_read_by_the_user",
)
ONCE = ("imported", "program_of")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("place", PLACES)
def test_script_goes_on_when_what_looks_for_its_models_fails(place: str, error: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run_script(script, [str(tmp_path / "right")])
    kind = type(os.environ)
    with failing(place, ERRORS[error], 1 if place.endswith(ONCE) else 2) as fault:
        try:
            whole = run_script(script, [str(tmp_path / "now")]).complete
        except CaptureError:
            # Nothing was recorded, which is an error once the script has ended.
            whole = False
    # Without what ran, the recording has all its entries.
    assert whole is place.endswith("program_of")
    assert fault.happened
    assert (tmp_path / "now").read_text() == (tmp_path / "right").read_text()
    assert type(os.environ) is kind
