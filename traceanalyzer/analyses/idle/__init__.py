"""Why a device stands idle: every gap, cut into pieces by what the host did meanwhile."""

from traceanalyzer.analyses.idle.causes import CAUSES
from traceanalyzer.analyses.idle.gaps import DEFINITIONS, by_cause, by_host, idle_gaps

__all__ = ["CAUSES", "DEFINITIONS", "by_cause", "by_host", "idle_gaps"]
