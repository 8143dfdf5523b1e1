"""Which run, stage and rank a trace file says it is: from its name, its own words, or the user's pattern.

Takes paths and pid texts, gives `Identity` records. Pure: no file is opened. Every framework names its
files in its own way, so the names are a short list of schemes, tried in turn; a number that no scheme
explains (a pid, a host, a time, a batch size) is never taken for a rank. How files become runs: see `runs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from traceanalyzer.errors import UsageError
from traceanalyzer.text import natural_key as natural_key

RankFrom = Literal["content", "name", "regex"]
Scheme = Literal["sglang", "vllm", "handler", "regex"]
#: What makes a file one certain rank: rank, dp, pp, tp, ep, dcp.
Place = tuple[int | None, int | None, int | None, int | None, int | None, int | None]


@dataclass(frozen=True)
class Identity:
    """What one source of information says about a file; None where it says nothing.

    `prefix` is what is left of the name once stamp, rank, dimensions, stage and pid are taken out: files of
    one capture share it. `scheme` says whose naming was recognised: only SGLang writes one stamp for all
    ranks of a capture, the stamps of torch's handler and of vLLM differ from rank to rank.
    """

    stamp: str | None = None
    prefix: str | None = None
    stage: str | None = None
    rank: int | None = None
    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    ep: int | None = None
    dcp: int | None = None
    merged: bool = False
    capture: bool = False
    rank_from: RankFrom | None = None
    scheme: Scheme | None = None

    @property
    def place(self) -> Place:
        """Rank and dimensions: what tells the files of one run apart."""
        return (self.rank, self.dp, self.pp, self.tp, self.ep, self.dcp)

    @property
    def known(self) -> bool:
        """Whether anything is known about the place of the file in its run."""
        return any(number is not None for number in self.place)


@dataclass(frozen=True)
class FileInfo:
    """What is known of a file once it was read; all that grouping files into runs needs.

    `content_rank` and `world_size` stand in distributedInfo. `pid_labels` are the ranks named in string pids
    (see `label_of_pid`). `content_key` is a hash of the decompressed content, "" where none was made.
    `first_ns` and `last_ns` bound the events of any kind, absolute. `regex_identity` is what the user's
    pattern found.
    """

    path: str
    name_identity: Identity
    content_rank: int | None = None
    world_size: int | None = None
    pid_labels: tuple[str, ...] = ()
    device_events: int = 0
    events: int = 0
    content_key: str = ""
    first_ns: int | None = None
    last_ns: int | None = None
    trace_id: str | None = None
    regex_identity: Identity | None = None


def int_or_none(value: object) -> int | None:
    """A rank or world size as files hold it: 3, "3", or the words "None" and "" for not known."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value).strip()
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) else None  # larger ones are no ranks but damage


# ---------------------------------------------------------------------------------------------- names

_SEPARATOR = re.compile(r"[/\\]+")
#: "x.trace (1).json": what a browser makes of a second download.
_COPY_MARK = re.compile(r" ?\([0-9]+\)(?=\.|$)")
_SUFFIXES = re.compile(r"(?:\.(?:gz|zst|bz2|xz|zip|jsonl?|trace|pt))+$", re.IGNORECASE)
_NUMBER = r"[0-9]{1,7}(?![0-9])"

_RANK_FOLDER = re.compile(rf"rank[_-]?({_NUMBER})", re.IGNORECASE)
_STEP_FOLDER = re.compile(rf"(?:iteration|iter|step)[_-]?({_NUMBER})", re.IGNORECASE)
_CAPTURE_FOLDERS = ("capture_traces", "graph_capture_profile")

#: A rank that is no global rank (local, node, tensor-parallel ...) or no rank of a process at all (LoRA).
_OTHER_RANKS = (
    "local", "node", "host", "group", "role", "dp", "pp", "tp", "ep", "cp", "pcp", "dcp", "sp", "cfg",
    "low", "lora", "qlora", "dora", "adapter", "svd", "matrix",
)  # fmt: skip
_RANK = re.compile(
    rf"(?<![a-z0-9])(?:(?P<kind>{'|'.join(_OTHER_RANKS)})[_\- ]?)?rank[_\-= ]?\[?(?P<rank>{_NUMBER})\]?",
    re.IGNORECASE,
)
_DIMENSIONS = ("dp", "pp", "tp", "ep", "dcp")


def identity_from_name(path: str) -> Identity:
    """What the name of a file (and of the rank folders right above it) says."""
    folders, name = _split(path)
    plain = _COPY_MARK.sub("", name)
    stem = _SUFFIXES.sub("", plain) or plain
    found = next(identity for scheme in _SCHEMES if (identity := scheme(stem, plain)))
    if not found.known and not found.merged:
        rank = _folder_rank(folders)
        found = replace(found, rank=rank, rank_from=None if rank is None else "name")
    if folders and folders[-1].lower() in _CAPTURE_FOLDERS:
        found = replace(found, capture=True)
    return found


def run_folder(path: str) -> str:
    """The folder that the files of one run share: `run/rank_3/t.json` and `run/t.json` are both in `run`."""
    folders, _ = _split(path)
    climbed = _rank_folders(folders)
    kept = folders[: len(folders) - climbed] + [
        part for part in folders[len(folders) - climbed :] if not _RANK_FOLDER.fullmatch(part)
    ]
    return "/".join(kept)


def _split(path: str) -> tuple[list[str], str]:
    *folders, name = _SEPARATOR.split(path)
    root = [""] if folders and not folders[0] else []
    return root + [part for part in folders if part not in ("", ".")], name


def _rank_folders(folders: list[str]) -> int:
    """How many of the innermost folders are named after a rank or a step."""
    climbed = 0
    for part in reversed(folders):
        if not (_RANK_FOLDER.fullmatch(part) or _STEP_FOLDER.fullmatch(part)):
            break
        climbed += 1
    return climbed


def _folder_rank(folders: list[str]) -> int | None:
    for part in reversed(folders[len(folders) - _rank_folders(folders) :]):
        if match := _RANK_FOLDER.fullmatch(part):
            return int(match[1])
    return None


_MERGED = re.compile(r"merged-(?P<id>.+)")
_SECONDS = re.compile(r"(?:(?P<prefix>.+)-)?(?P<stamp>[0-9]{9,11}(?:\.[0-9]+)?)")


def _merged(stem: str, _name: str) -> Identity | None:
    """SGLang's ProfileMerger: `merged-<id>`."""
    match = _MERGED.fullmatch(stem)
    if not match:
        return None
    prefix, stamp = _prefix_and_stamp(match["id"])
    return Identity(stamp=stamp, prefix=prefix, merged=True, scheme="sglang")


_SGLANG = re.compile(
    r"(?:(?P<head>.+?)-)?"
    rf"(?P<dims>(?:TP|DP|PP|EP|DCP|CP)-{_NUMBER}(?:-(?:TP|DP|PP|EP|DCP|CP)-{_NUMBER})*)"
    r"(?:-(?P<tail>.+))?"
)
_SGLANG_DIMENSION = re.compile(r"([A-Z]+)-([0-9]+)")
_STAGES = "EXTEND|DECODE|PREFILL|MIXED|IDLE|TARGET_VERIFY|DRAFT_EXTEND|SPLIT_PREFILL"
_STAGE = re.compile(rf"(?:ForwardMode\.)?({_STAGES})", re.IGNORECASE)
_GRAPH_CAPTURE = re.compile(r"cuda_graph_capture(?:-(?P<runner>.+))?")


def _sglang(stem: str, name: str) -> Identity | None:
    """SGLang: `[<prefix>-]<stamp>-TP-<i>[-DP-<j>]...[-<stage>]`, `cuda_graph_capture-<runner>-TP-<i>`."""
    match = _SGLANG.fullmatch(stem)
    if not match:
        return None
    dims = _numbers(_SGLANG_DIMENSION, match["dims"])
    head, tail = match["head"] or "", match["tail"] or ""
    stage = _STAGE.fullmatch(tail)
    graph = _GRAPH_CAPTURE.fullmatch(head)
    prefix, stamp = (graph["runner"], None) if graph else _prefix_and_stamp(head)
    certain = graph is not None or stamp is not None or (".trace." in name and (stage or not tail))
    if "tp" not in dims or not certain:
        return None  # `Llama-TP-8-bf16.json` tells the size of a group, not a place in it
    return replace(
        _placed(dims, rank=_rank_of_dims(dims)),
        stamp=stamp,
        prefix=(prefix if stage else _join(prefix or "", tail)) or None,
        stage=stage[1].upper() if stage else None,
        capture=graph is not None,
        scheme="sglang",
    )


def _rank_of_dims(dims: Mapping[str, int]) -> int | None:
    """The global rank, where SGLang's dimensions give it away.

    It is pp * tp_size + tp, and no name tells tp_size. Of DP nobody can say from outside whether it slices
    the TP group (DP attention) or numbers replicas, each a world of its own. EP always slices the TP group
    and adds no ranks, so it does not matter.
    """
    return None if dims.get("pp") or dims.get("dp") or dims.get("cp") else dims.get("tp")


def _numbers(dimension: re.Pattern[str], text: str) -> dict[str, int]:
    return {name.lower(): int(number) for name, number in dimension.findall(text)}


def _placed(numbers: Mapping[str, int | None], *, rank: int | None, rank_from: RankFrom = "name") -> Identity:
    return Identity(
        rank=rank,
        dp=numbers.get("dp"),
        pp=numbers.get("pp"),
        tp=numbers.get("tp"),
        ep=numbers.get("ep"),
        dcp=numbers.get("dcp"),
        rank_from=None if rank is None else rank_from,
    )


def _prefix_and_stamp(head: str) -> tuple[str | None, str | None]:
    """`run1-1767225700.5` -> run1 and the stamp; a head without a stamp is all prefix."""
    match = _SECONDS.fullmatch(head)
    return (match["prefix"], match["stamp"]) if match else (head or None, None)


_HANDLER = re.compile(
    r"(?P<worker>.+?)\.(?P<stamp>[0-9]{12,20}|[A-Z][a-z]{2}_[0-9]{1,2}_[0-9]{2}_[0-9]{2}_[0-9]{2}\.[0-9]+)"
)
_WORKER = re.compile(rf"worker[_-]?(?P<rank>{_NUMBER})(?:[_-](?P<rest>.+))?", re.IGNORECASE)
_HOST_PID = re.compile(r".+_[0-9]+")
_FRONT_END = re.compile(r".+_[0-9]+\.(?P<rest>[A-Za-z_]+)")
_VLLM_TOKEN = r"(?:dp|pp|tp|pcp|cp|dcp|ep|rank)[0-9]{1,7}"
_VLLM = re.compile(rf"(?:(?P<prefix>.+?)_)??(?P<tokens>{_VLLM_TOKEN}(?:_{_VLLM_TOKEN})+)")
_VLLM_NUMBER = re.compile(r"([a-z]+)([0-9]+)")


def _handler(stem: str, _name: str) -> Identity | None:
    """torch's tensorboard_trace_handler, vLLM's too: `<worker>.<ms or ns>`; the stamp is the rank's own."""
    match = _HANDLER.fullmatch(stem)
    if not match:
        return None
    worker = match["worker"]
    found = _vllm(worker) or _worker(worker) or _anything(worker, "")
    if not found.known and not found.capture:
        front_end = _FRONT_END.fullmatch(worker)  # `<host>_<pid>.async_llm`
        if front_end or _HOST_PID.fullmatch(worker):
            found = replace(found, prefix=front_end["rest"] if front_end else None)
    return replace(found, stamp=match["stamp"], scheme=found.scheme or "handler")


def _unstamped(stem: str, _name: str) -> Identity | None:
    """The names of `_handler` whose stamp was taken off."""
    return _vllm(stem) or _worker(stem)


def _vllm(worker: str) -> Identity | None:
    """vLLM: `[<prefix>_]dp0_pp0_tp1_dcp0_ep1_rank1`."""
    match = _VLLM.fullmatch(worker)
    if not match:
        return None
    numbers = _numbers(_VLLM_NUMBER, match["tokens"])
    # `llama_pp1_tp8_rank0` tells sizes: vLLM always writes dp, pp, tp and rank, and no rank is below its tp.
    if not {"dp", "pp", "tp", "rank"} <= numbers.keys() or numbers["tp"] > numbers["rank"]:
        return None
    return replace(_placed(numbers, rank=numbers["rank"]), prefix=match["prefix"], scheme="vllm")


def _worker(worker: str) -> Identity | None:
    """`worker3`, `worker3_step_12`: what torch's examples and PARAM call their ranks."""
    match = _WORKER.fullmatch(worker)
    if not match:
        return None
    return Identity(prefix=match["rest"], rank=int(match["rank"]), rank_from="name", scheme="handler")


#: Graph-capture traces of vLLM, of xDiT, and of SGLang, which writes one per batch size (`bs_32_rank0`).
_CAPTURE = re.compile(
    rf"(?:graph_capture|capture_trace)_rank_?(?P<rank>{_NUMBER})(?:_(?P<rest>.+))?"
    rf"|(?P<size>(?:[A-Za-z]*Runner_)?bs_[0-9]+)_rank_?(?P<rank_of_size>{_NUMBER})"
)


def _anything(stem: str, _name: str) -> Identity:
    """Any other name: a rank where the word `rank` stands before a number, and only one such number."""
    if match := _CAPTURE.fullmatch(stem):
        rank = int(match["rank"] or match["rank_of_size"])
        return Identity(prefix=match["rest"] or match["size"], rank=rank, capture=True, rank_from="name")
    ranks = [match for match in _RANK.finditer(stem) if not match["kind"]]
    if len({int(match["rank"]) for match in ranks}) != 1:
        return Identity(prefix=stem)
    rest = stem
    for match in reversed(ranks):
        rest = _join(rest[: match.start()], rest[match.end() :])
    return Identity(prefix=rest or None, rank=int(ranks[0]["rank"]), rank_from="name")


def _join(before: str, after: str) -> str:
    parts = (before.strip(" _-."), after.strip(" _-."))
    return "-".join(part for part in parts if part)


_Scheme = Callable[[str, str], Identity | None]
_SCHEMES: tuple[_Scheme, ...] = (_merged, _sglang, _handler, _unstamped, _anything)

# ------------------------------------------------------------------------------------- labels in pids

_LABEL = re.compile(r"\[((?:TP|DP|PP|EP)[0-9]+(?:-(?:TP|DP|PP|EP)[0-9]+)*)\] ")
_LABEL_DIMENSION = re.compile(r"(TP|DP|PP|EP)([0-9]{1,7})")


def label_of_pid(pid: str) -> str | None:
    """The rank label that SGLang's ProfileMerger puts before a pid: `[TP00-DP01] 1234` -> `TP00-DP01`."""
    match = _LABEL.match(pid)
    return match[1] if match else None


def identity_from_label(label: str) -> Identity:
    """What a label of a merged file says: `TP00-DP01` -> tp 0, dp 1."""
    dims = _numbers(_LABEL_DIMENSION, label)
    return _placed(dims, rank=_rank_of_dims(dims), rank_from="content")


# ------------------------------------------------------------------------------------------ --rank-regex

_GROUPS = ("rank", *_DIMENSIONS, "stage", "run")


def identity_from_regex(path: str, regex: str) -> Identity:
    """What the user's own pattern finds in a path: named groups, or a single unnamed one, which is the rank.

    A path that does not match, or a group that holds no number, says nothing. Raises `UsageError` for a
    pattern that does not compile or has no usable group.
    """
    match = _compiled(regex).search(path)
    if not match:
        return Identity()
    groups = match.groupdict() or {"rank": match[1]}
    numbers = {name: int_or_none(groups.get(name)) for name in ("rank", *_DIMENSIONS)}
    stage = groups.get("stage")
    return replace(
        _placed(numbers, rank=numbers["rank"], rank_from="regex"),
        prefix=groups.get("run") or None,
        stage=stage.upper() if stage else None,
        scheme="regex",
    )


def check_rank_regex(regex: str) -> None:
    """Raise `UsageError` for a pattern that `identity_from_regex` cannot use, before any file is read."""
    _compiled(regex)


@lru_cache(maxsize=16)
def _compiled(regex: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise UsageError(f"--rank-regex does not compile: {error}") from error
    if unknown := sorted(set(pattern.groupindex) - set(_GROUPS)):
        raise UsageError(f"--rank-regex has no use for group {unknown[0]!r}; it knows {', '.join(_GROUPS)}")
    if not pattern.groupindex and pattern.groups != 1:
        raise UsageError("--rank-regex needs one (group), the rank, or named groups such as (?P<rank>...)")
    return pattern
