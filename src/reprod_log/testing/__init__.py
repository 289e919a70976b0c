"""testing: alignment inside a test suite: `assert_aligned`, and the fixture `reprod`, which keeps baselines."""

from reprod_log.testing.aligned import assert_aligned

__all__ = ["assert_aligned"]
