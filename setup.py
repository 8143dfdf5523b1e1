"""Builds the native scanner where a C compiler is there; everything else about the package stands in pyproject.toml.

The scanner is a plain shared library, loaded with ctypes: one build serves every Python on a machine, so it bears no
interpreter's tag. Without a compiler the package installs all the same and reads with its pure-Python engine.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

SOURCES = sorted((Path(__file__).parent / "traceanalyzer/ingest").glob("_scan*.[ch]"))


def checksum() -> int:
    """What the package compares with its own sources before it uses the library."""
    total = 0
    for path in SOURCES:
        total = zlib.crc32(path.read_bytes(), total)
    return total


ON_WINDOWS = sys.platform == "win32"
SCANNER = Extension(
    "traceanalyzer.ingest._scan",
    ["traceanalyzer/ingest/_scan.c"],
    depends=[str(path) for path in SOURCES],
    define_macros=[("SCAN_SOURCES", f"{checksum()}u")],
    extra_compile_args=["/O2"] if ON_WINDOWS else ["-std=c99", "-O3", "-fvisibility=hidden"],
    libraries=[] if ON_WINDOWS else ["m"],
    optional=True,
)


class BuildLibrary(build_ext):
    """Builds a library that is no Python module: no tag in its name, no function that Python would look for."""

    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + (".dll" if ON_WINDOWS else ".so")

    def get_export_symbols(self, ext: Any) -> list[str]:  # noqa: ARG002
        return []


class PlatformWheel(bdist_wheel):
    """A wheel for this kind of machine and any Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(ext_modules=[SCANNER], cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel})
