"""Large and busy recordings: `make load` runs the heavy ends, tests/load/test_load.py small forms of the same."""
