"""The errors a user can cause or meet, each with the exit code of the command line."""

from __future__ import annotations


class TraceAnalyzerError(Exception):
    """Base of all errors that are shown as one line, never as a traceback."""

    exit_code = 1


class UsageError(TraceAnalyzerError):
    """The request itself is wrong: an unknown option value, a pattern that does not compile."""

    exit_code = 2


class UnreadableError(TraceAnalyzerError):
    """A file that cannot be read, or is no event trace."""

    exit_code = 3

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnreadableError], tuple[str, str]]:
        """An error of another process arrives as it was."""
        return type(self), (self.path, self.reason)


class NotATraceError(UnreadableError):
    """A file that was read and holds something else: JSON, but no event trace."""


class NeedsGpuError(TraceAnalyzerError):
    """A GPU (or the torch that drives it) was needed and is absent."""

    exit_code = 4


class OutputError(TraceAnalyzerError):
    """The result cannot be written: no permission, no space, a folder in the way."""

    exit_code = 2

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
