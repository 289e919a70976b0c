"""Whole programs with their ports, one file each: a mistake is one changed line of such a file (`../lines.py`)."""
