"""Short names of kernels for tables and plots: what a person needs of one in about 60 characters.

`short_name` looks at one name alone. `short_names` looks at all names of an analysis and never gives two
kernels the same short name: where two shorten to the same text, the part in which they differ is added.
The full name stays the key everywhere; a short name is for eyes only.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from traceanalyzer.classify import cxx, mangled
from traceanalyzer.classify.arguments import Known, argument_texts, full_text, lambda_text, library_summary
from traceanalyzer.classify.cxx import Group
from traceanalyzer.classify.paths import Segment, function_of, items_of, path_of, unwrap
from traceanalyzer.classify.words import ELLIPSIS, elide, shorten_word

_GOAL = 60  # what a name should fit in
_LIMIT = 76  # what it may take before arguments are left out
_LONGEST = 96  # what no short name exceeds, whatever the name is
_LEAST = 24  # characters that the first telling argument gets in any case
_DEPTHS = (1, 2, 3, 6)  # of arguments in arguments
_SAYS_LITTLE = 8  # arguments up to this length are numbers, data types and booleans

# Name spaces that tell a reader nothing; the library's own name (vllm, cudnn, flashinfer) is kept.
_SILENT = frozenset(
    {
        "at",
        "native",
        "c10",
        "std",
        "detail",
        "impl",
        "internal",
        "cuda",
        "hip",
        "device",
        "kernel",
        "kernels",
        "ops",
        "dev",
        "core",
        "torch",
        "headeronly",
        "at_cuda_detail",
        "cutlass",
        "cute",
        "arch",
        "modified_torch_code",
        "__1",
        "v1",
        "v2",
        "binary_internal",
        "cutlass_kernels",
    }
) | {*cxx.ANONYMOUS, "_GLOBAL__N_1", "{unnamed}"}
_VERSIONED = re.compile(r"(?:ROCPRIM|THRUST|CUB|HIPCUB)_\w+")

# Function names that say nothing without what they belong to.
_GENERIC = frozenset(
    {
        "kernel",
        "Kernel",
        "globalKernel",
        "GemmKernel",
        "type",
        "run",
        "apply",
        "launch",
        "dispatch",
        "combine",
        "operator()",
        "main",
        "invoke",
    }
)
#: Names whose forms are kept: parsing a long template is the costly part, and every name is asked for several times.
_REMEMBERED = 1 << 13


@lru_cache(maxsize=_REMEMBERED)
def short_name(name: str) -> str:
    """The short form of one kernel's name; a name that is short and plain already comes back unchanged."""
    path = _unwrapped(name)
    text = _fit(path) if path else shorten_word(" ".join(name.split()))
    return elide(text, _LONGEST)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Short forms of many names, each different from all others; the order of the names does not matter."""
    by_short: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(set(names)):
        by_short[short_name(name)].append(name)
    told_apart: dict[str, str] = {}
    for short, group in by_short.items():
        told_apart |= {group[0]: short} if len(group) == 1 else _tell_apart(short, group)
    return _force_apart(told_apart)


def function_path(name: str) -> str:
    """The function's own qualified name, arguments left out and wrappers looked into.

    `void cutlass::device_kernel<flash::FlashAttnFwdSm90<...> >(...)` gives `flash::FlashAttnFwdSm90`: what
    a kernel does stands there, while types among its arguments mislead.
    """
    path = _unwrapped(name)
    return "::".join(segment.name for segment in path if segment.name not in cxx.ANONYMOUS) or name


@lru_cache(maxsize=_REMEMBERED)
def _unwrapped(name: str) -> list[Segment]:
    """The path of the function that does the work. Nobody changes it: both the short name and the class start here."""
    return unwrap(path_of(function_of(items_of(name))))


def readable(name: str) -> str:
    """A mangled name as demangled text, as far as it can be read; any other name as it is."""
    items = mangled.read(name) if mangled.is_mangled(name) else []
    return full_text(items) or name


# -- one name


def _fit(path: list[Segment]) -> str:
    """The most detailed text that fits: at first arguments without their own, of long templates the smallest part."""
    last = path[-1]
    name = shorten_word(_qualified(path))
    summary = library_summary(last)
    if summary:
        return f"{name}<{', '.join(summary)}>"
    if last.arguments is None:
        return name + lambda_text(last.lambda_types)
    known: Known = {}
    text, shown = _with_arguments(name, last.arguments, _DEPTHS[0], known)
    if len(text) > _LIMIT:
        return f"{name}<{_cut(shown, _LIMIT - len(name) - 2)}>"
    for depth in _DEPTHS[1:]:
        longer, _ = _with_arguments(name, last.arguments, depth, known)
        if len(longer) > _GOAL:
            break
        text = longer
    return text


def _with_arguments(name: str, arguments: Group, depth: int, known: Known) -> tuple[str, list[str]]:
    """The name with its arguments, their own down to `depth`; and those arguments."""
    shown = argument_texts(arguments.parts, depth, known)
    return f"{name}<{', '.join(shown)}>" if shown else name, shown


def _cut(shown: list[str], room: int) -> str:
    """As many arguments as fit; where little was said so far, the next gets some room in any case."""
    room -= len(ELLIPSIS) + 2
    kept: list[str] = []
    for text in shown:
        if len(text) > room:
            if len(kept) < 3 and all(len(said) <= _SAYS_LITTLE for said in kept):
                kept.append(_cut_one(text, max(room, _LEAST)))
            break
        kept.append(text)
        room -= len(text) + 2
    if len(kept) < len(shown):
        kept.append(ELLIPSIS)
    return ", ".join(kept)


def _cut_one(text: str, room: int) -> str:
    """One long argument: its own arguments are left out from the end on, at a comma where there is one."""
    name, bracket, inner = text.partition("<")
    if not bracket or len(name) + 8 > room:
        return elide(name, room) + (f"<{ELLIPSIS}>" if bracket else "")
    room -= len(name) + len(ELLIPSIS) + 4
    kept = ""
    depth = 0
    for place, character in enumerate(inner[:room]):
        depth += (character == "<") - (character == ">")
        if character == "," and depth == 0:
            kept = inner[: place + 1] + " "
    return f"{name}<{kept}{ELLIPSIS}>"


def _qualified(path: list[Segment]) -> str:
    """The last step with the library it is from and, where it says nothing alone, the step before."""
    last = path[-1].name
    spaces = [segment.name for segment in path[:-1] if not _is_silent(segment.name)]
    full = "::".join([*spaces, last])
    if not spaces or len(full) <= 40:
        return full
    if last in _GENERIC and len(spaces) > 1:
        return "::".join([spaces[0], spaces[-1], last])
    return f"{spaces[0]}::{last}"


def _is_silent(space: str) -> bool:
    return space in _SILENT or _VERSIONED.fullmatch(space) is not None


# -- several names

_DETAIL_ROOM = 40
_MAX_TOKENS = 3000  # of one name that are compared
_MAX_PICKS = 6


def _tell_apart(short: str, names: Sequence[str]) -> dict[str, str]:
    """Short forms of names that shorten to the same text: that text and where they differ."""
    tokens = {name: _tokens(name) for name in names}
    same_length = len({len(found) for found in tokens.values()}) == 1
    details = _differing_places(tokens) if same_length else _differing_tokens(tokens)
    return {name: _with_detail(short, " ".join(details[name]), name) for name in names}


def _with_detail(short: str, detail: str, name: str) -> str:
    if not detail:
        return short
    return f"{short} [{detail}]" if len(detail) <= _DETAIL_ROOM else _hashed(short, name, digits=4)


def _tokens(name: str) -> list[str]:
    """What names are compared by: the words of a C++ name, the underscored parts of any other."""
    words = [word for word in cxx.leaves(items_of(name), _MAX_TOKENS) if not _is_silent(word)]
    return words if len(words) > 1 else [part for part in name.split("_") if part]


def _differing_places(tokens: dict[str, list[str]]) -> dict[str, list[str]]:
    """The tokens at one place that tells all names apart, or at the first few that do together."""
    columns: list[tuple[str, ...]] = list(zip(*tokens.values(), strict=True))
    return _pick(list(tokens), [column for column in columns if len(set(column)) > 1])


def _differing_tokens(tokens: dict[str, list[str]]) -> dict[str, list[str]]:
    """Tokens that some of the names have and others lack, each where a name has it."""
    counted = {name: _numbered(found) for name, found in tokens.items()}
    anywhere = dict.fromkeys(token for found in counted.values() for token in found)
    columns = [
        tuple(word if (word, number) in found else "" for found in counted.values()) for word, number in anywhere
    ]
    return _pick(list(tokens), [column for column in columns if len(set(column)) > 1])


def _numbered(tokens: list[str]) -> dict[tuple[str, int], None]:
    """Tokens with how many of the same came before, as an ordered set."""
    seen: defaultdict[str, int] = defaultdict(int)
    numbered: dict[tuple[str, int], None] = {}
    for token in tokens:
        numbered[token, seen[token]] = None
        seen[token] += 1
    return numbered


def _pick(names: list[str], columns: list[tuple[str, ...]]) -> dict[str, list[str]]:
    """Of the columns (one value a name) the fewest found that tell the names apart, the telling first."""
    picked: list[tuple[str, ...]] = []
    different = 1
    while different < len(names) and len(picked) < _MAX_PICKS:
        best = max(columns, key=lambda column: len(set(zip(*picked, column, strict=True))), default=None)
        if best is None or len(set(zip(*picked, best, strict=True))) == different:
            break
        picked.append(best)
        different = len(set(zip(*picked, strict=True)))
    return {name: [column[row] for column in picked if column[row]] for row, name in enumerate(names)}


def _force_apart(told_apart: dict[str, str]) -> dict[str, str]:
    """Whatever is still the same gets a few digits of a hash of the full name."""
    for digits in (4, 8, 16, 64):
        taken: defaultdict[str, list[str]] = defaultdict(list)
        for name, short in told_apart.items():
            taken[short].append(name)
        clashes = [name for group in taken.values() if len(group) > 1 for name in group]
        if not clashes:
            return told_apart
        for name in clashes:
            told_apart[name] = _hashed(short_name(name), name, digits)
    return {name: name for name in told_apart}  # names that quote each other's hashes: show them whole


def _hashed(short: str, name: str, digits: int) -> str:
    return f"{short} #{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:digits]}"
