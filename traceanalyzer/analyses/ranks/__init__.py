"""Which rank is slow, and who waits: parts of each file, put together."""

from traceanalyzer.analyses.ranks.compare import DEFINITIONS, Imbalance, imbalance
from traceanalyzer.analyses.ranks.part import RankPart, rank_parts

__all__ = ["DEFINITIONS", "Imbalance", "RankPart", "imbalance", "rank_parts"]
