"""GPUs by the names that people type: `h100 pcie`, `RTX PRO 6000`, `NVIDIA A100-SXM4-80GB`."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache

from traceanalyzer.errors import UsageError
from traceanalyzer.hardware import tables
from traceanalyzer.text import listed

#: Words of vendors and product lines that tell no two GPUs apart.
_EMPTY_WORDS = frozenset({"nvidia", "amd", "geforce", "tesla", "quadro", "instinct", "radeon", "gpu"})
#: Words that make another product of the same number: an RTX 6000 is no RTX PRO 6000.
_TELLING = frozenset({"pro"})
_WORD = re.compile(r"[a-z]*\d+[a-z0-9]*|[a-z]+")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A product: what it holds. Unknown is None."""

    name: str
    trace_name: str
    """What names in traces contain."""
    vendor: str
    compute_capability: tuple[int, int] | None
    """NVIDIA's major and minor; None for other vendors."""
    sms: int | None
    """Streaming multiprocessors, compute units on AMD."""

    @property
    def shape(self) -> tuple[tuple[int, int] | None, int | None]:
        """What decides how launches sit on it: GPUs of one shape need no telling apart."""
        return self.compute_capability, self.sms


@cache
def known() -> tuple[Gpu, ...]:
    """All GPUs of the table."""
    return tuple(
        Gpu(
            name=row["gpu"],
            trace_name=row["trace_name_contains"],
            vendor=row["vendor"],
            compute_capability=_capability(row["cc"]) if row["vendor"] == "NVIDIA" else None,
            sms=tables.whole(row["sm_or_cu"]),
        )
        for row in tables.rows("gpu_specs.tsv")
    )


def find(name: str) -> Gpu:
    """The GPU that a user means; a name that several share is enough where they are of one shape.

    Raises `UsageError`, with the near names, where none or several different ones are called so.
    """
    found = _called(name)
    if not found:
        near = _near(name)
        raise UsageError(f"no GPU {name!r} in the table; {f'near: {listed(near)}' if near else f'there is {_all()}'}")
    if len({gpu.shape for gpu in found}) > 1:
        choices = listed([f"{gpu.name} ({gpu.sms or 'unknown number of'} SMs)" for gpu in found], at_most=8)
        raise UsageError(f"several GPUs are called {name!r} and differ; which of {choices}?")
    return found[0]


def _called(name: str) -> list[Gpu]:
    """The GPUs that have all words of the name; or, where it is written without gaps, some in a row."""
    exact = [gpu for gpu in known() if name.casefold() in (gpu.name.casefold(), gpu.trace_name.casefold())]
    if exact:
        return exact
    words = _words(name)
    if words and (found := [gpu for gpu in known() if all(_has(gpu, word) for word in words)]):
        return [gpu for gpu in found if len(words) == 1 or _words(gpu.name) & _TELLING <= words]
    squashed = _squashed(name)
    return [gpu for gpu in known() if squashed in _runs(gpu.name) | _runs(gpu.trace_name)]


def _has(gpu: Gpu, word: str) -> bool:
    """Whether a word is in its names; one of letters alone may be the beginning of one (`sxm` of `sxm5`)."""
    own = _words(gpu.name) | _words(gpu.trace_name)
    return word in own or (word.isalpha() and any(each.startswith(word) for each in own))


def _near(name: str) -> list[str]:
    """Names that are spelled alike, or share a word."""
    by_squashed = {_squashed(gpu.name): gpu.name for gpu in known()}
    alike = difflib.get_close_matches(_squashed(name), list(by_squashed), n=4, cutoff=0.5)
    shared = sorted(known(), key=lambda gpu: -len(_words(name) & _words(gpu.name)))
    sharing = [gpu.name for gpu in shared if _words(name) & _words(gpu.name)]
    return list(dict.fromkeys([*sharing[:3], *(by_squashed[each] for each in alike), *sharing]))[:6]


def _all() -> str:
    return listed([gpu.name for gpu in known()], at_most=len(known()))


def _words(name: str) -> set[str]:
    return set(_listed_words(name))


def _squashed(name: str) -> str:
    return "".join(_listed_words(name))


def _runs(name: str) -> set[str]:
    """Every run of neighbouring words, written without gaps."""
    words = _listed_words(name)
    return {"".join(words[first:end]) for first in range(len(words)) for end in range(first + 1, len(words) + 1)}


def _listed_words(name: str) -> list[str]:
    return [word for word in _WORD.findall(name.casefold()) if word not in _EMPTY_WORDS]


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)
