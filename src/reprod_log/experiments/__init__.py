"""live: two models at hand instead of two recordings. Runs them in every way that a verdict needs, then compares."""
