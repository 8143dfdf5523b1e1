"""Which class of work a kernel does: an ordered table of patterns over its name, the first match wins.

The built-in table is `rules.toml` beside this file; users put files of the same form in front of it. Every
rule carries a real name as its example, and that name must be judged by that very rule: a rule that another
one shadows is an error, in the built-in table (a test) as in a user's file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import polars as pl

from traceanalyzer.classify.names import function_path, readable
from traceanalyzer.errors import UsageError
from traceanalyzer.text import did_you_mean
from traceanalyzer.user_toml import read_tables

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CLASSES = (
    "attention", "moe", "gemm", "convolution", "norm", "activation", "elementwise", "reduction", "copy_cast",
    "embedding", "index_sort", "sampling", "quantize", "optimizer", "loss", "communication", "memory",
    "triton_other", "other",
)  # fmt: skip
UNMATCHED = "other"  # the class of a kernel that no rule knows
BUILT_IN = "built-in"

_TEXT_FIELDS = ("id", "class", "where", "example", "note")
_FIELDS = (*_TEXT_FIELDS, "pattern", "ignore_case")
_WHERE = ("name", "function", "words")

# Where one word of an identifier ends and the next begins: at any other sign, after a small letter before a capital
# (`topk|Gating`), and before the last of several capitals or digits that starts a word (`RMS|Norm`, `Conv2D|Backprop`).
_NO_WORD = re.compile(r"[\W_]+")
_WORD_STARTS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    id: str
    kernel_class: str
    pattern: re.Pattern[str]
    where: str  # "name": searched in the whole name; "function": in the function's own; "words": in the words of that
    example: str | None  # only a user's rule may lack one
    source: str  # BUILT_IN or the user's file
    note: str | None = None

    def matches(self, subject: Subject) -> bool:
        """Whether this rule knows the kernel."""
        return any(map(self.pattern.search, subject.texts[self.where]))


@dataclass(frozen=True, slots=True)
class Subject:
    """The texts of one kernel's name that rules look at; a mangled name is looked at in both forms."""

    texts: Mapping[str, tuple[str, ...]]  # for each value of `where`

    @classmethod
    def of(cls, name: str) -> Subject:
        """Read a kernel's name."""
        function = function_path(name)
        whole = tuple(dict.fromkeys((readable(name), name)))
        return cls({"name": whole, "function": (function,), "words": (words_of(function),)})


def words_of(identifier: str) -> str:
    """The words of an identifier, in lower case with a blank between them.

    `at::native::RowwiseMomentsCUDAKernel` gives `at native rowwise moments cuda kernel`: a pattern can ask for
    the word `pool` there and is not misled by what merely contains its letters.
    """
    return " ".join(_WORD_STARTS.sub(" ", _NO_WORD.sub(" ", identifier)).lower().split())


@dataclass(frozen=True, slots=True)
class Classification:
    """The class of a kernel and the rule that said so; no rule where none knows it."""

    kernel_class: str
    rule: Rule | None


@dataclass(frozen=True, slots=True)
class RuleTable:
    """An ordered table of rules that remembers its judgements."""

    rules: tuple[Rule, ...]
    _judged: dict[str, Classification] = field(default_factory=dict, repr=False, compare=False)

    def classify(self, name: str) -> Classification:
        """The judgement on one kernel's name. Names of copies and sets (`Memcpy DtoH ...`) do not belong here."""
        known = self._judged.get(name)
        if known is None:
            subject = Subject.of(name)
            rule = next((rule for rule in self.rules if rule.matches(subject)), None)
            known = Classification(rule.kernel_class if rule else UNMATCHED, rule)
            self._judged[name] = known
        return known

    def classify_frame(self, names: pl.Series | Iterable[str]) -> pl.DataFrame:
        """One row for each distinct name in order of appearance: kernel, class, rule (null where none matched)."""
        listed = (
            names.cast(pl.String).unique(maintain_order=True).drop_nulls() if isinstance(names, pl.Series) else names
        )
        distinct = list(dict.fromkeys(listed))
        judged = [self.classify(name) for name in distinct]
        return pl.DataFrame(
            {
                "kernel": distinct,
                "class": [judgement.kernel_class for judgement in judged],
                "rule": [judgement.rule.id if judgement.rule else None for judgement in judged],
            },
            schema={"kernel": pl.String, "class": pl.String, "rule": pl.String},
        )


def load_rules(user_files: Sequence[Path] = ()) -> RuleTable:
    """The built-in table with the users' rules, in the order of their files, in front of it."""
    own = [rule for path in user_files for rule in _user_rules(path)]
    return RuleTable((*own, *_built_in_rules()))


@cache
def _built_in_rules() -> tuple[Rule, ...]:
    text = resources.files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = tomllib.loads(text)["rule"]
    return tuple(_rule(row, number, BUILT_IN) for number, row in enumerate(rows, start=1))


def _user_rules(path: Path) -> list[Rule]:
    """The rules of one user's file, checked; the first mistake is a UsageError of one line."""
    rows = read_tables(path, "rules file", "rule", of="rules")
    rules: list[Rule] = []
    for number, row in enumerate(rows, start=1):
        try:
            rules.append(_rule(row, number, str(path)))
            _check_example(rules)
        except ValueError as error:
            raise UsageError(f"rules file {path}: rule {number}: {error}") from error
    return rules


def _rule(row: Mapping[str, Any], number: int, source: str) -> Rule:
    """One row as a rule; ValueError says what is wrong with it."""
    _check_fields(row)
    if row["class"] not in CLASSES:
        raise ValueError(
            f"unknown class {row['class']!r}; there are {', '.join(CLASSES)}{did_you_mean(row['class'], CLASSES)}"
        )
    where = row.get("where", "name")
    if where not in _WHERE:
        raise ValueError(f"where is {where!r}, must be 'name', 'function' or 'words'")
    given = row["pattern"]
    text = given if isinstance(given, str) else "|".join(given)
    try:
        pattern = re.compile(text, re.IGNORECASE if row.get("ignore_case") else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"pattern {text!r} does not compile: {error}") from error
    name = row.get("id", f"rule {number}")
    return Rule(name, row["class"], pattern, where, row.get("example"), source, row.get("note"))


def _check_fields(row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        if name not in _FIELDS:
            raise ValueError(f"unknown key {name!r}; there are {', '.join(_FIELDS)}{did_you_mean(name, _FIELDS)}")
        if name in _TEXT_FIELDS and not isinstance(value, str):
            raise ValueError(f"{name} must be a string")
    for name in ("class", "pattern"):
        if not row.get(name):
            raise ValueError(f"it has no {name}")
    pattern = row["pattern"]
    alternatives = pattern if isinstance(pattern, list) else [pattern]
    if not all(isinstance(alternative, str) and alternative for alternative in alternatives):
        raise ValueError("pattern must be a string or a list of strings")
    if not isinstance(row.get("ignore_case", False), bool):
        raise ValueError("ignore_case must be true or false")


def _check_example(rules: Sequence[Rule]) -> None:
    """The last rule must be the one that judges its own example."""
    rule = rules[-1]
    if rule.example is None:
        return
    subject = Subject.of(rule.example)
    first = next((number for number, other in enumerate(rules, start=1) if other.matches(subject)), None)
    if first is None:
        raise ValueError(f"its pattern does not match its own example {rule.example!r}")
    if first < len(rules):
        raise ValueError(f"its example {rule.example!r} is taken by rule {first} before it")
