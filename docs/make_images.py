"""Draw the pictures of the README from real output: `python docs/make_images.py`, in the repository's root."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 112
IMAGES = Path(__file__).parent / "images"
#: Picture -> the command whose output it shows.
PICTURES = {"top-kernels": ["top-kernels", "sample_traces/sparse-eager", "--limit", "10"]}
#: Picture -> the command that draws it with `--plot`.
PLOTS = {
    "idle-gaps": ["idle-gaps", "sample_traces/mask-64k-eager"],
    "scaling": ["scaling", "4k=sample_traces/mask-4k-eager", "16k=sample_traces/mask-16k-eager", "--at", "64k"],
    "steps": ["steps", "sample_traces/mask-64k-eager"],
}


def draw(name: str, arguments: list[str]) -> None:
    """Run a command as on a colour terminal and keep what it prints as an SVG."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "traceanalyzer", *arguments]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ traceanalyze {' '.join(arguments)}\n\n{printed}"), end="")
    (IMAGES / f"{name}.svg").write_text(console.export_svg(title="traceanalyze", unique_id=name))


def plot(name: str, arguments: list[str]) -> None:
    """Keep the picture that a command draws."""
    picture = str(IMAGES / f"{name}.svg")
    subprocess.run([sys.executable, "-m", "traceanalyzer", *arguments, "--plot", picture, "-q"],
                   stdout=subprocess.DEVNULL, check=True)  # fmt: skip


if __name__ == "__main__":
    for picture, words in PICTURES.items():
        draw(picture, words)
    for picture, words in PLOTS.items():
        plot(picture, words)
