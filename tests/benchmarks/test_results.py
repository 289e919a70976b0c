"""benchmarks/results.py: several benchmarks share one file of results."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", ROOT / "benchmarks" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_section_is_replaced_and_the_others_stay_when_it_is_written_again(
    results: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "RESULTS.md"
    results.write_section("Recording", "first", path=path)
    results.write_section("Measuring", "other\n\n### inside\n\nmore", path=path)
    before = path.read_text()
    results.write_section("Recording", "second", path=path)
    assert path.read_text() == before.replace("first", "second")
    results.write_section("Measuring", "other\n\n### inside\n\nmore", path=path)
    assert path.read_text() == before.replace("first", "second")


def test_a_text_with_headings_of_other_sections_is_refused(results: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="second level"):
        results.write_section("Recording", "## Measuring\nwrong", path=tmp_path / "RESULTS.md")
