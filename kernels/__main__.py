"""`python -m traceanalyzer.kernels NAME... [--on gpu|emulator] [--reduced]`: run the cases, one line each.

`traceanalyze kernels check` does the same with the toolkit's output. This needs nothing but numpy: it is what
sanitizers and profilers are put in front of.
"""

from __future__ import annotations

import argparse
import sys

from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.kernels import KERNELS, find
from traceanalyzer.kernels.common import checks


def main() -> int:
    """Returns the exit code: 1 where a case is wrong, 4 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m traceanalyzer.kernels", description="Run the cases of kernels.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--on", choices=("gpu", "emulator"), default="gpu")
    parser.add_argument("--reduced", action="store_true", help="leave out the cases of full size")
    options = parser.parse_args()
    wrong = 0
    try:
        kernels = [find(name) for name in options.names] or KERNELS
        on = checks.backend(options.on)
        for outcome in checks.run(kernels, on, full=options.on == "gpu" and not options.reduced):
            print(f"{outcome.kernel}  {outcome.case}: {outcome.fault or 'ok'}", flush=True)  # noqa: T201
            wrong += outcome.fault is not None
    except TraceAnalyzerError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
