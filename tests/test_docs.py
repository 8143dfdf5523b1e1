"""The documentation says what the program does: its examples are run, and every command has a page.

An example is a block that begins with `$ traceanalyze ...`; what follows is its output, standard error included.
They are run in a folder that holds the sample traces, one of them also as `run/`, and the rules file of the page on
class rules. `UPDATE_GOLDEN=1` writes what they print.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest
from goldens import check_file

from traceanalyzer import cli
from traceanalyzer.classify import rules
from traceanalyzer.render import markdown
from traceanalyzer.reports import schema

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "commands").glob("*.md"))
README = ROOT / "README.md"
RULES = DOCS / "class-rules.md"
RATES = DOCS / "commands" / "bandwidth.md"
BUDGET = DOCS / "commands" / "account.md"
_EXAMPLE = re.compile(r"(?<=```console\n)\$ traceanalyze (?P<args>.*)\n(?P<output>(?:.*\n)*?)(?=```)")


def _block(language: str, page: Path) -> str:
    """The first block of a language on a page."""
    found = re.search(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder in which the examples of the documentation are run."""
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    (tmp_path / "run").symlink_to(ROOT / "sample_traces" / "sparse-eager")
    (tmp_path / "our-kernels.toml").write_text(_block("toml", RULES))
    (tmp_path / "our-gpus.tsv").write_text(_block("text", RATES))
    (tmp_path / "budget.toml").write_text(_block("toml", BUDGET))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("page", [README, RULES, *PAGES], ids=lambda page: page.stem)
@pytest.mark.usefixtures("examples")
def test_the_examples_of_a_page_print_what_it_says(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(example: re.Match[str]) -> str:
        cli.main(shlex.split(example["args"]))
        printed = capsys.readouterr()
        return f"$ traceanalyze {example['args']}\n{printed.out}{printed.err}"

    text = page.read_text(encoding="utf-8")
    assert _EXAMPLE.search(text)
    check_file(page, _EXAMPLE.sub(run, text))


@pytest.mark.usefixtures("examples")
def test_every_line_of_python_in_the_readme_runs() -> None:
    names: dict[str, Any] = {}
    results = []
    for line in filter(None, _block("python", README).splitlines()):
        try:
            results.append(eval(line, names))
        except SyntaxError:
            exec(line, names)
    assert {name: type(value).__name__ for name, value in names.items() if name in ("trace", "kernels", "rank1")} == {
        "trace": "Trace", "kernels": "DataFrame", "rank1": "Trace",
    }  # fmt: skip
    assert names["rank1"].used["rank"].to_list() == [1]
    assert any(isinstance(each, pl.DataFrame) and each.height == names["trace"].ops.height for each in results)
    assert Path("top.csv").read_text(encoding="utf-8").startswith("run,kernel")


def test_the_keys_and_classes_of_a_rules_file_are_all_on_its_page() -> None:
    text = RULES.read_text(encoding="utf-8")
    assert all(f"| `{key}` |" in text for key in rules._FIELDS)
    assert f"one of {', '.join(rules.CLASSES)} |" in text
    assert all(f"`{where}`" in text for where in rules._WHERE)
    for page in (README, DOCS / "commands" / "top-kernels.md"):
        assert "class-rules.md" in page.read_text(encoding="utf-8")


def test_the_readme_says_which_options_commands_have() -> None:
    options = {name: {word for each in command.params for word in each.opts} for name, command in _commands()}
    for name in ("info", "top-kernels", "schema", "cache info", "cache verify"):
        assert {"--format", "-o"} <= options[name]
    for name in ("info", "top-kernels"):
        assert {"--run", "--rank", "--explain"} <= options[name]
    assert {"--device", "--stream", "--between", "--filter", "--class", "--rules"} <= options["top-kernels"]


def test_what_is_read_is_said_alike_in_the_readme_and_in_the_help() -> None:
    said = " ".join((cli.cli.help or "").split())
    read = README.read_text(encoding="utf-8").split("## What it reads")[1]
    kineto, others, *_ = re.findall(r"^- (.*)\.$", read, re.MULTILINE)
    assert kineto.split(",")[0].split(" (")[0] in said
    assert others.split(": ")[1] in said


def test_every_help_has_an_example_that_parses() -> None:
    for name, command in _commands():
        if " " not in name:
            words = shlex.split((command.epilog or "").removeprefix("Example: traceanalyze "))
            assert words[0] == name
            command.make_context(name, words[1:], resilient_parsing=True)


def _commands() -> Iterator[tuple[str, click.Command]]:
    for name in cli.COMMANDS:
        command = cli.cli.get_command(click.Context(cli.cli), name)
        assert command
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {sub}", each) for sub, each in command.commands.items())


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    assert {page.stem for page in PAGES} == set(cli.COMMANDS)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_page_shows_the_help_of_its_command(command: str) -> None:
    assert f"$ traceanalyze {command} --help\n" in (DOCS / "commands" / f"{command}.md").read_text(encoding="utf-8")


def test_the_page_of_the_schema_is_the_schema() -> None:
    check_file(DOCS / "schema.md", markdown.to_markdown(schema.build()))
