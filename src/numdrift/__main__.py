"""`python -m numdrift` is the command line."""

from numdrift.harness.cli import main

main()
