"""`reprod baseline` and `reprod bisect`: one program before and after something changed."""

import base64
import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from reprod_log.cli import run
from reprod_log.cli.versions import first_change

SCRIPT = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4, eps={eps}), torch.nn.Linear(4, 2))
net(torch.randn(3, 4)).sum().backward()
"""


@pytest.mark.parametrize("changed", range(1, 9))
@pytest.mark.parametrize("unusable", [(), (4,), (3, 4, 5), (1, 7)])
def test_search_ends_at_the_change_or_at_what_cannot_be_used_beside_it(changed: int, unusable: tuple[int, ...]) -> None:
    asked: list[int] = []

    def same(place: int) -> bool | None:
        asked.append(place)
        return None if place in unusable else place < changed

    good, bad = first_change(9, same)
    assert good < changed <= bad
    assert all(place in unusable for place in range(good + 1, bad))
    assert len(asked) == len(set(asked))


def test_search_asks_as_few_versions_as_halving_needs() -> None:
    asked: list[int] = []
    assert first_change(1025, lambda place: asked.append(place) or place < 700) == (699, 700)
    assert len(asked) == 10


@pytest.mark.usefixtures("torch_is_loaded")
def test_baseline_passes_as_it_was_and_fails_when_the_program_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "model.py"
    script.write_text(SCRIPT.format(eps=1e-5))
    assert run(["baseline", "record", "--plain", "base", "model.py"]) == 0
    size = sum(file.stat().st_size for file in (tmp_path / "base").rglob("*") if file.is_file())
    assert run(["baseline", "check", "base", "model.py"]) == 0
    script.write_text(SCRIPT.format(eps=1e-2))
    assert run(["baseline", "check", "base", "model.py"]) == 1
    assert "step 0 · forward · 1 · output" in capfd.readouterr().out
    assert size < 500_000


def test_baseline_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text("")
    assert run(["baseline", "check", str(tmp_path / "absent"), str(tmp_path / "model.py")]) == 2
    assert "there is no baseline" in capsys.readouterr().err


@pytest.mark.usefixtures("torch_is_loaded")
def test_bisect_names_the_commit_and_the_layer_that_changed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    git("init")
    for title, eps in (("begin", 1e-5), ("another epsilon", 1e-2), ("later", 1e-2)):
        (tmp_path / "model.py").write_text(SCRIPT.format(eps=eps) + f"# {title}\n")
        git("add", "model.py")
        git("commit", "-m", title)
    (tmp_path / "model.py").write_text("raise SystemExit('not what was committed')")
    monkeypatch.chdir(tmp_path)
    assert run(["bisect", "--plain", "--json", "-", "HEAD~2", "HEAD", "model.py"]) == 1
    shown = capfd.readouterr()
    first = subprocess.run(["git", "rev-parse", "HEAD~1"], check=True, capture_output=True, text=True).stdout.strip()
    assert json.loads(shown.out)["first_change"] == first
    assert "another epsilon" in shown.err
    assert "forward · 1 · output" in shown.err
    assert len(subprocess.run(["git", "worktree", "list"], check=True, capture_output=True).stdout.splitlines()) == 1


@pytest.mark.usefixtures("torch_is_loaded")
def test_bisect_does_not_take_what_proves_nothing_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    dead = "import torch\nnet = torch.nn.ReLU()\nnet(torch.zeros(1, 2))"
    for at in range(2):
        (tmp_path / "model.py").write_text(f"{dead}  # {at}\n")
        for line in ("init", "add model.py", "-c user.name=a -c user.email=a@example.org commit -m step"):
            subprocess.run(["git", "-C", str(tmp_path), *line.split()], check=True, capture_output=True)
    monkeypatch.chdir(tmp_path)
    assert run(["bisect", "--plain", "HEAD~1", "HEAD", "model.py"]) == 2
    assert "NOT PROVEN" in capfd.readouterr().out


@pytest.mark.whole
def test_bisect_runs_each_release_of_a_package_beside_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for version, factor in (("1.0", 1), ("1.1", 2)):
        _wheel(tmp_path / "wheels", version, f"FACTOR = {factor}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("from scale import FACTOR\n" + SCRIPT.format(eps="1e-5 * FACTOR"))
    assert run(["bisect", "--plain", "--package", "scale", "1.0", "1.1", "model.py"]) == 1
    assert "first change: scale 1.1" in capfd.readouterr().out
    assert run(["bisect", "--package", "scale", "1.0", "3.0", "model.py"]) == 2
    assert "pip knows no scale 3.0; it knows 1.0, 1.1" in capfd.readouterr().err


def _wheel(folder: Path, version: str, source: str) -> None:
    folder.mkdir(exist_ok=True)
    about = f"scale-{version}.dist-info"
    files = {
        "scale.py": source,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: scale\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(folder / f"scale-{version}-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)


def _digest(content: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
