"""A proven setting as a patch: the line that makes the layer, with that setting, and nothing else."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reprod_log.diagnose.finding import Finding, Fix
from reprod_log.diagnose.patches import with_patch
from reprod_log.messages import message
from reprod_log.recording import ModuleInfo

SOURCE = "class Net:\n    def __init__(self):\n        self.norm = {call}\n        self.last = Counter()\n"


class Norm:
    def __init__(self, size: int, eps: float = 1e-5, affine: bool = True) -> None: ...


def found(*layers: str, value: Any = 1e-6, **facts: Any) -> Finding:
    fixes = tuple(Fix(layer, {"eps": value}) for layer in layers)
    return Finding("layer_setting", message("word.the_loss"), (), facts.pop("confidence", "proven"), fixes=fixes)


def module(path: str, line: str) -> ModuleInfo:
    return ModuleInfo(path, "Norm", origin=f"{__name__}.Norm", line=line)


def patched(tmp_path: Path, call: str, finding: Finding | None = None, *others: str) -> Finding:
    file = tmp_path / "net.py"
    file.write_text(SOURCE.format(call=call), encoding="utf-8")
    modules = {path: module(path, f"{file}:3") for path in ("norm", *others)}
    return with_patch(finding or found("norm"), modules, {path: path for path in modules})


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("nn.Norm(8, eps=1e-3)", "nn.Norm(8, eps=1e-06)"),
        ("nn.Norm(8, 1e-3)", "nn.Norm(8, 1e-06)"),
        ("Norm(8)", "Norm(8, eps=1e-06)"),
        ("Norm(8, affine=False)", "Norm(8, affine=False, eps=1e-06)"),
    ],
)
def test_setting_is_written_where_it_stands_or_added(tmp_path: Path, call: str, after: str) -> None:
    one = patched(tmp_path, call)
    assert f"-        self.norm = {call}\n+        self.norm = {after}\n" in one.patch
    assert after in str(one.advice[-1])
    assert Finding.from_dict(one.to_dict()).patch == one.patch


@pytest.mark.parametrize("call", ["Norm(*sizes)", "Norm(8, **more)", "make_norm(8)", "[Norm(8), Norm(8)][0]"])
def test_call_that_is_not_plain_has_no_patch(tmp_path: Path, call: str) -> None:
    assert patched(tmp_path, call).patch == ""


def test_line_that_also_makes_a_layer_that_is_right_has_no_patch(tmp_path: Path) -> None:
    assert patched(tmp_path, "Norm(8)", None, "other").patch == ""
    assert patched(tmp_path, "Norm(8)", found("norm", "other"), "other").patch


def test_hint_has_no_patch(tmp_path: Path) -> None:
    assert patched(tmp_path, "Norm(8)", found("norm", confidence="hint")).patch == ""


def test_source_is_not_changed(tmp_path: Path) -> None:
    patched(tmp_path, "Norm(8)")
    assert Counter((tmp_path / "net.py").read_text(encoding="utf-8").splitlines())["        self.norm = Norm(8)"] == 1
