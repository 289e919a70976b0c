"""Which modules are mutated together, and which quick tests are asked about them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """Modules (patterns under src/reprod_log) and the tests (patterns under tests) that are asked about them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    """Tests left out: other processes, compilers, frameworks; what they hold must be held by quick ones too."""
    once: str = ""
    """Python that runs before the first mutant, for what all tests share and no mutant can change."""


GROUPS = {
    "verdict": Group(("verdict/**/*.py",), ("verdict/test_*.py",)),
    "pairing": Group(
        ("pairing/**/*.py",), ("pairing/test_*.py",), without=("test_blocks_cut_elsewhere", "test_matching_model_pairs")
    ),
    "measure": Group(
        ("measure/**/*.py",),
        ("measure/test_*.py",),
        without=("test_build_hook", "test_spread.py", "test_a_variant_that_does_not_compile"),
        once="import ways; ways.compiled('kernel'); ways.compiled('plain kernel')",
    ),
}

# The compiler's own steps: what they make is tested, and a mutant of them would compile for seconds.
NOT_MUTATED = ("measure/build_kernel.py",)
# Wording is held by the reports' own tests; an annotation or a type variable changes nothing that runs.
PATTERNS = ("raise \\w+", "from error$", "TYPE_CHECKING")
