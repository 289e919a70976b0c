"""Settings of the whole suite."""

from hypothesis import settings

# The same examples every time: a test that fails must fail again. Longer, random searches belong to fuzzing.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")
