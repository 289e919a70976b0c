"""The zoo: planted mistakes and correct ports in tables, run by `make zoo` (tests/zoo/run.py)."""
