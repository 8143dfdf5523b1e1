"""Repetitions of the main loop: where they are, and what each of them cost."""

from traceanalyzer.analyses.steps.find import Found, find_steps
from traceanalyzer.analyses.steps.times import DEFINITIONS, plain_steps, steps, summary

__all__ = ["DEFINITIONS", "Found", "find_steps", "plain_steps", "steps", "summary"]
