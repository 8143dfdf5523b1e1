"""Why a device stands idle: every gap, cut into pieces by what the host did meanwhile."""

from traceanalyzer.analyses.idle.causes import CAUSES
from traceanalyzer.analyses.idle.doubts import idle_doubts
from traceanalyzer.analyses.idle.gaps import (
    DEFINITIONS,
    Gaps,
    by_cause,
    by_host,
    caused_gaps,
    gaps_and_host,
    idle_gaps,
    launched_activity,
)
from traceanalyzer.analyses.idle.lengths import by_length
from traceanalyzer.analyses.idle.places import by_place

__all__ = [
    "CAUSES",
    "DEFINITIONS",
    "Gaps",
    "by_cause",
    "by_host",
    "by_length",
    "by_place",
    "caused_gaps",
    "gaps_and_host",
    "idle_doubts",
    "idle_gaps",
    "launched_activity",
]
