"""The qualified name of a kernel's function, as steps: what stands around it in the text is left out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from traceanalyzer.classify import cxx, mangled
from traceanalyzer.classify.cxx import Group, Item

# Classes around the one that matters, and which of their arguments that is.
_WRAPPERS = {
    "Kernel": 0, "Kernel2": 0, "device_kernel": 0, "gpu_kernel_impl": 0, "gpu_kernel_impl_nocast": 0,
    "gpu_index_kernel": 0, "apply": 0, "BinaryFunctor": -1, "ReduceOp": 1, "func_wrapper_t": 1, "kentry": 1,
}  # fmt: skip
_ENABLE = re.compile(r"enable_sm\w+|enable_if_sm\w+")
_WRAPPER_DEPTH = 8

_QUALIFIERS = frozenset({"const", "volatile", "struct", "class", "enum", "typename", "__restrict__", "restrict"})
_CLONE = re.compile(r"\s*\[clone [^\]]*\]|\.kd$")  # marks of compilers behind a name


@dataclass(slots=True)
class Segment:
    """One step of a qualified name: `name<arguments>`."""

    name: str
    arguments: Group | None = None
    lambda_types: Group | None = None  # of the lambda inside this function that is the kernel's real body


def items_of(name: str) -> list[Item]:
    """The name parsed, mangled or not."""
    if mangled.is_mangled(name) and (items := mangled.read(name)):
        return items
    return cxx.parse(_CLONE.sub("", name).strip())


def function_of(items: list[Item]) -> list[Item]:
    """The function's own name out of `void name<...>(...) const`; empty where the text is no such thing."""
    found = words(items)
    if len(found) == 1:
        return found[0]
    called = [word for word in found if _is_called(word)]
    if called:
        return called[-1]
    if found and found[0] == ["void"]:  # cut off before its parameters
        return [item for word in found[1:] for item in (*word, " ")][:-1]
    return []


def words(items: list[Item]) -> list[list[Item]]:
    """Split at blanks, qualifiers left out; `const` of a member function does not end its word."""
    found: list[list[Item]] = [[]]
    for item in items:
        if item == " ":
            found.append([])
        elif isinstance(item, str) and item in _QUALIFIERS:
            if item == "const" and len(found) > 1 and not found[-1] and _ends_in_call(found[-2]):
                found.pop()
        else:
            if item in ("*", "&") and not found[-1] and len(found) > 1 and found[-2]:
                found.pop()  # the blank before it was the one of `long const*`
            found[-1].append(item)
    return [word for word in found if word]


def path_of(word: list[Item]) -> list[Segment]:
    """The steps of a qualified name. Lambdas hand their types to the function they stand in."""
    path: list[Segment] = []
    step: list[Item] = []
    for item in [*_pointed_to(word), "::"]:
        if item != "::":
            step.append(item)
            continue
        segment = _segment(step)
        step = []
        if segment is None:
            continue
        if segment.lambda_types is not None and path:
            path[-1].lambda_types = segment.lambda_types
        elif segment.name != "operator()" or not path or path[-1].name in cxx.ANONYMOUS:
            path.append(segment)
    return path


def _pointed_to(word: list[Item]) -> list[Item]:
    """The function in `&(float silu<float>(float const&))`."""
    while len(word) == 2 and word[0] == "&" and isinstance(word[1], Group) and word[1].bracket == "(":
        word = function_of(word[1].parts[0])
    return word


def unwrap(path: list[Segment]) -> list[Segment]:
    """Follow wrappers such as `cutlass::device_kernel<...>` to the class that does the work."""
    for _ in range(_WRAPPER_DEPTH):
        wrapped = _wrapped(path[-1]) if path else []
        inner = path_of(wrapped) if wrapped else []
        if not inner:
            break
        path = inner
    return path


def _wrapped(segment: Segment) -> list[Item]:
    """The argument that a wrapper is about; empty for all other classes."""
    index = 0 if _ENABLE.fullmatch(segment.name) else _WRAPPERS.get(segment.name)
    if index is None or segment.arguments is None or index >= len(segment.arguments.parts):
        return []
    found = words(segment.arguments.parts[index])
    last = found[-1] if found else []
    return last if last and isinstance(last[0], str) and (last[0][0].isalpha() or last[0][0] == "_") else []


def _segment(items: list[Item]) -> Segment | None:
    """One step; None for an empty one. What follows a cast in front, `(Kind)0`, is the step."""
    if not items:
        return None
    if len(items) > 1 and isinstance(items[0], Group) and items[0].bracket == "(":
        items = items[1:]
    inner = items[0].parts[0] if isinstance(items[0], Group) and items[0].bracket == "{" else items
    if inner and isinstance(inner[0], str) and inner[0].strip("'").rstrip("0123456789") == "lambda":
        found = next((item for item in inner if isinstance(item, Group) and item.bracket == "("), None)
        return Segment("lambda", lambda_types=found or Group("("))
    name = ""
    arguments: Group | None = None
    for item in items:
        if isinstance(item, str):
            name += item
        elif item.bracket == "<":
            arguments = arguments or item
        elif item.bracket in "[{" or name in ("", "decltype"):  # else the parameters of a function
            name += item.bracket + " ".join(cxx.leaves([item], limit=8)) + cxx.CLOSING[item.bracket]
    return Segment(name, arguments)


def _ends_in_call(word: list[Item]) -> bool:
    return bool(word) and isinstance(word[-1], Group) and word[-1].bracket == "("


def _is_called(word: list[Item]) -> bool:
    return any(
        isinstance(item, Group) and item.bracket == "(" and _may_be_called(before) for before, item in pairwise(word)
    )


def _may_be_called(item: Item) -> bool:
    if isinstance(item, Group):
        return item.bracket == "<"
    return item[-1].isalnum() or item[-1] in "_)"
