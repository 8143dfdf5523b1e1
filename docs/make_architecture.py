"""Draw docs/architecture.svg: `python docs/make_architecture.py`. Boxes are layers; each calls only those below it."""

from __future__ import annotations

from pathlib import Path

WIDTH, ROW, TOP = 920, 74, 20
#: Layer: title, module, what it gives to the layer above.
LAYERS = [
    ("command line, notebooks", "traceanalyzer.cli", "one thin file a command; errors caught once", "#dbeafe"),
    ("render", "traceanalyzer.render", "terminal, JSON, CSV, Markdown, Parquet; one owner of output files", "#dbeafe"),
    ("reports", "traceanalyzer.reports", "frames named, ordered and formatted: data, no I/O", "#dbeafe"),
    ("analyses", "traceanalyzer.analyses", "pure functions, frames in, frames out, on one interval algebra", "#dcfce7"),
    ("Trace", "traceanalyzer.trace, .schema", "frozen holder of the public tables, one or many ranks", "#fef9c3"),
    (
        "runs and ranks",
        "ingest.identity, .runs",
        "which files are one run, which rank each is, which are left out",
        "#fee2e2",
    ),
    ("normalize", "ingest.normalize, .producers", "typed columns, exact Int64 ns; all oddities end here", "#fee2e2"),
    ("engine", "ingest.native_engine | .python_engine", "whole entries of the event array to raw columns", "#fee2e2"),
    ("document", "ingest.document, .repair", "the JSON structure as it streams by; all judgement of damage", "#fee2e2"),
    ("source", "ingest.source", "gzip or plain by content, members, progress, salvage: blocks of text", "#fee2e2"),
]


def svg() -> str:
    """The picture."""
    height = TOP * 2 + ROW * len(LAYERS) - 22
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif">',
        '<defs><marker id="up" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L10 5 L0 10 z" fill="#475569"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, (title, module, gives, colour) in enumerate(LAYERS):
        y = TOP + number * ROW
        parts += [
            f'<rect x="20" y="{y}" width="{WIDTH - 40}" height="52" rx="8" fill="{colour}" stroke="#475569"/>',
            f'<text x="40" y="{y + 32}" font-size="18" font-weight="bold" fill="#0f172a">{title}</text>',
            f'<text x="290" y="{y + 22}" font-size="13" font-family="Menlo, Consolas, monospace" fill="#334155">{module}</text>',
            f'<text x="290" y="{y + 41}" font-size="14" fill="#0f172a">{gives}</text>',
        ]
        if number:
            parts.append(
                f'<line x1="140" y1="{y}" x2="140" y2="{y - 16}" stroke="#475569" stroke-width="1.5" marker-end="url(#up)"/>'
            )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_name("architecture.svg").write_text(svg())
