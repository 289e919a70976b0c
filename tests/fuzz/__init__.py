"""Fuzzing of everything that reads a file: `make fuzz` runs long, tests/fuzz/test_*.py a little in `make test`."""
