"""`python -m reprod_log` is the command `reprod`."""

from reprod_log.cli import main

main()
