"""`python -m traceanalyzer` is `traceanalyze`."""

from __future__ import annotations

import sys

from traceanalyzer.cli import main

if __name__ == "__main__":
    sys.exit(main())
