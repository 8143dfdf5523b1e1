"""Why nobody knows where a kernel comes from, in words, and what would tell."""

from __future__ import annotations

#: Why the group of a kernel is unknown, in words.
REASONS = {
    "no-correlation": "no correlation id",
    "no-launch": "launch call not recorded",
    "graph-replay": "replayed from a graph",
    "no-operators": "no operators recorded",
    "no-python": "no python calls recorded",
    "no-modules": "no nn.Module calls recorded",
    "no-annotations": "no annotations recorded",
    "no-shapes": "no input shapes recorded",
    "outside": "launched outside of all",
}
#: How to record what would tell.
REMEDIES = {
    "no-launch": "record from before the launch, with ProfilerActivity.CPU",
    "graph-replay": "--capture FILE takes a trace of the capture of the graph",
    "no-operators": "record with ProfilerActivity.CPU",
    "no-python": "record with with_stack=True",
    "no-modules": "record with with_stack=True, or with_modules=True for TorchScript",
    "no-annotations": "mark ranges with torch.profiler.record_function",
    "no-shapes": "record with record_shapes=True",
}
