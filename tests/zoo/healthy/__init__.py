"""Correct ports, one file each: `HEALTHY`."""
