"""``python -m pytest_fib``: one subcommand for each module of `commands`."""

import sys

from pytest_fib.commands import main

if __name__ == "__main__":
    sys.exit(main())
