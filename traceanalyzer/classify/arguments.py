"""Template arguments as short text, and the few facts that matter of the GEMM libraries' hundreds of types."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice, pairwise

from traceanalyzer.classify import cxx
from traceanalyzer.classify.cxx import Group, Item
from traceanalyzer.classify.paths import Segment, path_of, unwrap, words
from traceanalyzer.classify.words import ELLIPSIS

_TYPE_BUDGET = 600  # types shown at most: those of a mangled name can unfold endlessly
_MAX_NESTING = 40
_SIMPLE = 14  # arguments of this many characters are shown even where arguments are not

# Arguments of PyTorch's templates that are the same for every kernel of their family.
_DULL = frozenset(
    {
        "Array",
        "TrivialOffsetCalculator",
        "OffsetCalculator",
        "LoadWithCast",
        "LoadWithoutCast",
        "StoreWithCast",
        "StoreWithoutCast",
        "TensorListMetadata",
        "TensorListScalarListMetadata",
        "FusedOptimizerTensorListMetadata",
        "DefaultPtrTraits",
        "RestrictPtrTraits",
    }
)
_UNARY = frozenset({"AUnaryFunctor", "BUnaryFunctor"})
_SHAPES = frozenset({"tuple", "Tuple", "Sequence", "sequence", "GemmShape", "MatrixShape"})
_CONSTANTS = frozenset({"C", "Int", "integral_constant", "number"})
_MEMBERS = re.compile(r"Policy\d*|type|value_type|Params|params|Arguments|exists|value")  # of the class before

_TYPES = {
    "unsigned int": "uint", "unsigned long": "ulong", "unsigned long long": "ulong", "long long": "long",
    "unsigned char": "uchar", "signed char": "char", "unsigned short": "ushort", "long unsigned int": "ulong",
    "long int": "long", "__nv_bfloat16": "bf16", "__hip_bfloat16": "bf16", "hip_bfloat16": "bf16",
    "bfloat16_t": "bf16", "nv_bfloat16": "bf16", "__bf16": "bf16", "__half": "half", "half_t": "half",
    "tfloat32_t": "tf32", "float_e4m3_t": "e4m3", "float_e5m2_t": "e5m2", "__nv_fp8_e4m3": "e4m3",
    "__nv_fp8_e5m2": "e5m2", "float_e2m1_t": "e2m1",
}  # fmt: skip
_INTEGER = re.compile(r"(-?\d+)[uUlL]*|_(\d+)")
_BRACKETS = frozenset("<>()[]{}")


#: By the identity of an argument: what it is as a whole, and the paths of its words. Good as long as the tree lives.
Known = dict[int, tuple[str | None, list[list[Segment]]]]


def argument_texts(parts: list[list[Item]], depth: int, known: Known | None = None) -> list[str]:
    """Arguments without those that are the same for all kernels of a family, their own down to `depth`.

    `known` is filled and used: the same tree at several depths is taken apart once.
    """
    return _Renderer(depth, known).texts(parts)


def lambda_text(types: Group | None) -> str:
    """What stands for a lambda behind its function's name: the types it takes, each once."""
    return _Renderer(depth=1).lambda_text(types)


def full_text(items: list[Item]) -> str:
    """A name as a demangler would print it; endless ones are cut short."""
    budget = _TYPE_BUDGET
    pieces: list[str] = []
    stack: list[list[Item]] = [items[::-1]]
    while stack:
        if not stack[-1]:
            stack.pop()
            continue
        item = stack[-1].pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        budget -= 1
        if budget < 0:
            pieces.append(item.bracket + ELLIPSIS + cxx.CLOSING[item.bracket])
            continue
        inner: list[Item] = [item.bracket]
        for number, part in enumerate(item.parts):
            inner += [", ", *part] if number else part
        inner.append(cxx.CLOSING[item.bracket])
        stack.append(inner[::-1])
    return "".join(pieces)


class _Renderer:
    """Types as short text. The budget holds over the whole of one name."""

    def __init__(self, depth: int, known: Known | None = None) -> None:
        self.known: Known = {} if known is None else known
        self.depth = depth
        self.nesting = 0
        self.budget = _TYPE_BUDGET

    def texts(self, parts: list[list[Item]]) -> list[str]:
        return [text for part in parts if not _is_dull(part) and (text := self.type_text(part))]

    def lambda_text(self, types: Group | None) -> str:
        self.nesting += 1
        texts = list(dict.fromkeys(self.texts(types.parts))) if types else []
        self.nesting -= 1
        return f"[{', '.join(texts)}]" if texts else ""

    def type_text(self, items: list[Item]) -> str:
        """One argument: a type, a value, or a class with arguments of its own."""
        self.budget -= 1
        if self.budget < 0 or self.nesting > _MAX_NESTING:
            return ELLIPSIS
        if len(items) == 1 and isinstance(items[0], str):
            return _simple_text(items[0])
        return self._composed_text(items)

    def _composed_text(self, items: list[Item]) -> str:
        if id(items) not in self.known:
            self.known[id(items)] = _taken_apart(items)
        type_, paths = self.known[id(items)]
        return " ".join(map(self._path_text, paths)) if type_ is None else type_

    def _path_text(self, path: list[Segment]) -> str:
        if not path:
            return ""
        last = path[-1]
        if len(path) > 1 and path[-2].arguments is not None and _MEMBERS.fullmatch(last.name):
            last = path[-2]
        number = _INTEGER.fullmatch(last.name)
        if number and last.arguments is None:
            return number.group(1) or number.group(2)
        name = last.name.rstrip("*&")
        name = _TYPES.get(name, name) + last.name[len(name) :]
        if last.arguments is None:
            return name + self.lambda_text(last.lambda_types)
        return self._template_text(name, last.arguments.parts)

    def _template_text(self, name: str, parts: list[list[Item]]) -> str:
        if name in _UNARY:
            parts = parts[-1:]
        transparent = name in _CONSTANTS or name in _SHAPES
        if self.depth <= 0 and not transparent:
            simple = self._simple_texts(parts)
            return f"{name}<{', '.join(simple) or ELLIPSIS}>"
        self.depth -= not transparent
        self.nesting += 1
        texts = self.texts(parts)
        self.nesting -= 1
        self.depth += not transparent
        if name in _CONSTANTS and texts:
            return texts[-1]
        if name in _SHAPES and texts and all(_INTEGER.fullmatch(text) for text in texts):
            return "x".join(texts)
        texts = _without_repeats(texts)
        return f"{name}<{', '.join(texts)}>" if texts else name

    def _simple_texts(self, parts: list[list[Item]]) -> list[str]:
        """Arguments so short that leaving them out would gain nothing; else none."""
        if len(parts) > 4 or any(isinstance(item, Group) for part in parts for item in part):
            return []
        texts = _without_repeats([self.type_text(part) for part in parts])
        return texts if sum(len(text) + 2 for text in texts) <= _SIMPLE else []


def _taken_apart(items: list[Item]) -> tuple[str | None, list[list[Segment]]]:
    """The text of an argument that is a type of many words, else the path of each word."""
    found = words(items)
    plain = " ".join(item for word in found for item in word if isinstance(item, str))
    if plain in _TYPES:
        return _TYPES[plain], []
    if len(found) > 1 and found[0] == ["void"]:
        found = found[1:]
    return None, [unwrap(path_of(word)) for word in found]


@lru_cache(maxsize=1 << 12)
def _simple_text(word: str) -> str:
    """The text of a type that is one word: the same few stand in all templates."""
    return _Renderer(depth=0)._composed_text([word])


def _without_repeats(texts: list[str]) -> list[str]:
    """`MeanOps<float, float, float>` says float once; numbers are all said."""
    return texts[:1] if len(set(texts)) == 1 and not _INTEGER.fullmatch(texts[0]) else texts


def _is_dull(part: list[Item]) -> bool:
    """Arrays of pointers, offset calculators and the like."""
    names = [item for item in part if isinstance(item, str)]
    if names[-1:] == ["array"]:  # std::array<char*, 3ul>; other arrays may matter
        group = part[-1]
        return isinstance(group, Group) and group.parts[0][:2] == ["char", "*"]
    return bool(names) and names[-1] in _DULL


# -- GEMM libraries

_CUTLASS = frozenset(
    {
        "GemmUniversal",
        "ConvUniversal",
        "GemmUniversalStreamk",
        "GemmGrouped",
        "GemmWithEpilogueVisitor",
        "ImplicitGemmConvolution",
        "Gemm",
        "GemmBatched",
        "GemmSplitKParallel",
    }
)
_SCHEDULE = re.compile(r"(?:Mainloop|Kernel)?(Sm\d+)(\w*)")
_CK_BLOCK_SIZES = frozenset({"64", "128", "256", "512", "1024"})


def library_summary(segment: Segment) -> list[str]:
    """Tile, data types and the like of a CUTLASS or Composable Kernel class; empty for all others."""
    if segment.arguments is None:
        return []
    if segment.name in _CUTLASS:
        return _cutlass_3(segment.arguments) or _cutlass_2(segment.arguments)
    for part in segment.arguments.parts[:1]:
        gridwise = _class(part, "Gridwise")
        if gridwise is not None:
            return _composable_kernel(gridwise)
    return []


def _cutlass_3(arguments: Group) -> list[str]:
    """Schedule, tile, data types and layout out of `CollectiveMma<policy, tile, A, dA, B, dB, ...>`."""
    collective = next((found for part in arguments.parts if (found := _class(part, "Collective"))), None)
    if collective is None or len(collective.parts) < 6:
        return []
    policy, tile, type_a, type_b = (_one_text(collective.parts[place]) for place in (0, 1, 2, 4))
    schedule = _SCHEDULE.match(policy)
    if schedule is None:
        return []
    layout = _major(collective.parts[3], "tn") + _major(collective.parts[5], "nt")
    return [text for text in (" ".join(schedule.groups()).strip(), tile, type_a, type_b, layout) if text]


def _cutlass_2(arguments: Group) -> list[str]:
    """Main loop, tile and first data type out of `threadblock::MmaMultistage<GemmShape<...>, ...>`."""
    if not arguments.parts or not arguments.parts[0]:
        return []
    path = path_of(arguments.parts[0])
    if not path or path[-1].arguments is None:
        return []
    tile = next((found for part in path[-1].arguments.parts if (found := _class(part, "GemmShape"))), None)
    if tile is None:
        return []
    shape = "x".join(argument_texts(tile.parts, depth=1))
    leaves = islice(cxx.leaves(arguments.parts[0], limit=300), 300)
    return [path[-1].name, shape, *islice((_TYPES[leaf] for leaf in leaves if leaf in _TYPES), 1)]


def _composable_kernel(gridwise: Group) -> list[str]:
    """Data type and tile: the tile is the three numbers behind the block size."""
    texts = argument_texts(gridwise.parts, depth=1)
    data_type = next((text for text in texts if text.isalnum() and text[0].islower()), "")
    for place, text in enumerate(texts[:-3]):
        if text in _CK_BLOCK_SIZES:
            return [part for part in (data_type, "x".join(texts[place + 1 : place + 4])) if part]
    return []


def _one_text(part: list[Item]) -> str:
    return next(iter(argument_texts([part], depth=3)), "")


def _class(part: list[Item], prefix: str) -> Group | None:
    """The arguments of the class whose name starts so."""
    for name, group in pairwise(part):
        if isinstance(name, str) and name.startswith(prefix) and isinstance(group, Group):
            return group
    return None


def _major(stride: list[Item], letters: str) -> str:
    """BLAS letter of a stride tuple: which of its first two steps is the constant 1."""
    group = stride[-1] if stride and isinstance(stride[-1], Group) else None
    steps = argument_texts(group.parts[:2], depth=2) if group else []
    return letters[0] if steps[1:] == ["1"] else letters[1] if steps[:1] == ["1"] else ""
