"""Makes a copy of source and tests in which every mutant of a group is planted, asleep until it is named."""

from __future__ import annotations

import ast
import difflib
import json
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from groups import NOT_MUTATED, PATTERNS, Group

ROOT = Path(__file__).parents[2]
# Tests that look for examples must not look for small ones too: the first failure is all that is asked.
_SETTINGS = """
from hypothesis import Phase
settings.register_profile(
    "mutants", derandomize=True, database=None, deadline=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("mutants")
"""


@dataclass(frozen=True)
class Mutant:
    """One planted fault: its name, the function it is in, and the lines it takes away and puts there."""

    name: str
    function: str
    changed: tuple[str, ...]

    @property
    def key(self) -> str:
        """What stays the same when other mutants of the function come and go."""
        return "\n".join((self.function, *self.changed))


def plant(group: Group, place: Path) -> None:
    """Write the copy, with mutants.json naming all of them."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__", "corpus"))
    with (place / "tests" / "conftest.py").open("a") as conftest:
        conftest.write(_SETTINGS)
    (place / "pytest.ini").write_text(
        "[pytest]\npythonpath = tests src\nmarkers =\n    slow: long\nfilterwarnings =\n    default\n"
    )
    (place / "setup.cfg").write_text(
        "[mutmut]\nsource_paths=\n    src/\nmax_stack_depth=-1\ndo_not_mutate_patterns=\n"
        + "".join(f"    {one}\n" for one in PATTERNS)
    )
    package = place / "src" / "reprod_log"
    files = sorted({path for one in group.modules for path in package.glob(one)})
    wanted = [str(path.relative_to(place)) for path in files if str(path.relative_to(package)) not in NOT_MUTATED]
    # mutmut reads its settings from the folder it runs in, once for a process.
    subprocess.run([sys.executable, str(Path(__file__).resolve()), *wanted], cwd=place, check=True)


def mutants_of(place: Path) -> list[Mutant]:
    """Every mutant that is planted in the copy."""
    rows = json.loads((place / "mutants.json").read_text())
    return [Mutant(row["name"], row["function"], tuple(row["changed"])) for row in rows]


def _plant_here(paths: list[str]) -> list[Mutant]:
    from mutmut.mutation.file_mutation import mutate_file_contents  # type: ignore[import-not-found, unused-ignore]

    made = []
    for name in paths:
        path = Path(name)
        planted = mutate_file_contents(name, path.read_text())
        path.write_text(planted.code)
        module = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
        bodies = _bodies(planted.code)
        for mutant in planted.mutant_names:
            function = mutant.rpartition("__mutmut_")[0]
            changed = _changed(bodies[function + "__mutmut_orig"], bodies[mutant])
            made.append(Mutant(f"{module}.{mutant}", f"{module}.{_plain(function)}", changed))
    return made


def _plain(mangled: str) -> str:
    """The name of a function or method as its author wrote it."""
    return mangled.removeprefix("x_") if mangled.startswith("x_") else mangled.removeprefix("xǁ").replace("ǁ", ".")


def _bodies(code: str) -> dict[str, list[str]]:
    """The lines of every function by its name, of methods too."""
    lines = code.splitlines()
    found = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            body = lines[node.lineno - 1 : node.end_lineno]
            found[node.name] = [body[0].replace(node.name, ""), *body[1:]]
    return found


def _changed(before: list[str], after: list[str]) -> tuple[str, ...]:
    differing = difflib.unified_diff(before, after, lineterm="", n=0)
    return tuple(
        line[0] + " " + line[1:].strip() for line in differing if line[:1] in "+-" and line[:3] not in ("+++", "---")
    )


if __name__ == "__main__":
    rows = [asdict(one) for one in _plant_here(sys.argv[1:])]
    Path("mutants.json").write_text(json.dumps(rows, indent=1))
