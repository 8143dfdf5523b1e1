"""What can go wrong with a kernel, as errors that are shown in one line."""

from __future__ import annotations

from traceanalyzer.errors import TraceAnalyzerError


class ArgumentError(TraceAnalyzerError, ValueError):
    """An argument of a kernel has the wrong type, shape or place; the message begins with its name."""

    exit_code = 2


class CompilerError(TraceAnalyzerError):
    """No compiler for kernels was found, or it refused."""


class DriverError(TraceAnalyzerError):
    """A call of the CUDA driver failed."""


class EmulatorError(TraceAnalyzerError):
    """The emulator could not be built, or saw a kernel do what a GPU does not define."""


class MismatchError(TraceAnalyzerError):
    """A kernel's result is not that of its reference."""
