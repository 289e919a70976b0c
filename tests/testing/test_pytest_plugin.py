"""The fixture `reprod`, in runs of pytest of its own: records, compares, updates, and fails the way a test should."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from reprod_log import load
from reprod_log.testing.plugin import file_name

TEST = """
import numpy as np
import pytest

SHIFT = {shift}

def test_layer(reprod):
    reprod.add("logits", np.arange(4.0) + SHIFT)
    reprod.add("state", {{"h": np.ones(2), "c": [np.zeros(1)]}})

@pytest.mark.parametrize("size", [1, 2])
def test_sizes(reprod, size):
    reprod.add("x", np.ones(size) * (1 + SHIFT * 1e-4))
    reprod.judge_by(limits=["max_abs:1e-2"])

class TestGroup:
    def test_layer(self, reprod):
        reprod.add("y", np.float32(3))
"""


# Runs of pytest inside this one: a process of their own would cost seconds each.
pytest_plugins = ["pytester"]
INSTALLED = any(one.value == "reprod_log.testing.plugin" for one in entry_points(group="pytest11"))


class Project:
    """A folder with one test file, and runs of pytest in it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.path = pytester.path

    def run(self, *arguments: str, content: str | None = None, process: bool = False) -> tuple[int, str]:
        if content is not None:
            (self.path / "test_it.py").write_text(content)
        ours = () if INSTALLED else ("-p", "reprod_log.testing.plugin")
        start = self._pytester.runpytest_subprocess if process else self._pytester.runpytest_inprocess
        answer = start("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *ours, *arguments)
        return int(answer.ret), answer.stdout.str() + answer.stderr.str()

    @property
    def baselines(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.path.rglob("*.safetensors"))}


@pytest.fixture
def empty(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder without baselines."""
    monkeypatch.setenv("COLUMNS", "200")
    # The second run must see a test file that changed within the same second.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    pytester.makeini("[pytest]")
    return Project(pytester)


@pytest.fixture
def project(empty: Project) -> Project:
    """A folder whose tests have their baselines."""
    code, out = empty.run("--reprod-update", content=TEST.format(shift=0))
    assert code == 0, out
    return empty


def test_missing_baseline_fails_and_says_what_to_do(empty: Project) -> None:
    code, out = empty.run(content=TEST.format(shift=0))
    assert code == 1
    assert "4 failed" in out
    assert "there is no baseline" in out
    assert "run pytest --reprod-update for this test and commit the file" in out
    assert empty.baselines == {}


def test_update_writes_one_file_per_test_beside_it(project: Project) -> None:
    folder = project.path / "reprod_baselines" / "test_it"
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 4
    assert "test_layer.safetensors" in names
    assert sum(name.startswith("test_sizes_1-") for name in names) == 1
    assert sum(name.startswith("TestGroup_test_layer-") for name in names) == 1
    recorded = load(folder / "test_layer.safetensors")
    assert recorded.keys == ("logits", "state.h", "state.c.0")
    assert recorded.provenance.time == ""


def test_same_values_pass_against_their_baseline(project: Project) -> None:
    code, out = project.run()
    assert code == 0
    assert "4 passed" in out


def test_other_values_fail_with_the_first_screen_and_no_code_of_ours(project: Project) -> None:
    code, out = project.run(content=TEST.format(shift=1))
    assert code == 1
    assert "1 failed, 3 passed" in out
    assert "NOT ALIGNED: 1 fail; 2 of 3 entries pass" in out
    assert "first divergence: logits  FAIL" in out
    assert "baseline.py" not in out


def test_limits_of_a_test_judge_its_baseline(project: Project) -> None:
    assert "test_sizes" not in project.run(content=TEST.format(shift=1))[1].split("short test summary")[-1]
    assert "3 failed" in project.run(content=TEST.format(shift=1000))[1]


def test_update_accepts_new_values_and_names_what_it_wrote(project: Project) -> None:
    before = project.baselines
    code, out = project.run("--reprod-update", content=TEST.format(shift=1))
    assert code == 0
    assert "written: " in out
    assert "3 written, 1 unchanged" in out
    after = project.baselines
    assert sum(before[name] != after[name] for name in before) == 3
    assert project.run()[0] == 0


def test_update_with_the_same_values_changes_no_byte(project: Project) -> None:
    before = project.baselines
    _, out = project.run("--reprod-update")
    assert "0 written, 4 unchanged" in out
    assert project.baselines == before


def test_update_works_in_several_processes(project: Project) -> None:
    code, out = project.run("--reprod-update", "-n", "2", content=TEST.format(shift=1), process=True)
    assert code == 0
    assert "3 written, 1 unchanged" in out


def test_failed_baseline_gets_an_html_report_when_asked_for(project: Project) -> None:
    code, out = project.run("--reprod-report", "reports", content=TEST.format(shift=1))
    assert code == 1
    assert "report: reports" in out
    assert [path.name for path in (project.path / "reports").iterdir()] == ["test_it.test_layer.html"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("pass", "recorded nothing"),
        ("reprod.add('x', 1.0); reprod.add('x', 2.0)", "'x' was recorded twice"),
        ("reprod.add('x', None)", "has no tensor"),
        ("reprod.add('x', 1.0); reprod.use(reprod_log.Recording(()))", "not both"),
    ],
)
def test_wrong_use_of_the_fixture_fails(empty: Project, body: str, message: str) -> None:
    for options in ((), ("--reprod-update",)):
        code, out = empty.run(*options, content=f"import reprod_log\ndef test_it(reprod):\n    {body}\n")
        assert code == 1
        assert message in out
        assert empty.baselines == {}


def test_test_that_fails_by_itself_keeps_its_own_message_and_writes_nothing(empty: Project) -> None:
    content = "def test_it(reprod):\n    reprod.add('x', 1.0)\n    assert 1 == 2\n"
    code, out = empty.run("--reprod-update", content=content)
    assert code == 1
    assert "assert 1 == 2" in out
    assert "no baseline" not in out
    assert empty.baselines == {}


def test_check_gives_the_alignment_to_the_test(project: Project) -> None:
    content = TEST.format(shift=0) + "\ndef test_more(reprod):\n    reprod.add('x', 1.0)\n    found = reprod.check()\n"
    project.run("--reprod-update", content=content)
    code, out = project.run(content=content + "    assert found.passed and len(found.comparison.rows) == 1\n")
    assert code == 0, out


def test_watched_model_is_kept_as_a_baseline(empty: Project) -> None:
    content = """
import torch
from reprod_log import watch

def test_model(reprod):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    with watch(model) as run:
        model(torch.ones(2, 3))
    reprod.use(run.recording)
"""
    assert empty.run("--reprod-update", content=content)[0] == 0
    code, out = empty.run()
    assert code == 0, out
    code, out = empty.run(content=content.replace("manual_seed(0)", "manual_seed(1)"))
    assert code == 1
    assert "first divergence:" in out


def test_folder_for_baselines_can_be_chosen(empty: Project) -> None:
    (empty.path / "tox.ini").write_text("[pytest]\nreprod_baselines = kept\n")
    empty.run("--reprod-update", content=TEST.format(shift=0))
    assert len(list((empty.path / "kept" / "test_it").iterdir())) == 4


def test_file_names_are_safe_and_different() -> None:
    names = ["test_a[x/y]", "test_a[x\\y]", "test_a[x y]", "test_a[..]", "test_a[é]", "test_a", "A::test_a"]
    made = [file_name(name) for name in names]
    assert len(set(made)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzA_.-0123456789") for name in made)
    assert len(file_name("x" * 1000)) < 120


def test_plugin_is_declared_for_pytest_to_find() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nreprod_log = "reprod_log.testing.plugin"' in text


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    program = "import sys, reprod_log.testing.plugin; print('jinja2' in sys.modules, 'rich' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]


def test_text_and_numbers_of_any_kind_can_be_kept(empty: Project) -> None:
    content = "def test_it(reprod):\n    reprod.add('t', 'text')\n    reprod.add('b', True)\n    reprod.add('z', 1j)\n"
    assert empty.run("--reprod-update", content=content)[0] == 0
    assert empty.run()[0] == 0


def test_failure_is_told_once(project: Project) -> None:
    _, out = project.run(content=TEST.format(shift=1))
    assert out.split("short test summary")[0].count("NOT ALIGNED") == 1
    assert "During handling" not in out


def test_damaged_baseline_is_told_and_can_be_updated(project: Project) -> None:
    name = next(project.path.rglob("test_layer.safetensors"))
    name.write_text("<<<<<<< a merge gone wrong")
    code, out = project.run()
    assert code == 1
    assert "the baseline cannot be read" in out
    assert "--reprod-update" in out
    assert "tensorfile.py" not in out
    code, out = project.run("--reprod-update")
    assert code == 0
    assert "1 written, 3 unchanged" in out
    assert project.run()[0] == 0
