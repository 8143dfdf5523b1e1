"""Reads the path and the template arguments out of a mangled name (Itanium C++ ABI, `_Z...`).

Profilers leave some names mangled, above all those of libraries on ROCm. The standard library has no
demangler, and what a person needs of such a name is its beginning, so this reads just that: the qualified
name of the function and its template arguments. The types of its parameters are not read. What it does not
know ends the reading, and what was read until there is returned.
"""

from __future__ import annotations

import re

from traceanalyzer.classify.cxx import Group, Item

_MAX_DEPTH = 100  # counted twice a level; real names nest to about 20
_MAX_PATH = 64

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
    "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long",
    "x": "long long", "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float",
    "d": "double", "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
_BUILTIN_D = {"n": "decltype(nullptr)", "i": "char32_t", "s": "char16_t", "u": "char8_t", "h": "half", "a": "auto"}
_STANDARD = {"a": "allocator", "b": "basic_string", "s": "string", "i": "istream", "o": "ostream", "d": "iostream"}
_OPERATORS = {
    "cl": "operator()", "ix": "operator[]", "pl": "operator+", "mi": "operator-", "ml": "operator*",
    "dv": "operator/", "eq": "operator==", "ne": "operator!=", "lt": "operator<", "gt": "operator>",
    "aS": "operator=", "ls": "operator<<", "rs": "operator>>", "nw": "operator new", "dl": "operator delete",
}  # fmt: skip

_NUMBER = re.compile(r"\d+")
_SEQUENCE = re.compile(r"[0-9A-Z]*_")
_FLOAT16 = re.compile(r"F(\d+)(b|_)")
_LITERAL_VALUE = re.compile(r"n?[0-9a-f]*")
_SUFFIX = re.compile(r"\s*\[clone [^\]]*\]|\.kd$")


class _UnreadableNameError(Exception):
    """The name has something this reader does not know; what was read so far stands."""


def is_mangled(name: str) -> bool:
    """Whether the name looks like a mangled one."""
    return name.startswith(("_Z", "__Z"))


def read(name: str) -> list[Item]:
    """Path and template arguments of a mangled name; empty when not even its beginning can be read."""
    text = _SUFFIX.sub("", name)
    reader = _Reader(text[text.index("_Z") + 2 :])
    try:
        return reader.entity(top=True)
    except _UnreadableNameError:
        return reader.so_far


class _Reader:
    """A cursor over the text with the table of substitutions (`S_`, `S0_`, ...) that the ABI prescribes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.substitutions: list[list[Item]] = []
        self.so_far: list[Item] = []  # of the outermost name, for when reading fails inside it

    # -- the cursor

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def skip(self, expected: str) -> bool:
        found = self.text.startswith(expected, self.at)
        if found:
            self.at += len(expected)
        return found

    def need(self, expected: str) -> None:
        if not self.skip(expected):
            raise _UnreadableNameError

    def match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise _UnreadableNameError
        self.at = found.end()
        return found

    # -- names

    def entity(self, *, top: bool = False) -> list[Item]:
        """`<name>`: nested, local, or a plain one; as a list of path items."""
        self._descend()
        try:
            if self.skip("N"):
                return self._nested(top=top)
            if self.skip("Z"):
                return self._local(top=top)
            path: list[Item] = []
            if top:
                self.so_far = path
            if self.peek(2) == "St":
                self.at += 2
                path += ["std", "::"]
            path.append(self._component())
            if self.peek() == "I":
                self.substitutions.append(list(path))
                self._arguments(path)
            return path
        finally:
            self.depth -= 1

    def _nested(self, *, top: bool) -> list[Item]:
        path: list[Item] = []
        if top:
            self.so_far = path
        while self.peek() and self.peek() in "rVKRO":
            self.at += 1
        remembered = True  # whether the path so far is in the table already
        while not self.skip("E"):
            if len(path) > _MAX_PATH:
                raise _UnreadableNameError
            if self.peek() == "I":
                if not remembered:
                    self.substitutions.append(list(path))
                self._arguments(path)
                remembered = False
                continue
            if self.peek() == "S" and not path:
                path += self._substitution()
                remembered = True
                continue
            if not remembered:
                self.substitutions.append(list(path))
            if self.peek() == "T":
                path += self._template_parameter()
            else:
                if path:
                    path.append("::")
                path.append(self._component())
            remembered = False
        return path

    def _local(self, *, top: bool) -> list[Item]:
        """A name inside a function: `Z <function> E <name>`."""
        path = self.entity(top=top)
        while self.peek() and not self.skip("E"):  # the function's parameters tell nothing here
            self.type()
        if self.skip("s"):
            return path
        return [*path, "::", *self.entity()]

    def _component(self) -> Item:
        if self.peek() == "L" and self.peek(2)[1:].isdigit():  # internal linkage
            self.at += 1
        if self.peek().isdigit():
            length = int(self.match(_NUMBER).group())
            word = self.text[self.at : self.at + length]
            if len(word) < length or not word:
                raise _UnreadableNameError
            self.at += length
            return "(anonymous namespace)" if word.startswith("_GLOBAL__N") else word
        if self.skip("Ut"):
            self.match(_SEQUENCE)
            return "{unnamed}"
        if self.skip("Ul"):
            types = Group("(", [])
            while self.peek() and not self.skip("E"):
                types.parts.append([] if self.skip("v") else self.type())  # void: takes nothing
            self.match(_SEQUENCE)
            return Group("{", [["lambda", types]])
        operator = self.peek(2)
        if operator in _OPERATORS:
            self.at += 2
            return _OPERATORS[operator]
        if operator[:1] in ("C", "D") and operator[1:].isdigit():
            self.at += 2
            return "{constructor}" if operator[0] == "C" else "{destructor}"
        raise _UnreadableNameError

    def _substitution(self) -> list[Item]:
        self.need("S")
        if self.skip("t"):
            return ["std"]
        if self.peek() in _STANDARD:
            word = _STANDARD[self.peek()]
            self.at += 1
            return ["std", "::", word]
        index = self._sequence_number()
        if index >= len(self.substitutions):
            raise _UnreadableNameError
        return list(self.substitutions[index])

    def _sequence_number(self) -> int:
        """`_` is the first, `0_` the second, counted in base 36."""
        digits = self.match(_SEQUENCE).group()[:-1]
        if len(digits) > 8:
            raise _UnreadableNameError
        return int(digits, 36) + 1 if digits else 0

    def _template_parameter(self) -> list[Item]:
        self.need("T")
        self.match(_SEQUENCE)
        return ["T"]  # which argument it stands for is not needed to name the kernel

    # -- template arguments

    def _arguments(self, path: list[Item]) -> None:
        """`I ... E`. The group is hung on the path first, so that a failure inside keeps what was read."""
        self.need("I")
        group = Group("<", [])
        path.append(group)
        try:
            while not self.skip("E"):
                group.parts += self._argument()
        except _UnreadableNameError:
            group.parts.append([".."])
            raise

    def _argument(self) -> list[list[Item]]:
        if not self.peek():
            raise _UnreadableNameError
        if self.peek() == "L":
            return [self._literal()]
        if self.skip("J"):
            pack: list[list[Item]] = []
            while not self.skip("E"):
                pack += self._argument()
            return pack
        if self.skip("X"):
            return [self._expression()]
        if self.skip("Tn"):  # the type of a constrained value parameter comes before its value
            self.type()
            return self._argument()
        return [self.type()]

    def _literal(self) -> list[Item]:
        self.need("L")
        if self.skip("_Z"):
            path = self.entity()
            while self.peek() and not self.skip("E"):
                self.type()
            return path
        if self.skip("b"):
            value = "true" if self.match(_NUMBER).group() != "0" else "false"
        else:
            self.type()
            value = self.match(_LITERAL_VALUE).group().replace("n", "-", 1)
        self.need("E")
        return [value]

    def _expression(self) -> list[Item]:
        """Only the address of something is known; other expressions end the reading."""
        self.need("ad")
        path = self._literal()
        self.need("E")
        return path

    # -- types

    def type(self) -> list[Item]:
        """`<type>`, as items; what can be referred to again is put in the table."""
        self._descend()
        try:
            return self._type()
        finally:
            self.depth -= 1

    def _type(self) -> list[Item]:
        letter = self.peek()
        if letter in _BUILTIN:
            self.at += 1
            return [_BUILTIN[letter]]
        if letter == "S" and self.peek(2) != "St":
            found = self._substitution()
            if self.peek() != "I":
                return found
            self._arguments(found)
        elif letter == "D":
            plain = self._builtin_d()
            if plain is not None:
                return plain
            found = self.type()  # a pack expansion
        elif letter and letter in "PROKVrCG":
            self.at += 1
            inner = self.type()
            found = [*inner, {"P": "*", "R": "&", "O": "&&"}[letter]] if letter in "PRO" else inner
        elif letter == "F":
            found = self._function()
        elif letter == "A":
            self.at += 1
            size = self.match(_NUMBER).group()
            self.need("_")
            found = [*self.type(), Group("[", [[size]])]
        elif letter == "M":
            self.at += 1
            self.type()
            found = self.type()
        elif letter == "T":
            found = self._template_parameter()
            if self.peek() == "I":
                self.substitutions.append(list(found))
                self._arguments(found)
        elif letter == "u":
            self.at += 1
            return [self._component()]
        elif letter and (letter in "NZS" or letter.isdigit()):
            found = self.entity()
        else:
            raise _UnreadableNameError
        self.substitutions.append(found)
        return list(found)

    def _builtin_d(self) -> list[Item] | None:
        """The types that begin with D; None for a pack expansion, whose type follows."""
        self.need("D")
        if self.skip("p"):
            return None
        if self.peek() == "F":
            bits, kind = self.match(_FLOAT16).groups()
            return ["bf16" if kind == "b" else f"float{bits}"]
        word = _BUILTIN_D.get(self.peek())
        if word is None:
            raise _UnreadableNameError
        self.at += 1
        return [word]

    def _function(self) -> list[Item]:
        self.need("F")
        self.skip("Y")
        returned = self.type()
        parameters = Group("(", [])
        while self.peek() and not self.skip("E"):
            parameters.parts.append(self.type())
        return [*returned, " ", parameters]

    def _descend(self) -> None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _UnreadableNameError
