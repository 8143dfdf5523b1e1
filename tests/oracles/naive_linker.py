"""A linker as simple as can be: dicts by id, one list of open spans per thread, one event at a time.

The reference for `traceanalyzer.analyses.links`. It takes the public tables as lists of dicts, shares no code with the
package, and is meant to be read in one sitting. It is strict where the package forgives: spans nest exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

Row = dict[str, Any]


def link(tables: dict[str, list[Row]]) -> list[Row]:
    """One row per kernel: rows of launch, op, root_op, annotation, module, python_call, and why there is no op."""
    kernels, launches, ops = tables["kernels"], tables["launches"], tables["ops"]
    launch_of = _launches(kernels, launches)
    arrows = _arrows(tables["flows"], ops)
    sites: list[Row | None] = [
        arrows.get((kernel["source"], kernel["stream"], kernel["start_ns"])) if launch is None else launches[launch]
        for kernel, launch in zip(kernels, launch_of, strict=True)
    ]
    around_op = _around(ops, sites, lambda _: True)
    named = _named_by_external_id(kernels, ops, around_op)
    forwards = _forwards(ops)
    rows: list[Row] = []
    forward_sites: list[Row | None] = []
    for number, kernel in enumerate(kernels):
        chain = around_op[number]
        if (op := named[number]) is not None:
            chain = chain[: chain.index(op) + 1] if op in chain else _chain(ops, op)
            sites[number] = sites[number] or ops[op]
        row = {"launch": launch_of[number], "op": chain[-1] if chain else None, "root_op": chain[0] if chain else None}
        row["forward_op"] = _forward(ops, chain, forwards)
        rows.append({**row, "reason": _reason(kernel, row, launches, ops)})
        forward_sites.append(None if row["forward_op"] is None else ops[row["forward_op"]])
    calls = tables["python_calls"]
    for key, table, wanted in (
        ("annotation", tables["annotations"], lambda span: not span["on_device"]),
        ("module", calls, lambda span: span["name"].startswith("nn.Module: ")),
        ("python_call", calls, lambda span: "): " in span["name"] and "(" in span["name"]),
    ):
        own = _around(table, sites, wanted)
        of_forward = _around(table, forward_sites, wanted) if key != "annotation" else [[] for _ in rows]
        for row, chain, other in zip(rows, own, of_forward, strict=True):
            found = chain or other
            row[key] = found[-1] if found else None
    return rows


def _arrows(flows: list[Row], ops: list[Row]) -> dict[Any, Row]:
    """By source, stream and time where arrows end: the start of one, from a thread with operators if there is one."""
    threads = {(op["source"], op["pid"], op["tid"]) for op in ops}
    starts: dict[Any, list[Row]] = defaultdict(list)
    for flow in flows:
        if flow["phase"] == "s":
            starts[flow["source"], flow["category"], flow["id"]].append(flow)
    found: dict[Any, list[Row]] = defaultdict(list)
    for flow in flows:
        if flow["phase"] == "f":
            end = (flow["source"], (flow["tid"] or "").removeprefix("stream "), flow["time_ns"])
            found[end] += starts[flow["source"], flow["category"], flow["id"]]
    arrows = {}
    for end, from_ in found.items():
        from_.sort(key=lambda f: ((f["source"], f["pid"], f["tid"]) not in threads, f["time_ns"], f["id"]))
        if from_:
            arrows[end] = {**from_[0], "start_ns": from_[0]["time_ns"]}
    return arrows


def _forwards(ops: list[Row]) -> dict[Any, list[tuple[int, int]]]:
    """The forward operators of each sequence number: start and row."""
    found: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for number, op in enumerate(ops):
        if op["sequence_number"] is not None and not op["forward_thread"]:
            found[op["source"], op["sequence_number"]].append((op["start_ns"], number))
    return found


def _forward(ops: list[Row], chain: list[int], forwards: dict[Any, list[tuple[int, int]]]) -> int | None:
    """The latest forward operator that bears the number of the innermost backward one of the chain."""
    for number in reversed(chain):
        op = ops[number]
        if op["sequence_number"] is not None and (op["forward_thread"] or 0) > 0:
            mine = [each for each in forwards[op["source"], op["sequence_number"]] if each[0] <= op["start_ns"]]
            return max(mine)[1] if mine else None
    return None


def _by_id(launches: Iterable[Row]) -> dict[Any, list[tuple[int, int]]]:
    calls: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for number, call in enumerate(launches):
        if call["correlation"] is not None:
            calls[call["source"], call["correlation"]].append((call["start_ns"], number))
    return calls


def _launches(kernels: list[Row], launches: list[Row]) -> list[int | None]:
    by_id = _by_id(launches)
    return [_launch(kernel, by_id) for kernel in kernels]


def _launch(kernel: Row, calls: dict[Any, list[tuple[int, int]]]) -> int | None:
    """The nearest call before the kernel, else the first after it."""
    mine = calls.get((kernel["source"], kernel["correlation"]), []) if kernel["correlation"] is not None else []
    before = [call for call in mine if call[0] <= kernel["start_ns"]]
    if before:
        return max(before)[1]
    return min(mine)[1] if mine else None


def _around(spans: list[Row], sites: list[Row | None], wanted: Callable[[Row], bool]) -> list[list[int]]:
    """The chain of spans that are open where each site starts, the outermost first."""
    events: dict[Any, list[tuple[int, int, int, int, int]]] = defaultdict(list)
    for number, span in enumerate(spans):
        if wanted(span):
            key = (span["source"], span["pid"], span["tid"])
            events[key].append((span["start_ns"], 0, -span["duration_ns"], number, span["duration_ns"]))
    for number, site in enumerate(sites):
        if site is not None:
            events[site["source"], site["pid"], site["tid"]].append((site["start_ns"], 1, 0, number, 0))
    found: list[list[int]] = [[] for _ in sites]
    for thread in events.values():
        open_: list[tuple[int, int]] = []
        for start, is_site, _, number, duration in sorted(thread):
            open_ = [span for span in open_ if span[1] > start]
            if is_site:
                found[number] = [span[0] for span in open_]
            elif duration > 0:
                open_.append((number, start + duration))
    return found


def _chain(ops: list[Row], op: int) -> list[int]:
    """An operator and those around it, by looking at all of them."""
    mine = ops[op]
    end = mine["start_ns"] + mine["duration_ns"]
    around = [
        (other["start_ns"], -other["duration_ns"], number)
        for number, other in enumerate(ops)
        if (other["source"], other["pid"], other["tid"]) == (mine["source"], mine["pid"], mine["tid"])
        and (other["start_ns"], -other["duration_ns"], number) < (mine["start_ns"], -mine["duration_ns"], op)
        and other["start_ns"] + other["duration_ns"] >= end
        and other["start_ns"] + other["duration_ns"] > mine["start_ns"]
    ]
    return [number for _, _, number in sorted(around)] + [op]


def _named_by_external_id(kernels: list[Row], ops: list[Row], around_op: list[list[int]]) -> list[int | None]:
    """The operator that External id names, in sources where such names agree with the times."""
    by_id: dict[Any, int] = {}
    for number, row in enumerate(ops):
        by_id.setdefault((row["source"], row["external_id"]), number)
    named: list[int | None] = []
    compared: dict[int, list[bool]] = defaultdict(list)
    repeats: dict[int, bool] = defaultdict(lambda: True)
    for number, kernel in enumerate(kernels):
        op = by_id.get((kernel["source"], kernel["external_id"])) if kernel["external_id"] is not None else None
        if op is not None and ops[op]["start_ns"] > kernel["start_ns"]:
            op = None
        named.append(op)
        if kernel["external_id"] is not None and kernel["external_id"] != kernel["correlation"]:
            repeats[kernel["source"]] = False
        chain = around_op[number]
        if op is not None and chain:
            compared[kernel["source"]].append(op in chain)
    for number, kernel in enumerate(kernels):
        votes = compared[kernel["source"]]
        believed = sum(votes) >= 0.9 * len(votes) if votes else not repeats[kernel["source"]]
        if not believed:
            named[number] = None
    return named


def _reason(kernel: Row, row: Row, launches: list[Row], ops: list[Row]) -> str | None:
    if row["op"] is not None:
        return None
    if row["launch"] is None:
        return "no-correlation" if kernel["correlation"] is None else "no-launch"
    name = launches[row["launch"]]["name"].lower().replace("_", "")
    if "graphlaunch" in name or kernel["graph_id"] is not None or kernel["graph_node_id"] is not None:
        return "graph-replay"
    return "outside" if any(op["source"] == kernel["source"] for op in ops) else "no-operators"
