"""Planted mistakes, one file each: `MISTAKE`."""
