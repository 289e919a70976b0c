"""Mutation testing of the parts that decide: plants faults in a copy and asks whether the tests notice them.

    python tests/mutants/run.py                     every group
    python tests/mutants/run.py judge               one group; the copy stays in build/mutants/judge
    python tests/mutants/run.py judge --report      what the last run of it found
    python tests/mutants/run.py judge --survivors   tries again only those that lived, after tests were added

A run that was stopped goes on where it was when neither source nor tests have changed. mutmut makes the mutants;
trying.py tries them. Survivors are listed; those in equivalent.txt change nothing that can be seen. CHILDREN processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from groups import GROUPS, Group
from planting import ROOT, Mutant, mutants_of, plant

HERE = Path(__file__).parent
LIVED = ("survived", "no tests", "broken")


def fates(place: Path) -> dict[str, str]:
    """What became of every mutant that was tried."""
    path = place / "results.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {row["name"]: row["fate"] for row in rows}


def prepare(group: Group, place: Path, *, survivors: bool) -> None:
    """Make the copy anew unless nothing changed; with `survivors` the killed ones stay killed."""
    mark = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        mark.update(str(path).encode() + path.read_bytes())
    stamp = place / "stamp.txt"
    if stamp.exists() and stamp.read_text() == mark.hexdigest() and not survivors:
        return
    killed = {}
    if survivors and stamp.exists():
        names = {one.name: one.key for one in mutants_of(place)}
        killed = {names[name]: fate for name, fate in fates(place).items() if fate not in LIVED}
    plant(group, place)
    kept = [{"name": one.name, "fate": killed[one.key]} for one in mutants_of(place) if one.key in killed]
    (place / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    stamp.write_text(mark.hexdigest())


def run(name: str, *, survivors: bool, only: list[str], seconds: float) -> None:
    """Try every mutant of a group that has no fate yet."""
    group, place = GROUPS[name], ROOT / "build" / "mutants" / name
    prepare(group, place, survivors=survivors)
    known = fates(place)
    left = [one.name for one in mutants_of(place) if one.name not in known]
    left = [one for one in left if not only or any(fnmatch(one, pattern) for pattern in only)]
    if not left:
        return
    tests = sorted({str(path.relative_to(place)) for one in group.tests for path in (place / "tests").glob(one)})
    choice = " and ".join(f"not {one}" for one in group.without)
    children = int(os.environ.get("CHILDREN", "1"))
    running = []
    for number in range(children):
        wanted = place / f"wanted{number}.txt"
        wanted.write_text("\n".join(left[number::children]))
        command = [sys.executable, "-m", "pytest", "-p", "trying", "-p", "no:cacheprovider", "-qs", "--tb=no"]
        command += ["--assert=plain", f"--basetemp={place / f'temporary{number}'}", "-k", choice, *tests]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join((str(place / "src"), str(HERE))),
            "MUTANTS_WANTED": str(wanted),
            "MUTANTS_ONCE": group.once,
            "MUTANTS_SECONDS": str(seconds),
        }
        with (place / f"run{number}.log").open("w") as log:
            running.append(subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log))
    ends = [one.wait() for one in running]
    if any(ends):
        raise SystemExit((place / "run0.log").read_text()[-3000:])


def equivalent() -> frozenset[str]:
    """The mutants that change nothing that can be seen: function and changed lines, as equivalent.txt has them."""
    blocks = (HERE / "equivalent.txt").read_text().split("\n\n")
    lines = ([line.strip() for line in block.splitlines() if line.strip()] for block in blocks)
    # A block is the reason (#), the function, and the lines that the mutant takes away and puts there.
    return frozenset("\n".join(line for line in block if not line.startswith("#")) for block in lines)


_SAME_EVERYWHERE = {
    "strict=True is there to catch our own mistakes": r",? *strict=\w+|, *(?=\))",
    "numpy makes the room that it is not given": r",? *out=(None|[\w.]+(\(.*?\))?(\[[^\]]*\])?)|, *(?=\))",
    "numpy takes None for float64": r"\b(None|np\.float64)\b",
    "numpy takes any negative length for the missing one": r"reshape\(-[12]",
}
"""Changes that cannot be seen wherever they stand; only what no test noticed is asked for them."""


def _is_same_everywhere(one: Mutant) -> bool:
    # A call whose result nobody takes works through its room alone.
    if len(one.changed) != 2 or one.changed[0].startswith("- np."):
        return False
    before, after = (line[1:] for line in one.changed)
    return any(re.sub(pattern, "", before) == re.sub(pattern, "", after) for pattern in _SAME_EVERYWHERE.values())


def report(name: str) -> tuple[int, int, int]:
    """How many mutants died, how many there were without the equivalent ones, and how many were not tried."""
    place = ROOT / "build" / "mutants" / name
    everything, known, same = mutants_of(place), fates(place), equivalent()
    counts = Counter(known.get(one.name, "not tried") for one in everything)
    lived = [one for one in everything if known.get(one.name) in LIVED]
    left = [one for one in lived if one.key not in same and not _is_same_everywhere(one)]
    died = counts["killed"] + counts["died"]
    judged = died + len(left)
    for module, rows in _by_module(left).items():
        for one in rows:
            print(f"    {one.name} {known[one.name]}", *(f"        {line}" for line in one.changed), sep="\n")
        print(f"  {module}: {len(rows)} of {sum(module in other.name for other in everything)} live")
    share = died / judged if judged else 0.0
    print(f"{name}: {len(everything)} mutants, {dict(counts)}; {len(lived) - len(left)} equivalent; {share:.1%} killed")
    return died, judged, counts["not tried"]


def _by_module(mutants: list[Mutant]) -> dict[str, list[Mutant]]:
    found: dict[str, list[Mutant]] = {}
    for one in mutants:
        found.setdefault(one.name.rpartition(".")[0], []).append(one)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=[])
    parser.add_argument("--report", action="store_true", help="say again what the last run found")
    parser.add_argument("--survivors", action="store_true", help="keep what the last run killed")
    parser.add_argument("--only", action="append", default=[], help="a pattern of mutants' names")
    parser.add_argument("--seconds", type=float, default=2.0, help="of tests that a mutant is shown (default 2)")
    options = parser.parse_args()
    results = []
    for name in options.groups or GROUPS:
        if not options.report:
            run(name, survivors=options.survivors, only=options.only, seconds=options.seconds)
        results.append(report(name))
    return 0 if all(died >= 0.9 * judged and judged and not left for died, judged, left in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
