"""What an operator has to move and to compute, from its recorded shapes: the least that any kernel could do."""

from traceanalyzer.analyses.costs.operators import Cost, cost_of
from traceanalyzer.analyses.costs.tensors import Call, Tensor, parse_call

__all__ = ["Call", "Cost", "Tensor", "cost_of", "parse_call"]
