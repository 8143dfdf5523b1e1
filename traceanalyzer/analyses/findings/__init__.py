"""The few sentences that a senior engineer would write about a trace, each with its evidence."""

from traceanalyzer.analyses.findings.finding import DEFINITIONS, SCHEMA, Finding
from traceanalyzer.analyses.findings.run import findings

__all__ = ["DEFINITIONS", "SCHEMA", "Finding", "findings"]
