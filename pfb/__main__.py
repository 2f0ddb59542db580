"""``python -m pfb``: the command line."""

import sys

from pfb.cli import main

if __name__ == "__main__":
    sys.exit(main())
