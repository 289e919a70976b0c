"""Each file: torch references, their paddle formulations with hand-written converters, and the table PORTS."""
