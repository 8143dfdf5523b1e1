"""Plots: whole pictures of the right kind, the same ones every time, with labels that stand over nothing else."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from builders import kernel, trace, traces, write_trace
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer import cli
from traceanalyzer.analyses.occupancy import occupancy
from traceanalyzer.classify.rules import CLASSES
from traceanalyzer.errors import UsageError
from traceanalyzer.plots.occupancy import draw
from traceanalyzer.plots.palette import CLASS_COLOURS
from traceanalyzer.plots.placing import Anchor, Box, place
from traceanalyzer.text import visible

SAMPLES = Path(__file__).parent.parent / "sample_traces"
EVENTS = [
    kernel("attn_fwd", at=0, dur=60, grid=(20, 1, 1), block=(256, 1, 1), registers=64, shared_memory=0),
    kernel("gemm", at=70, dur=40, grid=(400, 1, 1), block=(128, 1, 1), registers=128, shared_memory=0),
    kernel("_norm_kernel", at=120, dur=4, grid=(9, 1, 1)),
    kernel("replayed", at=130, dur=6, grid=None, block=None),
]


def texts(picture: bytes) -> str:
    """What an SVG says: the comments in which matplotlib repeats the text that it draws as paths."""
    return html.unescape("\n".join(re.findall(r"<!-- (.*?) -->", picture.decode(), re.DOTALL)))


def test_the_picture_says_which_kernel_does_not_fill_the_gpu() -> None:
    said = texts(draw(occupancy(trace(EVENTS), by="kernel"), "svg", devices={"run": "Test GPU"}))
    assert "attn_fwd fills 20% of the SMs and takes 55% of the kernel time" in said
    assert "run  ·  Test GPU  ·  one dot a kernel" in said
    assert "not drawn: 5.5% of the kernel time" in said
    assert "attn_fwd\n" in said
    assert all(name in said for name in ("attention  54.5%", "gemm  36.4%", "norm  3.6%"))


@pytest.mark.parametrize(
    "events", [[], EVENTS[3:], EVENTS[2:3], EVENTS[1:2]], ids=["none", "unknown", "no registers", "all filling"]
)
def test_any_trace_has_a_picture(events: list[dict[str, object]]) -> None:
    rows = occupancy(trace(events), by="kernel")
    assert draw(rows, "png").startswith(b"\x89PNG\r\n\x1a\n")
    title = "SM fill of no kernel is known" if rows["sm_fill"].is_null().all() else ""
    assert title in texts(draw(rows, "svg"))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["__cublas$lt$matmul", "$\\frac{", "核心_kernel", "two\nlines\x1b[31m", "&<svg>", ""])
def test_any_name_can_be_drawn(name: str) -> None:
    """No formula, no missing sign and no control character stops or changes a picture."""
    event = kernel(name, at=0, dur=10, grid=(20, 1, 1), block=(64, 1, 1), registers=32, shared_memory=0)
    rows = occupancy(trace([event], run=f"run {name}"), by="kernel")
    said = texts(draw(rows, "svg"))
    assert f"{visible(rows['short_name'].item())} fills 20% of the SMs" in said
    assert visible(f"run {name}  ·  one dot") in said
    assert draw(rows, "png").startswith(b"\x89PNG")


def test_settings_of_the_program_around_change_nothing_and_stay() -> None:
    import matplotlib as mpl

    rows = occupancy(trace(EVENTS), by="kernel")
    plain = draw(rows, "svg")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        assert draw(rows, "svg") == plain
        assert mpl.rcParams["font.size"] == 30


def test_a_picture_that_no_program_shows_is_refused() -> None:
    many = pl.concat([occupancy(trace(EVENTS[:1], run=f"run {at}"), by="kernel") for at in range(40)])
    with pytest.raises(UsageError, match="pixels tall; choose fewer runs with --run"):
        draw(many, "png")


def test_runs_have_a_panel_each() -> None:
    both = traces(trace(EVENTS, run="a"), trace(EVENTS[:2], run="b"))
    said = texts(draw(occupancy(both, by="kernel"), "svg"))
    assert said.count("fills 20% of the SMs") == 2


@pytest.mark.parametrize("format", ["png", "svg"])
def test_the_same_rows_give_the_same_picture(format: str) -> None:
    rows = occupancy(trace(EVENTS), by="kernel")
    assert draw(rows, format) == draw(rows.reverse(), format)  # type: ignore[arg-type]


def test_every_class_has_a_colour_of_its_own() -> None:
    assert set(CLASS_COLOURS) == set(CLASSES)
    assert len(set(CLASS_COLOURS.values())) == len(CLASSES)


boxes = st.builds(
    lambda x, y, w, h: Box(x, y, x + w, y + h),
    st.integers(0, 500), st.integers(0, 300), st.integers(1, 80), st.integers(1, 40),
)  # fmt: skip
anchors = st.builds(
    Anchor, st.integers(0, 500), st.integers(0, 300), st.integers(1, 40), st.integers(20, 120), st.integers(8, 30)
)


@given(st.lists(anchors, max_size=12), st.lists(boxes, max_size=8))
def test_labels_stand_over_nothing_else(named: list[Anchor], taken: list[Box]) -> None:
    room = Box(0, 0, 500, 300)
    found = [box for box in place(named, room, taken=taken) if box]
    assert all(box.inside(room) for box in found)
    for number, box in enumerate(found):
        assert not any(box.overlaps(other) for other in [*found[:number], *taken])


def test_a_label_with_room_is_placed_beside_its_dot() -> None:
    (box,) = place([Anchor(100, 100, 10, 50, 12)], Box(0, 0, 300, 200))
    assert box == Box(113, 94, 163, 106)


# -- the command line


@pytest.mark.parametrize("name", ["fill.png", "fill.SVG"])
def test_the_file_is_written_beside_the_table(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / name
    assert cli.main(["occupancy", str(SAMPLES / "sparse-eager"), "--plot", str(path)]) == 0
    printed = capsys.readouterr()
    assert "_tiled_sparse_decode_kernel" in printed.out
    assert f"Wrote {path}" in printed.err
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG") if name.endswith("png") else b"<svg" in content
    assert [each.name for each in path.parent.iterdir()] == [name]


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--plot", "x.gif"], 2, "'x.gif' must end in .png or .svg"),
        (["--plot", "FOLDER"], 2, "is a folder"),
        (["--plot", "/dev/null/x.png"], 2, "/dev/null/x.png: "),
        (["--gpu", "H100"], 2, "several GPUs are called 'H100'"),
    ],
)
def test_mistakes_are_one_line(
    args: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder.png"
    folder.mkdir()
    args = [arg.replace("FOLDER", str(folder)) for arg in args]
    assert cli.main(["occupancy", str(SAMPLES / "sparse-eager"), "--limit", "1", *args]) == code
    said = capsys.readouterr().err
    assert message in said.splitlines()[-1]


def test_without_a_plot_matplotlib_is_not_loaded() -> None:
    code = (
        "import sys; from traceanalyzer import cli; cli.main(['occupancy', sys.argv[1], '-q', '--limit', '1']); "
        "print('matplotlib' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(SAMPLES / "sparse-eager")], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "False"


def test_rows_of_kernels_are_what_is_drawn() -> None:
    rows = occupancy(trace(EVENTS), by="kernel")
    assert {"run", "short_name", "class", "share_of_kernel_time", "sm_fill", "theoretical_occupancy"} <= set(
        rows.columns
    )
    assert rows.schema["sm_fill"] == pl.Float64


def test_ranks_side_by_side_say_who_is_late_and_for_which_collective(tmp_path: Path) -> None:
    path = tmp_path / "ranks.svg"
    assert cli.main(["imbalance", str(SAMPLES / "straggler-eager"), "--plot", str(path), "-q"]) == 0
    said = texts(path.read_bytes())
    assert "straggler-eager: rank 1 comes late to collectives" in said
    assert "The collective that cost most: allreduce no. 129 of group 0 (default_pg), step 21" in said
    assert "the others wait 0.282 ms in all for rank 1 (hatched)" in said
    again = tmp_path / "again.svg"
    assert cli.main(["imbalance", str(SAMPLES / "straggler-eager"), "--plot", str(again), "-q"]) == 0
    assert again.read_bytes() == path.read_bytes()


def test_ranks_without_steps_and_collectives_are_drawn_too(tmp_path: Path) -> None:
    for rank in range(2):
        write_trace(tmp_path / f"rank{rank}.json", [kernel("gemm", at=0, dur=5)], rank=rank, world_size=2)
    path = tmp_path / "ranks.png"
    assert cli.main(["imbalance", str(tmp_path), "--plot", str(path), "-q"]) == 0
    assert path.read_bytes()[:4] == b"\x89PNG"
