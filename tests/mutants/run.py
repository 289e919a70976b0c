"""Mutation testing of the parts that decide: plants faults in a copy and asks whether the tests notice them.

    python tests/mutants/run.py                 every group
    python tests/mutants/run.py judge           one group; the copy stays in build/mutants/judge
    python tests/mutants/run.py judge --report  what the last run of it found

    python tests/mutants/run.py measure --only "*7"   every tenth mutant, by the last digit of its number

Each group names the modules and the smallest set of quick tests that holds them; those without a framework, so that a
mutant costs a fraction of a second. Survivors are listed; those in EQUIVALENT change nothing that can be seen.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINE = re.compile(r"^\s+(reprod_log\S+): (survived|no tests|timeout|suspicious|killed|segfault)", re.MULTILINE)

# mutmut 3.8 asks for an attribute that pytest 9 no longer has.
_NODE_ID = "\nimport pytest\n\npytest.Item._nodeid = property(lambda self: self.nodeid)\n"


@dataclass(frozen=True)
class Group:
    """Modules and the tests that are asked about them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


GROUPS = {
    "judge": Group(("judge/*",), ("tests/judge/test_calibrated_cases.py", "tests/judge/test_fixed_cases.py")),
    "calibrate": Group(("calibrate/*",), ("tests/calibrate/test_noise_floor.py",)),
    "match": Group(
        ("match/*",),
        ("tests/match/test_by_name.py", "tests/match/test_matching_cases.py", "tests/match/test_matching_details.py"),
    ),
    "measure": Group(
        ("measure/*",),
        (
            "tests/measure/test_exact_cases.py",
            "tests/measure/test_comparison_cases.py",
            "tests/measure/test_metrics.py",
            "tests/measure/test_elements.py",
            "tests/measure/test_small.py",
            "tests/measure/test_sketch_comparison.py",
        ),
    ),
}
NOT_MUTATED = ("measure/build_kernel.py",)
# Wording is held by the reports' own tests; an annotation or a type variable changes nothing that runs.
PATTERNS = ("raise \\w+", "from error$", "TYPE_CHECKING")


def prepare(name: str) -> Path:
    """A copy of source and tests with mutmut's settings."""
    group, place = GROUPS[name], ROOT / "build" / "mutants" / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    folders = {Path(test).parent for test in group.tests}
    for folder in folders:
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__", "corpus"))
    settings = (ROOT / "tests" / "conftest.py").read_text()
    (place / "tests" / "conftest.py").write_text(settings + _NODE_ID)
    listing = "\n".join(f"    src/reprod_log/{one}" for one in group.modules)
    (place / "setup.cfg").write_text(
        "[mutmut]\nsource_paths=\n    src/\n"
        f"only_mutate=\n{listing}\n"
        "do_not_mutate=\n" + "\n".join(f"    src/reprod_log/{one}" for one in NOT_MUTATED) + "\n"
        "also_copy=\n    tests/\n    pytest.ini\n"
        "do_not_mutate_patterns=\n" + "\n".join(f"    {one}" for one in PATTERNS) + "\n"
        # Workers that start without having run a test: caches of earlier tests would hide mutants.
        "process_isolation=forkserver\n"
        "pytest_add_cli_args=\n    -x\n    -p\n    no:cacheprovider\n    -k\n    not (small and kernel)\n"
        "pytest_add_cli_args_test_selection=\n" + "\n".join(f"    {one}" for one in group.tests) + "\n"
    )
    (place / "pytest.ini").write_text("[pytest]\npythonpath = tests\nmarkers =\n    slow: long\n")
    return place


def survivors(place: Path) -> tuple[dict[str, int], list[str]]:
    """How many mutants had which fate, and the names of those that lived."""
    counts: dict[str, int] = {}
    lived = []
    for path in sorted((place / "mutants").rglob("*.meta")):
        for name, code in json.loads(path.read_text()).get("exit_code_by_key", {}).items():
            fate = {None: "not run", 0: "survived", 33: "no tests", 5: "no tests", 34: "skipped"}.get(code, "killed")
            counts[fate] = counts.get(fate, 0) + 1
            if fate in ("survived", "no tests"):
                lived.append(name)
    return counts, lived


@cache
def _bodies(path: Path) -> dict[str, list[str]]:
    """The lines of every function of a mutated file, by its name."""
    lines = path.read_text().splitlines()
    return {
        node.name: lines[node.lineno : node.end_lineno]
        for node in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(node, ast.FunctionDef)
    }


def change(place: Path, mutant: str) -> list[str]:
    """The lines in which a mutant differs from the original."""
    module, _, function = mutant.rpartition(".")
    path = place / "mutants" / "src" / (module.replace(".", "/") + ".py")
    bodies = _bodies(path if path.exists() else path.with_suffix("") / "__init__.py")
    original = bodies.get(function.rsplit("__mutmut_", 1)[0] + "__mutmut_orig", [])
    changed = difflib.unified_diff(original, bodies.get(function, []), lineterm="", n=0)
    return [line for line in changed if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def run(name: str, *, wanted: list[str]) -> None:
    """Try every mutant of a group, in a copy under build/."""
    place = prepare(name)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", os.environ.get("CHILDREN", "1"), *wanted]
    answer = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    (place / "run.log").write_text(answer.stdout[-200_000:] + answer.stderr)
    if not (place / "mutants").is_dir():
        raise SystemExit(answer.stdout[-3000:] + answer.stderr[-3000:])


def report(name: str) -> tuple[int, int]:
    """How many mutants died, and how many there were without the equivalent ones."""
    place = ROOT / "build" / "mutants" / name
    counts, lived = survivors(place)
    known = set((Path(__file__).parent / "equivalent.txt").read_text().split())
    left = [one for one in lived if one not in known]
    judged = counts.get("killed", 0) + len(left)
    share = counts.get("killed", 0) / judged if judged else 0.0
    print(f"{name}: {counts}; equivalent {len(lived) - len(left)}; {share:.1%} killed", flush=True)
    for one in left:
        print(f"    {one}", *(f"        {line}" for line in change(place, one)), sep="\n")
    return counts.get("killed", 0), judged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=[])
    parser.add_argument("--report", action="store_true", help="say again what the last run found")
    parser.add_argument("--only", action="append", default=[], help="a pattern of mutants' names")
    options = parser.parse_args()
    results = []
    for name in options.groups or GROUPS:
        if not options.report:
            run(name, wanted=options.only)
        results.append(report(name))
    return 0 if all(died >= 0.9 * judged and judged for died, judged in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
