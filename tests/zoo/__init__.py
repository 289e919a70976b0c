"""The zoo: planted mistakes and healthy ports, each one file, run by `make zoo` (tests/zoo/run.py)."""
