"""What a program finds changed after importing reprod_log, after a watch, and after a watch that failed: nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

STATE = """
import gc, json, logging, locale, os, random, signal, sys, threading, warnings

def state():
    found = {
        "logging": [repr(logging.root.handlers), logging.root.level, logging.root.disabled,
                    sorted(n for n in logging.root.manager.loggerDict if "reprod" in n)],
        "warnings": [repr(one) for one in warnings.filters] + [warnings.showwarning.__module__],
        "signals": {str(one): repr(signal.getsignal(one)) for one in signal.valid_signals()},
        "environment": dict(os.environ),
        "hooks": [repr(sys.excepthook), repr(sys.displayhook), repr(sys.unraisablehook), repr(threading.excepthook)],
        "tracing": [repr(sys.gettrace()), repr(sys.getprofile())],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), list(gc.get_threshold()), gc.isenabled()],
        "random": hash(random.getstate()),
        "place": [os.getcwd(), list(sys.path), os.umask(os.umask(0))],
        "streams": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "locale": locale.setlocale(locale.LC_ALL),
        "threads": sorted(one.name for one in threading.enumerate()),
    }
    if "numpy" in sys.modules:
        import numpy
        found["numpy"] = [numpy.geterr(), repr(numpy.geterrcall()), repr(numpy.get_printoptions()),
                          numpy.random.get_state()[1].tolist(), numpy.random.get_state()[2]]
    if "torch" in sys.modules:
        import torch
        found["torch"] = [
            torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(),
            torch.get_num_threads(), torch.get_num_interop_threads(), str(torch.get_default_dtype()),
            torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,
            torch.backends.mkldnn.enabled, torch.get_float32_matmul_precision(),
            torch.get_rng_state().tolist()[:64], repr(torch.get_default_device()),
            len(torch.nn.modules.module._global_forward_hooks), len(torch.nn.modules.module._global_backward_hooks),
            len(torch.nn.modules.module._global_forward_pre_hooks), torch.Tensor.backward.__module__,
            torch.nn.Module.__call__.__qualname__, torch.optim.Optimizer.step.__qualname__,
        ]
    if "paddle" in sys.modules:
        import paddle
        found["paddle"] = [
            paddle.is_grad_enabled(), str(paddle.get_default_dtype()), str(paddle.get_device()),
            paddle.in_dynamic_mode(), {n: repr(v) for n, v in paddle.get_flags(
                ["FLAGS_check_nan_inf"]).items()},
            repr(paddle.get_rng_state()[0].current_seed()), paddle.nn.Layer.__call__.__qualname__,
            paddle.Tensor.backward.__qualname__,
        ]
    return found
"""
COMPARE = """
after = state()
print(json.dumps({name: [repr(before[name])[:2000], repr(after[name])[:2000]]
                  for name in before if before[name] != after[name]}))
"""


def changed_by(prepare: str, act: str, folder: Path) -> dict[str, list[str]]:
    """The parts of the process's state that `act` changed, with their values before and after."""
    program = f"{STATE}\n{prepare}\nbefore = state()\n{act}\n{COMPARE}"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, list[str]] = json.loads(answer.stdout.splitlines()[-1])
    return found


EVERYTHING = """
import reprod_log
for name in reprod_log.__all__:
    getattr(reprod_log, name)
import reprod_log.cli, reprod_log.testing, reprod_log.steps, reprod_log.transfer
"""


def test_importing_everything_changes_nothing(tmp_path: Path) -> None:
    assert changed_by("import numpy", EVERYTHING, tmp_path) == {}


def test_comparing_and_reporting_changes_nothing(tmp_path: Path) -> None:
    act = """
import numpy as np
from reprod_log import Recording, align, write_report, ReprodLogger, ReprodDiffHelper
found = align(Recording.from_arrays({"x": np.ones(3)}), Recording.from_arrays({"x": np.array([1, np.nan, 2])}))
for suffix in ("txt", "md", "json", "xml", "html"):
    write_report(found, f"report.{suffix}")
log = ReprodLogger(); log.add("a", np.ones(2)); log.save("a.npy")
helper = ReprodDiffHelper(); info = helper.load_info("a.npy")
helper.compare_info(info, info); helper.report(path="diff.log")
"""
    assert changed_by("import numpy", act, tmp_path) == {}


WATCHES = {
    "torch": """
import numpy, torch
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
give = lambda: torch.ones(2, 3)
""",
    "paddle": """
import numpy, paddle
model = paddle.nn.Sequential(paddle.nn.Linear(3, 3), paddle.nn.ReLU())
optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
give = lambda: paddle.ones([2, 3])
""",
}
WATCH = """
from reprod_log import watch
import reprod_log.cli
def run(save, breaks):
    with watch(model, optimizer=optimizer, save=save) as found:
        for step in range(3):
            loss = model(give()).sum()
            if breaks == "in the middle" and step == 1:
                raise KeyError("the program's own")
            loss.backward()
            optimizer.step()
            if breaks == "bad input" and step == 1:
                model(give()[:, :2])
    return found
"""


RUNS = """
run("good", "")
for breaks in ("in the middle", "bad input"):
    try:
        run("bad", breaks)
    except Exception as error:
        assert type(error).__module__.partition(".")[0] != "reprod_log", error
    else:
        raise SystemExit("it should have failed")
"""


@pytest.mark.parametrize("framework", WATCHES)
def test_importing_watching_and_failed_watches_change_nothing(tmp_path: Path, framework: str) -> None:
    # The frameworks themselves settle some of their state at the first step.
    prepare = f"{WATCHES[framework]}\nfor one in range(2):\n    model(give()).sum().backward()"
    assert changed_by(prepare, f"{EVERYTHING}\n{WATCH}\n{RUNS}", tmp_path) == {}


def test_change_would_be_noticed(tmp_path: Path) -> None:
    act = """
import numpy, torch
logging.basicConfig(); warnings.simplefilter("ignore"); os.environ["X_Y"] = "1"; signal.signal(signal.SIGUSR1, print)
numpy.seterr(all="ignore"); random.random(); numpy.random.rand(); torch.set_num_threads(2); torch.rand(1)
torch.use_deterministic_algorithms(True)
"""
    found = changed_by("import numpy, torch; torch.set_num_threads(1)", act, tmp_path)
    assert set(found) >= {"logging", "warnings", "environment", "signals", "numpy", "random", "torch"}
