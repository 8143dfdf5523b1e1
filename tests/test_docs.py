"""The documentation says what the program does: its examples are run, and every command has a page.

An example is a block that begins with `$ traceanalyze ...`; what follows is its output, standard error included.
They are run in a folder that holds the sample traces and the small run `decode/`. `UPDATE_GOLDEN=1` writes what they
print.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from builders import Event, kernel, memcpy, write_trace
from goldens import check_file

from traceanalyzer import cli
from traceanalyzer.render import markdown
from traceanalyzer.reports import schema

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "commands").glob("*.md"))
README = ROOT / "README.md"
_EXAMPLE = re.compile(r"(?<=```console\n)\$ traceanalyze (?P<args>.*)\n(?P<output>(?:.*\n)*?)(?=```)")


def decode_events(rank: int) -> list[Event]:
    """Eight layers of a decode step: attention that launches a block per head, and what stands around it."""
    attention = "_tiled_sparse_decode_kernel"
    gemm = "nvjet_tst_128x64_64x8_1x2_h_bz_coopA_TNT"
    norm = "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*, float)"
    reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    events, at = [memcpy(at=0, dur=1.5)], 4.0
    for layer in range(8):
        steps = ((norm, 2.5, 200), (gemm, 11.25, 800), (attention, 62.5 + layer, 16), (gemm, 9.5, 800))
        for name, dur, blocks in steps:
            events.append(kernel(name, at=at, dur=dur, grid=(blocks, 1, 1)))
            at += dur + 1.25
        events.append(kernel(reduce, at=at, dur=8.0 + rank * 4, stream=20, grid=(8, 1, 1)))
        at += 12
    return events


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder in which the examples of the documentation are run."""
    for rank in (0, 1):
        name = f"1767225605.25-TP-{rank}-DECODE.trace.json.gz"
        write_trace(tmp_path / "decode" / name, decode_events(rank), rank=rank, world_size=2)
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.stem)
@pytest.mark.usefixtures("examples")
def test_the_examples_of_a_page_print_what_it_says(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(example: re.Match[str]) -> str:
        cli.main(shlex.split(example["args"]))
        printed = capsys.readouterr()
        return f"$ traceanalyze {example['args']}\n{printed.out}{printed.err}"

    text = page.read_text(encoding="utf-8")
    assert _EXAMPLE.search(text)
    check_file(page, _EXAMPLE.sub(run, text))


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    assert {page.stem for page in PAGES} == set(cli.COMMANDS)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_page_shows_the_help_of_its_command(command: str) -> None:
    assert f"$ traceanalyze {command} --help\n" in (DOCS / "commands" / f"{command}.md").read_text(encoding="utf-8")


def test_the_page_of_the_schema_is_the_schema() -> None:
    check_file(DOCS / "schema.md", markdown.to_markdown(schema.build()))
