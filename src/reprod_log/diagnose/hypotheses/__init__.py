"""rules: one file per cause or suspicion.

A rule module has a docstring that says what it looks for and why, and

    look(case: Case) -> Iterable[Finding]

It reads numbers and never changes a verdict; on a healthy pair it stays silent.
"""
