"""Hostile files, crashes, faults of the disk, threads, and what a program finds changed after using reprod_log."""
