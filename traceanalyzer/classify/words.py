"""Names without brackets, made by generators of kernels: Triton, Tensile, cuBLAS, CUTLASS, TensorRT-LLM.

Generators write all settings of a kernel into its name. Kept is what tells a reader which kernel it is:
family, architecture, data types, tile, layout.
"""

from __future__ import annotations

import re

ELLIPSIS = ".."
WORD_LIMIT = 80  # the longest word left whole: CUTLASS 2 names are about this long and dense with facts
WORD_GOAL = 60  # what a longer one is cut to

_TENSILE_TILE = re.compile(r"_(MT\d+x\d+x\d+)(?:_(MI\d+x\d+x\d+(?:x\d+)?))?(?=_|$)")
_TENSILE_EXTRA = frozenset({"Bias", "HA", "S", "SAV", "SAB", "SCD", "UserArgs", "AH"})
_XMMA = re.compile(r"(\w*xmma_\w+?)_tilesize(\d+x\d+x\d+)(?:_(stage\d+))?_\w*")
_XMMA_TYPES = re.compile(r"(?:[a-z]+\d+)+|e\dm\de\dm\d\w*")
_TRTLLM_GEMM = re.compile(r"((?:bmm|gemm)(?:_[A-Za-z0-9]+){3})(?:_[ABC]b\d+)*_(t\d+x\d+x\d+)\w*?")
_CUTE_DSL = re.compile(r"(?:kernel_)?cutlass_(?:kernel_)?(\w+?)_object_at_.*")
_IGEMM = re.compile(r"(igemm_\w+?)_bx\d+_ex\d+_(bt\d+x\d+x\d+)_\w*")
_HASH = re.compile(r"(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{16,}")


def shorten_word(word: str) -> str:
    """A generated name without what its generator appended for the machine."""
    word = _without_tail(word)
    for rewrite in (_tensile, _cute_dsl, _xmma, _trtllm_gemm, _igemm):
        word = rewrite(word)
    return word if len(word) <= WORD_LIMIT else elide(word, WORD_GOAL)


def elide(text: str, room: int) -> str:
    """Cut the middle out of a long text; the end stays, since generated names are numbered there."""
    if len(text) <= room:
        return text
    tail = text[-(room // 3) :]
    boundary = tail.find("_")
    if 0 <= boundary < len(tail) - 1:
        tail = tail[boundary + 1 :]
    return text[: room - len(tail) - len(ELLIPSIS)].rstrip("_<,: .") + ELLIPSIS + tail


def _without_tail(word: str) -> str:
    """Triton writes the specialization of every argument behind a name (`add_0d1d2de`), others a hash.

    A name that is nothing but its signature (`triton__0d1d`) keeps it.
    """
    head, _, tail = word.rpartition("_")
    if not head.strip("_") or head.endswith("_"):
        return word
    return head if _is_signature(tail) or _HASH.fullmatch(tail) else word


def _is_signature(tail: str) -> bool:
    """Only a run that counts up from 0 is one: `triton_poi_fused_add_0` keeps its number."""
    position = count = 0
    while position < len(tail):
        number = str(count)
        if not tail.startswith(number, position):
            return False
        position += len(number)
        while position < len(tail) and tail[position] in "dcei":
            position += 1
        count += 1
    return count > 1 and not tail.isdigit()


def _tensile(word: str) -> str:
    """rocBLAS and hipBLASLt: operation, data types, macro tile and instruction out of 100 settings."""
    tile = _TENSILE_TILE.search(word) if word.startswith("Cijk_") else None
    if tile is None:
        return word
    head = [part for part in word[: tile.start()].split("_") if part not in _TENSILE_EXTRA]
    return "_".join([*head, *(part for part in tile.groups() if part)])


def _xmma(word: str) -> str:
    """cuBLAS and cuDNN: `sm80_xmma_<operation>_<types>_<layout>_tilesize<tile>_stage<n>_<settings>`."""
    found = _XMMA.fullmatch(word)
    if found is None:
        return word
    head, tile, stages = found.groups()
    kept: list[str] = []
    for part in head.replace("_implicit_gemm", "").split("_"):
        typed = _XMMA_TYPES.fullmatch(part) is not None and len(kept) > 2
        if part != "nhwckrsc" and not (typed and _XMMA_TYPES.fullmatch(kept[-1])):
            kept.append(part)
    return "_".join([*kept, tile, *([stages] if stages else [])])


def _cute_dsl(word: str) -> str:
    """CuTe's Python kernels: the class, without the tensors it was compiled for."""
    found = _CUTE_DSL.fullmatch(word)
    return word if found is None else found.group(1)


def _trtllm_gemm(word: str) -> str:
    """TensorRT-LLM's generated GEMMs: data types, tile, activation and architecture."""
    found = _TRTLLM_GEMM.match(word)
    if found is None:
        return word
    rest = word[found.end() :].split("_")
    return "_".join([*found.groups(), *(part for part in rest if part in ("swiGlu", "geGlu") or part[:3] == "sm1")])


def _igemm(word: str) -> str:
    """MIOpen's convolutions as GEMM: direction, layout, type, block tile."""
    found = _IGEMM.fullmatch(word)
    return word if found is None else "_".join(found.groups())
