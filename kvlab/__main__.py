"""``python -m kvlab`` is the ``kvlab`` command."""

from __future__ import annotations

import sys

from kvlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
