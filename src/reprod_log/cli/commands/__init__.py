"""commands: one file per command of `reprod`; each has NAME and run, a typer function that returns the exit code."""
