"""Words that users choose from, apart from what they choose: the command line lists them without loading polars."""

from __future__ import annotations

from typing import Literal, get_args

#: What `top_kernels` groups by.
By = Literal["name", "short", "class", "op", "module", "annotation", "stack", "shape"]
#: Those of them that say where kernels come from on the host.
Origin = Literal["op", "module", "annotation", "stack", "shape"]
#: Those of them whose groups lie in each other.
NESTED: tuple[Origin, ...] = ("op", "module", "annotation")
#: What its rows are ordered by.
Sort = Literal["total", "self", "count", "mean", "p50", "p99", "min", "max", "sm_fill", "name"]
#: What the rows of the audit of class rules are ordered by.
AuditSort = Literal["unclassified", "total", "count", "class", "rule", "name"]
#: What `occupancy` groups by, and what its rows are ordered by.
LaunchBy = Literal["launch", "kernel"]
OccupancySort = Literal["idle", "total", "count", "occupancy", "sm_fill", "tail", "name"]
#: What a report is written as.
Format = Literal["table", "json", "csv", "md", "parquet"]
#: What a plot is written as, by the ending of its file name.
PlotFormat = Literal["png", "svg"]

BYS: tuple[By, ...] = get_args(By)
ORIGINS: tuple[Origin, ...] = get_args(Origin)
SORTS: tuple[Sort, ...] = get_args(Sort)
AUDIT_SORTS: tuple[AuditSort, ...] = get_args(AuditSort)
LAUNCH_BYS: tuple[LaunchBy, ...] = get_args(LaunchBy)
OCCUPANCY_SORTS: tuple[OccupancySort, ...] = get_args(OccupancySort)
PLOT_FORMATS: tuple[PlotFormat, ...] = get_args(PlotFormat)
FORMATS: tuple[Format, ...] = get_args(Format)
