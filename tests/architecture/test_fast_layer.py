"""`pytest --fast` leaves out what needs a framework or a browser, and nothing else."""

from pathlib import Path

import pytest

from fast import is_heavy

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("source", "heavy"),
    [
        ("import torch", True),
        ("from paddle.nn import Linear", True),
        ("def test_it():\n    import torch.nn as nn", True),
        ("from playwright.sync_api import Page", True),
        ("from reprod_log.frameworks.torch import modules", True),
        ('torch = pytest.importorskip("torch")', True),
        ('PACKAGES = ("paddle.nn",)\nfound = importlib.import_module(PACKAGES[0])', True),
        ('found = import_module("json")', False),
        ('PROGRAM = """\nimport numpy\nimport torch\n"""', True),
        ('command = ["-c", "import sys; import paddle"]', True),
        ('FOLDER = ROOT / "examples" / "alexnet"', True),
        ("import light", False),
        ("import heavy", True),
        ("import through", True),
        ('"""What torch does."""\nname = "torch"', False),
        ('text = "weights from torch are turned"', False),
        ("import torchless", False),
    ],
)
def test_file_is_heavy_when_it_reaches_a_framework(tmp_path: Path, source: str, heavy: bool) -> None:
    (tmp_path / "heavy.py").write_text("import paddle", encoding="utf-8")
    (tmp_path / "through.py").write_text("import light\nfrom heavy import x", encoding="utf-8")
    (tmp_path / "light.py").write_text("import through_nothing\nimport light", encoding="utf-8")
    test = tmp_path / "test_made.py"
    test.write_text(source, encoding="utf-8")
    assert is_heavy(test) is heavy


def test_folder_is_heavy_when_its_conftest_imports_a_framework_at_the_top(tmp_path: Path) -> None:
    assert not is_heavy(tmp_path)
    for name, source, heavy in (("top", "import torch", True), ("fixture", "def made():\n    import torch", False)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "conftest.py").write_text(source, encoding="utf-8")
        assert is_heavy(tmp_path / name) is heavy


def test_folders_of_this_suite_are_on_the_side_where_they_belong() -> None:
    assert [name for name in ("browser", "capture", "examples", "report", "recording") if is_heavy(TESTS / name)] == [
        "browser",
        "capture",
        "examples",
    ]
    assert is_heavy(TESTS / "transfer" / "test_transfer_rules.py")
    assert not is_heavy(TESTS / "report" / "test_view.py")
