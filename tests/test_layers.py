"""Calls go downwards: what stands above the tables does not import what makes them (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import traceanalyzer

PACKAGE = Path(traceanalyzer.__file__).parent
LAYERS = ("classify", "hardware", "analyses", "reports", "plots", "render", "cli")
#: The exceptions that the documentation names, and the command line, which starts the reading.
EXCEPTIONS = {"analyses/missing.py": {"traceanalyzer.ingest.identity"}}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_layer_calls_upwards_or_past_the_tables() -> None:
    for number, layer in enumerate(LAYERS):
        for path in (PACKAGE / layer).glob("*.py"):
            name = path.relative_to(PACKAGE).as_posix()
            beyond = set(LAYERS[number + 1 :]) | ({"ingest"} if layer != "cli" else set())
            found = {each for each in imports(path) if each.startswith("traceanalyzer.")}
            wrong = {each for each in found if each.split(".")[1] in beyond}
            allowed = EXCEPTIONS.get(name, set())
            assert {each for each in wrong if not any(each.startswith(one) for one in allowed)} == set(), name


def test_nothing_that_reads_knows_who_asks() -> None:
    for path in (PACKAGE / "ingest").rglob("*.py"):
        above = {each.split(".")[1] for each in imports(path) if each.startswith("traceanalyzer.")} & set(LAYERS)
        assert above == set(), path
