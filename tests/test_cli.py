"""The command line: what it prints where, its exit codes, and that bad input never ends in a traceback."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest
from builders import Event, kernel, launch, memcpy, op, write_trace

from traceanalyzer import __version__, cli
from traceanalyzer.cli import COMMANDS, SUMMARIES
from traceanalyzer.cli.notes import MOST_LINES, note_lines
from traceanalyzer.cli.options import DEFAULT_LIMIT, between, labels, ranks
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.ingest.engines import choose
from traceanalyzer.notes import Note
from traceanalyzer.store import wait_for_background

EVENTS: list[Event] = [
    kernel("gemm_a", at=100, dur=40),
    kernel("gemm_b", at=150, dur=20, stream=8),
    kernel("norm", at=180, dur=10),
    memcpy(at=195, dur=5),
]


@dataclass(frozen=True)
class Result:
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as JSON."""
        content: dict[str, Any] = json.loads(self.out)
        return content


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `traceanalyze` in this process."""

    def run(*args: object) -> Result:
        code = cli.main([str(arg) for arg in args])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks of four, one compressed and one not."""
    run = tmp_path / "run"
    write_trace(run / "rank0.json.gz", EVENTS, rank=0, world_size=4)
    write_trace(run / "rank1.json", EVENTS[:2], rank=1, world_size=4)
    return run


def subprocess_of(*args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python ...` as a process of its own."""
    return subprocess.run(
        [sys.executable, *map(str, args)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


# ------------------------------------------------------------------------------------------ starting


@pytest.mark.parametrize("args", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_starts_without_loading_anything_heavy(args: list[str]) -> None:
    script = (
        "import sys; from traceanalyzer import cli; code = cli.main(sys.argv[1:]); "
        "heavy = {'polars', 'numpy', 'matplotlib', 'torch', 'rich', 'orjson', 'msgspec'} & set(sys.modules); "
        "print(heavy, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess_of("-c", script, *args)
    assert (done.returncode, done.stderr.strip()) == (0, "set()")
    assert "traceanalyze" in done.stdout


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    """`--help` loads no command: an entry of `cli.SUMMARIES` is the first sentence of the command's own help."""
    said = {name: cli.cli.get_command(click.Context(cli.cli), name) for name in COMMANDS}
    helps = {name: " ".join((command.help or "").split("\n\n")[0].split()) for name, command in said.items() if command}
    assert helps == SUMMARIES
    listing = "print(*[name for name in sys.modules if name.startswith('traceanalyzer.cli.')])"
    loaded = subprocess_of("-c", f"import sys; from traceanalyzer.cli import main; main(['--help']); {listing}")
    assert loaded.stdout.splitlines()[-1] == ""


def test_without_a_command_there_is_help(run: Run) -> None:
    assert run() == run("--help")
    assert run().code == 0


def test_help_is_a_word_as_well(run: Run) -> None:
    assert run("help") == run("--help")
    assert run("help", "top-kernels") == run("top-kernels", "--help")


def test_cache_alone_is_its_help(run: Run) -> None:
    assert run("cache") == run("cache", "--help")
    assert run("cache").code == 0


def test_the_module_can_be_run() -> None:
    done = subprocess_of("-m", "traceanalyzer", "--version")
    assert done.stdout == f"traceanalyze {__version__} ({choose().name} engine)\n"


@pytest.mark.usefixtures("engine")
def test_info_says_which_engine_reads(run: Run, folder: Path, engine: str) -> None:
    assert f"{engine} engine" in run("info", folder).out


def test_every_command_has_help_of_its_own(run: Run) -> None:
    for name in COMMANDS:
        command = cli.cli.get_command(click.Context(cli.cli), name)
        assert command is not None
        assert len(command.help or "") > 20
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help
    listed = run("--help").out
    assert all(name in listed for name in COMMANDS)


# ------------------------------------------------------------------------------------------ top-kernels


def test_top_kernels_of_a_folder(run: Run, folder: Path) -> None:
    result = run("top-kernels", folder)
    assert result.code == 0
    assert "ranks 0-1 of 4 (missing 2-3)" in result.out
    assert [line.split()[0] for line in result.out.splitlines() if line.startswith(("gemm", "norm"))] == [
        "gemm_a", "gemm_b", "norm",
    ]  # fmt: skip
    assert "missing-ranks" not in result.out
    assert result.err.startswith("warning: run run: no file of ranks 2-3")


def test_json_by_the_contract(run: Run, folder: Path) -> None:
    content = run("top-kernels", folder, "--format", "json").json
    assert content["command"] == "top-kernels"
    assert [(each["rank"], each["device"], each["busy_ns"]) for each in content["traces"]] == [
        (0, 0, 75_000),
        (1, 0, 60_000),
    ]
    assert [(row["kernel"], row["count"], row["total_ns"]) for row in content["rows"]] == [
        ("gemm_a", 2, 80_000),
        ("gemm_b", 2, 40_000),
        ("norm", 1, 10_000),
    ]
    assert [note["code"] for note in content["notes"]] == ["missing-ranks"]


@pytest.mark.parametrize(
    ("options", "kernels"),
    [
        (["--rank", "1"], ["gemm_a", "gemm_b"]),
        (["--rank", "0-1"], ["gemm_a", "gemm_b", "norm"]),
        (["--rank", "0", "--rank", "1"], ["gemm_a", "gemm_b", "norm"]),
        (["--stream", "8"], ["gemm_b"]),
        (["--stream", "8,7"], ["gemm_a", "gemm_b", "norm"]),
        (["--device", "0"], ["gemm_a", "gemm_b", "norm"]),
        (["--run", "r*"], ["gemm_a", "gemm_b", "norm"]),
        (["--between", "0.05.."], ["gemm_b", "norm"]),
        (["--between", "..0.08"], ["gemm_a", "gemm_b"]),
        (["--filter", "^gemm"], ["gemm_a", "gemm_b"]),
        (["--limit", "1"], ["gemm_a"]),
        (["--limit", "0"], ["gemm_a", "gemm_b", "norm"]),
        (["--class", "norm"], ["norm"]),
        (["--class", "norm", "--class", "gemm"], ["gemm_a", "gemm_b", "norm"]),
        (["--class", "norm,gemm", "--filter", "_b"], ["gemm_b"]),
        (["--sort", "min"], ["gemm_a", "gemm_b", "norm"]),
        (["--sort", "mean"], ["gemm_a", "gemm_b", "norm"]),
        (["--sort", "name"], ["gemm_a", "gemm_b", "norm"]),
    ],
)
def test_selections(run: Run, folder: Path, options: list[str], kernels: list[str]) -> None:
    content = run("top-kernels", folder, "--format", "json", *options).json
    assert [row["kernel"] for row in content["rows"]] == kernels


def test_by_class_and_with_rules_of_ones_own(run: Run, folder: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nid = "mine"\nclass = "moe"\npattern = "^gemm_b$"\nexample = "gemm_b"\n')
    content = run("top-kernels", folder, "--by", "class", "--rules", rules, "--explain", "--format", "json").json
    assert {row["group"]: row["rule"] for row in content["rows"]}["moe"] == "mine"
    assert "share_of_busy" in content["definitions"]


def test_tables_have_a_limit_of_their_own_and_data_has_none(run: Run, tmp_path: Path) -> None:
    events = [kernel(f"k{number:02}", at=number * 10, dur=5) for number in range(DEFAULT_LIMIT + 5)]
    path = write_trace(tmp_path / "t.json", events)
    assert "5 more kernels" in run("top-kernels", path).out
    assert len(run("top-kernels", path, "--format", "json").json["rows"]) == DEFAULT_LIMIT + 5


def test_no_device_activity_is_an_empty_table_and_a_note(run: Run, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "cpu.json", [op("aten::mm", at=0, dur=5)])
    result = run("top-kernels", path)
    assert (result.code, "no device activity" in result.out) == (0, True)
    assert "the host alone was recorded" in result.err
    launched = write_trace(tmp_path / "lost.json", [launch(at=0)])
    content = run("top-kernels", launched, "--format", "json").json
    assert (content["rows"], [note["code"] for note in content["notes"]]) == ([], ["no-device-activity"])
    assert content["traces"][0]["span_ns"] is None


def test_nothing_left_by_the_filter_is_not_called_no_activity(run: Run, folder: Path) -> None:
    for options, words in {
        ("--filter", "nosuch"): "no kernel name matches 'nosuch' (regex, case-sensitive; (?i) makes it insensitive)",
        ("--class", "moe"): "no kernel of class moe in what was asked for",
        ("--between", "0.0901..0.094"): "no kernel starts in what was asked for",
    }.items():
        result = run("top-kernels", folder, *options)
        assert result.code == 0
        assert words in " ".join(result.out.split())
        assert "not shown at this width" not in result.out


def test_an_empty_stretch_is_idle(run: Run, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", at=0, dur=5), kernel("k", at=100, dur=5)])
    assert "span 40.0 µs  ·  busy 0 ns (0.0%)" in run("top-kernels", path, "--between", "0.02..0.06").out
    assert "idle 40.0 µs (100.0%)" in run("top-kernels", path, "--between", "0.02..0.06").out


def test_the_order_of_files_does_not_show(run: Run, folder: Path) -> None:
    one, other = folder / "rank0.json.gz", folder / "rank1.json"
    forth, back = (run("top-kernels", *pair, "--format", "json").json for pair in ((one, other), (other, one)))
    assert forth["rows"] == back["rows"]


def test_standard_input(folder: Path) -> None:
    content = gzip.decompress((folder / "rank0.json.gz").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "traceanalyzer", "top-kernels", "-", "--format", "csv"],
        input=content,
        capture_output=True,
        check=True,
    )
    assert [line.split(b",")[1] for line in done.stdout.splitlines()[1:]] == [b"gemm_a", b"gemm_b", b"norm"]


# ------------------------------------------------------------------------------------------ info and schema


def test_info_says_what_is_there_and_what_is_not(run: Run, folder: Path) -> None:
    (folder / "notes.json").write_text("{]")
    result = run("info", folder)
    assert result.code == 0
    assert "ranks 0-1 of 4 (missing 2-3)" in result.out
    assert "no file of ranks 2-3" in result.out
    assert result.err == ""  # notes are part of the report
    content = run("info", folder, "--format", "json").json
    assert [(row["rank"], row["kernels"], row["copies"]) for row in content["rows"]] == [(0, 3, 1), (1, 2, 0)]
    assert content["runs"][0]["ranks_missing"] == [2, 3]


@pytest.mark.parametrize(
    ("device", "written"), [(0, 0), ("7", 7), ("007", "007"), (2**64 + 5, str(2**64 + 5)), ("GPU 0", "GPU 0")]
)
def test_devices_are_numbers_in_json_where_they_are_plain_ones(
    run: Run, tmp_path: Path, device: object, written: object
) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", at=1, dur=2, device=device)])  # type: ignore[arg-type]
    assert run("top-kernels", path, "--format", "json").json["traces"][0]["device"] == written


def test_schema_of_one_table_and_of_all(run: Run) -> None:
    rows = run("schema", "devices", "--format", "json").json["rows"]
    assert {row["table"] for row in rows} == {"devices"}
    assert {row["table"] for row in run("schema", "--format", "json").json["rows"]} > {"devices", "kernels"}


# ------------------------------------------------------------------------------------------ output


@pytest.mark.parametrize("name", ["out.json", "out.csv", "out.md", "out.txt", "deep/er/out.parquet"])
def test_the_file_name_picks_the_format(run: Run, folder: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    result = run("top-kernels", folder, "-o", target)
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines()[-1] == f"Wrote {target}"
    start = {".json": b"{", ".csv": b"run,kernel", ".md": b"# Top", ".txt": b"run\n", ".parquet": b"PAR1"}
    assert target.read_bytes().startswith(start[target.suffix])
    assert [path.name for path in target.parent.iterdir() if path.name.startswith(".")] == []


def test_the_format_counts_before_the_file_name(run: Run, folder: Path, tmp_path: Path) -> None:
    run("top-kernels", folder, "-o", tmp_path / "out.txt", "--format", "csv")
    assert (tmp_path / "out.txt").read_text().startswith("run,kernel")


def test_parquet_keeps_types(run: Run, folder: Path, tmp_path: Path) -> None:
    run("top-kernels", folder, "-o", tmp_path / "out.parquet")
    assert pl.read_parquet(tmp_path / "out.parquet").schema["total_ns"] == pl.Int64


def test_a_written_file_has_the_usual_mode_and_replaces_through_links(run: Run, folder: Path, tmp_path: Path) -> None:
    link, target = tmp_path / "link.json", tmp_path / "target.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    run("top-kernels", folder, "-o", link)
    assert link.is_symlink()
    assert target.read_text().startswith("{")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    run("top-kernels", folder, "-o", tmp_path / "new.json")
    (tmp_path / "plain").touch()
    assert (tmp_path / "new.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_is_no_file_is_written_to_and_not_replaced(run: Run, folder: Path) -> None:
    assert run("top-kernels", folder, "--format", "csv", "-o", "/dev/null").code == 0
    assert not Path("/dev/null").is_file()


def test_a_text_file_holds_no_colours(run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("top-kernels", folder).out
    run("top-kernels", folder, "-o", tmp_path / "out.txt")
    assert "\x1b[" not in (tmp_path / "out.txt").read_text()


def test_quiet_is_quiet(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("top-kernels", folder, "-q", "-o", tmp_path / "out.csv").err == ""


@pytest.mark.parametrize(
    "args", ["top-kernels FOLDER -q", "top-kernels FOLDER --format json -q", "info FOLDER", "--help", "cache --help"]
)
def test_a_reader_that_leaves_early_is_no_error(folder: Path, args: str) -> None:
    command = f"{sys.executable} -m traceanalyzer {args.replace('FOLDER', str(folder))}; echo code $? >&2"
    done = subprocess.run(["bash", "-c", f"({command}) | true"], capture_output=True, text=True, check=True)
    assert done.stderr == "code 0\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", ["top-kernels FOLDER -q", "top-kernels FOLDER --format json -q", "--help", "cache"])
def test_a_full_disk_is_one_line(folder: Path, args: str) -> None:
    command = f"{sys.executable} -m traceanalyzer {args.replace('FOLDER', str(folder))} > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "traceanalyze: standard output: No space left on device\n")


def test_output_survives_a_terminal_without_unicode(folder: Path) -> None:
    done = subprocess_of("-m", "traceanalyzer", "top-kernels", folder, PYTHONIOENCODING="ascii")
    assert (done.returncode, "gemm_a" in done.stdout) == (0, True)


# ------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["top-kernls"], 2, "no command 'top-kernls'; did you mean 'top-kernels'?"),
        (["top-kernels"], 2, "Missing argument 'TRACE...'"),
        (["top-kernels", "FOLDER", "--by", "clas"], 2, "'clas' is not one of"),
        (["top-kernels", "FOLDER", "--limt", "3"], 2, "No such option"),
        (["top-kernels", "FOLDER", "--limit", "-1"], 2, "--limit"),
        (["top-kernels", "FOLDER", "--sort", "self"], 2, "--sort self goes with --by op, module, annotation; by"),
        (["top-kernels", "FOLDER", "--by", "shape", "--sort", "self"], 2, "own: --sort total"),
        (["top-kernels", "FOLDER", "--filter", "("], 2, "'(' is no regular expression"),
        (["top-kernels", "FOLDER", "--rank", "9"], 2, "no rank 9 in these files; ranks: 0-1"),
        (["top-kernels", "FOLDER", "--rank", "x"], 2, "'x' is no list of ranks"),
        (["top-kernels", "FOLDER", "--rank", "3-1"], 2, "'3-1' is no list of ranks"),
        (["top-kernels", "FOLDER", "--stream", "3"], 2, "no stream 3 in these files; streams: 7, 8"),
        (["top-kernels", "FOLDER", "--between", "5"], 2, "'5' is no stretch of milliseconds"),
        (["top-kernels", "FOLDER", "--between", "1...5"], 2, "'1...5' is no stretch of milliseconds"),
        (["top-kernels", "FOLDER", "--between", "7..9"], 2, "the trace ends at 0.1 ms"),
        (["top-kernels", "FOLDER", "--class", "norn"], 2, "did you mean 'norm'?"),
        (["top-kernels", "FOLDER", "--limit", "five"], 2, "'five' is not a whole number"),
        (["top-kernels", "FOLDER", "-o", "out"], 2, "out: the name has no ending that says the format (.txt,"),
        (["FOLDER"], 2, "did you mean: traceanalyze top-kernels "),
        (["some.json.gz", "-q"], 2, "did you mean: traceanalyze top-kernels some.json.gz -q"),
        (["help", "nothing-like-it"], 2, f"there are {', '.join(COMMANDS)}"),
        (["top-kernels", "FOLDER", "--rank-regex", "("], 2, ""),
        (["top-kernels", "FOLDER", "--rules", "missing.toml"], 2, "missing.toml"),
        (["top-kernels", "FOLDER", "-o", "out.pdf"], 2, "out.pdf: no format goes with '.pdf'"),
        (["top-kernels", "FOLDER", "-o", "FOLDER"], 2, "is a folder"),
        (["top-kernels", "FOLDER", "-o", "FOLDER/rank1.json/x.csv"], 2, "rank1.json"),
        (["top-kernels", "missing.json"], 3, "traceanalyze: missing.json: "),
        (["top-kernels", "'*.nothing'"], 3, ""),
        (["info", "BROKEN"], 3, "broken.json: "),
        (["top-kernels", "FOLDER", "BROKEN", "--strict"], 3, "broken.json: "),
        (["schema", "devics"], 2, "no table 'devics'; did you mean 'devices'?"),
    ],
)  # fmt: skip
def test_every_mistake_is_one_line_with_its_exit_code(
    run: Run, folder: Path, tmp_path: Path, args: list[str], code: int, message: str
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("this is no trace")
    args = [arg.replace("FOLDER", str(folder)).replace("BROKEN", str(broken)) for arg in args]
    result = run(*args)
    assert result.code == code
    assert message in result.err
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert result.err.startswith("traceanalyze")


def test_a_broken_file_among_good_ones_is_a_note(run: Run, folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("this is no trace")
    result = run("top-kernels", folder, broken)
    assert result.code == 0
    assert "broken.json" in result.err
    result = run("top-kernels", folder, "nope")
    assert (result.code, result.err.splitlines()[0]) == (0, "warning: nope: no such file or directory; left out")
    assert "error" not in run("info", folder, "nope").out


CUT_SHORT = '{"distributedInfo": {"rank": 1, "world_size": 4}, "traceEvents": [{"ph": "X", "cat": "ker'
ENDS_INSIDE = "the JSON text ends inside an event; no event could be read"
#: Commands whose answer is about events; `scaling` names its traces in another way.
ANSWERS = [name for name in COMMANDS if name not in ("info", "scaling", "kernels", "schema", "cache")]


@pytest.mark.parametrize("command", ANSWERS)
def test_files_cut_before_their_first_event_are_one_line(run: Run, tmp_path: Path, command: str) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(CUT_SHORT)
    result = run(command, cut)
    assert (result.code, result.out, result.err) == (3, "", f"traceanalyze: {cut}: {ENDS_INSIDE}\n")
    (tmp_path / "lost.json").write_text("this is no trace")
    (tmp_path / "none.json").write_text('{"traceEvents": []}')
    result = run(command, *sorted(tmp_path.iterdir()))
    assert (result.code, result.err) == (3, f"traceanalyze: {cut}: {ENDS_INSIDE}, nor from 2 more files\n")


@pytest.mark.parametrize("command", ANSWERS)
def test_a_file_cut_before_its_first_event_is_a_note_beside_others(
    run: Run, folder: Path, tmp_path: Path, command: str
) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(CUT_SHORT)
    result = run(command, folder, cut)
    assert result.code == 0
    assert f"warning: {cut}: the JSON text ends inside an event; every whole event before that was kept" in result.err
    assert run(command, folder, cut, "--strict").code == 3


def test_info_describes_a_file_that_was_cut_before_its_first_event(run: Run, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(CUT_SHORT)
    result = run("info", cut, "--format", "json")
    assert result.code == 0
    assert [(row["path"], row["rank"], row["world_size"], row["events"]) for row in result.json["rows"]] == [
        (str(cut), 1, 4, 0)
    ]


def test_what_was_cut_first_is_the_reason(run: Run, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(CUT_SHORT.encode())[:-8])
    reason = f"compressed data ends before its end mark, first at byte {cut.stat().st_size}; no event could be read"
    assert run("top-kernels", cut).err == f"traceanalyze: {cut}: {reason}\n"


def test_no_part_of_a_question_may_be_without_events(run: Run, folder: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(CUT_SHORT)
    for question in (
        ["scaling", f"1k={folder}", f"2k={cut}"],
        ["top-kernels", folder, "--by", "op", "--capture", cut],
        ["imbalance", cut, "--step-marker", "step"],
        ["imbalance", cut, "--rank", "3"],
        ["steps", cut, "--step-marker", "step"],
    ):
        assert run(*question).err == f"traceanalyze: {cut}: {ENDS_INSIDE}\n"


def test_interruption_has_its_own_exit_code(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("traceanalyzer.ingest.reader.read", interrupted)
    assert run("top-kernels", folder).code == 130


def test_a_named_error_from_anywhere_ends_in_one_line(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OddError(TraceAnalyzerError):
        exit_code = 4

    def odd(*_: object, **__: object) -> None:
        raise OddError("first line\nsecond line")

    monkeypatch.setattr("traceanalyzer.ingest.reader.read", odd)
    result = run("top-kernels", folder)
    assert (result.code, result.err) == (4, "traceanalyze: first line second line\n")


def test_parquet_is_not_for_a_terminal(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    result = run("top-kernels", folder, "--format", "parquet")
    assert (result.code, "parquet is binary" in result.err) == (2, True)


# ------------------------------------------------------------------------------------------ configuration


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write the user's configuration file."""

    def write(text: str) -> Path:
        path = tmp_path / "config" / "traceanalyzer" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        return path

    return write


def test_defaults_come_from_the_configuration_file(run: Run, folder: Path, configure: Callable[[str], Path]) -> None:
    configure('format = "json"\nlimit = 1\n[top-kernels]\nsort = "name"\nlimit = 2\nrank = "0"\n')
    content = run("top-kernels", folder).json
    assert [row["kernel"] for row in content["rows"]] == ["gemm_a", "gemm_b"]
    assert [each["rank"] for each in content["traces"]] == [0]
    assert run("info", folder).json["command"] == "info"


def test_the_command_line_counts_before_the_file(run: Run, folder: Path, configure: Callable[[str], Path]) -> None:
    configure('format = "json"\n')
    assert run("top-kernels", folder, "--format", "csv").out.startswith("run,kernel")


def test_a_flag_and_its_opposite_come_from_the_configuration_file(
    run: Run, tmp_path: Path, configure: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setattr("traceanalyzer.ingest.load.SMALLEST_FILE", 0)
    monkeypatch.setattr("traceanalyzer.ingest.load.SMALLEST_JSON", 0)
    path = write_trace(tmp_path / "t.json", EVENTS)
    for text, stored in (("no-cache = true", False), ("no-cache = false", True)):
        configure(text)
        assert run("top-kernels", path).code == 0
        wait_for_background()
        assert (tmp_path / "store").exists() is stored


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        ("rank = 1", ["gemm_a", "gemm_b"]),
        ("stream = 8", ["gemm_b"]),
        ("stream = [8, 7]", ["gemm_a", "gemm_b", "norm"]),
        ("filter = 0", []),
    ],
)
def test_numbers_in_the_configuration_file_are_texts_where_options_are(
    run: Run, folder: Path, configure: Callable[[str], Path], text: str, kernels: list[str]
) -> None:
    configure(f'format = "json"\n[top-kernels]\n{text}\n')
    assert [row["kernel"] for row in run("top-kernels", folder).json["rows"]] == kernels


@pytest.mark.parametrize("text", ['format = "json"', '[cache]\nformat = "json"'])
def test_subcommands_have_the_defaults_of_their_command(
    run: Run, tmp_path: Path, configure: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", str(tmp_path / "store"))
    configure(text)
    assert run("cache", "info").json["command"].startswith("cache")
    assert run("cache", "verify").json["rows"] == []
    assert run("cache", "clear").code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limit = ", "Invalid value"),
        ("limit = 1.5", "limit: 1.5 is not a whole number"),
        ("limit = true", "limit: True is not a whole number"),
        ("limit = [1]", "limit: [1] is not a whole number"),
        ("between = 5", "between: '5' is no stretch of milliseconds"),
        ("between = [5]", "between: [5] must be a string or a number"),
        ("rank = 1.5", "rank: '1.5' is no list of ranks"),
        ("rank = true", "rank: True must be a string or a number"),
        ("stream = 1979-05-27", "stream: datetime.date(1979, 5, 27) must be a string or a number"),
        ("no-cache = 1", "no-cache: 1 must be true or false"),
        ("[cache]\nlimit = 1", "cache has no option 'limit'"),
        ('[cache]\nformat = "xml"', "format: 'xml' is not one of"),
        ("limt = 3", "no command has an option 'limt'; did you mean 'limit'?"),
        ("[top-kernel]\nlimit = 3", "[top-kernel] is no command; did you mean 'top-kernels'?"),
        ("[schema]\nlimit = 3", "schema has no option 'limit'"),
        ('limit = "many"', "limit: 'many' is not a whole number"),
        ('[top-kernels]\nby = "size"', "by: 'size' is not one of"),
        ('rank = "x"', "rank: 'x' is no list of ranks"),
    ],
)
def test_mistakes_in_the_configuration_file_are_one_line(
    run: Run, folder: Path, configure: Callable[[str], Path], text: str, message: str
) -> None:
    path = configure(text)
    result = run("cache", "info") if text.startswith("[cache]") else run("top-kernels", folder)
    assert result.code == 2
    assert result.err.startswith(f"traceanalyze: {path}: ")
    assert message in result.err
    assert result.err.count("\n") == 1


# ------------------------------------------------------------------------------------------ small parts


def test_texts_of_selections() -> None:
    assert ranks("0,2-3") == (0, 2, 3)
    assert labels("7, 20") == ("7", "20")
    assert between("10..20.5") == (10_000_000, 20_500_000)
    assert between("..1") == (None, 1_000_000)
    assert between("0.000001..") == (1, None)
    for wrong in ("..x", "5..5", "5..4", "nan..5", "1", "inf..", "1...5", ".5..1", "1..2..3", "1e3..2"):
        with pytest.raises(click.BadParameter):
            between(wrong)


def test_notes_are_one_line_a_kind_with_an_end_to_it() -> None:
    notes = [Note("warning", "lost-record", "records lost", f"r{rank}.json", 3) for rank in range(3)]
    assert note_lines(notes) == ["warning: r0.json: records lost (9), and in 2 more files"]
    assert note_lines([Note("info", "x", "not shown", None, 1)]) == []
    many = [Note("warning", f"code-{number}", "text", None, 1) for number in range(MOST_LINES + 3)]
    assert len(note_lines(many)) == MOST_LINES + 1
    assert note_lines(many)[-1] == "3 more notes, see traceanalyze info"


def test_cache_shows_verifies_and_clears_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setattr("traceanalyzer.ingest.load.SMALLEST_FILE", 0)
    monkeypatch.setattr("traceanalyzer.ingest.load.SMALLEST_JSON", 0)
    path = write_trace(tmp_path / "t.json", [kernel("k", at=1, dur=2)])
    cli.main(["top-kernels", str(path), "--no-cache"])
    assert not (tmp_path / "store").exists()
    cli.main(["top-kernels", str(path)])
    wait_for_background()
    capsys.readouterr()
    assert cli.main(["cache", "info", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["path"] for row in rows] == [str(path)]
    assert cli.main(["cache", "verify", "--format", "json"]) == 0
    assert [row["fault"] for row in json.loads(capsys.readouterr().out)["rows"]] == [None]
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("removed ")
    cli.main(["cache", "info"])
    assert "nothing is stored" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------ shared options


@pytest.mark.parametrize("command", ["top-kernels", "classes", "occupancy"])
def test_kernels_are_chosen_by_name_and_class_alike(run: Run, folder: Path, command: str) -> None:
    def kernels(*chosen: str) -> set[str]:
        return {row["kernel"] for row in run(command, folder, "--format", "json", *chosen).json["rows"]}

    assert kernels() == {"gemm_a", "gemm_b", "norm"}
    assert kernels("--class", "gemm") == {"gemm_a", "gemm_b"}
    assert kernels("--class", "attention, norm") == kernels("--class", "attention", "--class", "norm") == {"norm"}
    assert kernels("--filter", "_b$|norm", "--class", "gemm,norm") == {"gemm_b", "norm"}
    assert kernels("--filter", "_b$", "--class", "norm") == set()
