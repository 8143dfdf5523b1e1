"""Standard output whose reader has left (`| head`): no error, and nothing more to say."""

from __future__ import annotations

import os
import sys


def abandon_standard_output() -> None:
    """Send what is still buffered nowhere, or Python complains about it once more when it ends."""
    try:
        descriptor = sys.__stdout__.fileno() if sys.__stdout__ else sys.stdout.fileno()
    except (OSError, ValueError):
        return  # no real file stands behind it
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
