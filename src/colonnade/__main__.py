"""`python -m colonnade`: the command line."""

import sys

from colonnade.party.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
