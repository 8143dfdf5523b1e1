"""The foundation: the emulator notices what is wrong, compilers are found or missed in one line, imports are light."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from traceanalyzer.errors import NeedsGpuError, UsageError
from traceanalyzer.kernels import KERNELS, find
from traceanalyzer.kernels.common import build, cache, driver, nvrtc
from traceanalyzer.kernels.common.emulator import Emulator
from traceanalyzer.kernels.common.errors import CompilerError, EmulatorError
from traceanalyzer.kernels.common.gpu_state import GpuState, clocks_moved
from traceanalyzer.kernels.common.kernel import Build
from traceanalyzer.kernels.common.program import SHARED_BYTES_LIMIT, Backend, Launch, Program
from traceanalyzer.kernels.common.testing import (
    SEEDS,
    needs_compiler,
    needs_cxx,
    needs_gpu,
    needs_nvrtc,
    over_budget,
    the_gpu,
)
from traceanalyzer.kernels.gather_cast.reference import VALUES, bf16_bits

COMMON = Path(__file__).parent
PRODUCT = Program(COMMON / "tile_product.cu", "tile_product")
PRODUCT_SHARED = 2 * (64 + 32) * 80


def product(backend: Backend, depth: int) -> None:
    """Multiply random whole numbers, whose sums are exact in any order, and compare."""
    random = np.random.default_rng(depth)
    left, right = (random.integers(-8, 9, shape).astype(np.float32) for shape in ((64, depth), (depth, 32)))
    result = np.full((64, 32), np.nan, np.float32)
    halves = [np.ascontiguousarray(each.view(np.uint32) >> 16).astype(np.uint16) for each in (left, right)]
    backend.run(Launch(PRODUCT, (1, 1, 1), 128, PRODUCT_SHARED), [*halves, np.int32(depth), result])
    np.testing.assert_array_equal(result, left @ right)


@needs_cxx
@pytest.mark.parametrize("depth", [32, 64, 160])
def test_matrix_tiles_come_out_as_numpy_has_them(depth: int) -> None:
    for seed in SEEDS:
        emulator = Emulator(seed)
        product(emulator, depth)
        assert emulator.counts
        assert emulator.counts.multiplications == depth // 16 * 4 * 128
        assert emulator.counts.async_copies == (64 + 32) * 4 * (depth // 32)


@needs_gpu
@pytest.mark.parametrize("depth", [32, 64, 160])
def test_matrix_tiles_come_out_alike_on_a_gpu(depth: int) -> None:
    product(the_gpu(), depth)


PRIMITIVES = Program(COMMON / "primitives.cu", "primitives")


def primitives(backend: Backend) -> None:
    """Compare what conversions and operations of a warp give with numpy, NaN apart bit for bit."""
    random = np.random.default_rng(5)
    numbers = (random.normal(size=1024) * 2.0 ** random.integers(-30, 20, 1024)).astype(np.float32)
    numbers[:8] = (0, -0.0, np.inf, -np.inf, 65519, 65520, 2.0**-25, 2.0**-24 * 1.5)
    words = random.integers(0, 1 << 32, 1024, dtype=np.uint32)
    words[:128] = np.arange(512, dtype=np.uint16).astype(np.uint8).view(np.uint32)  # all codes
    out = np.zeros((1024, 8), np.uint32)
    backend.run(Launch(PRIMITIVES, (1, 1, 1), 32), [numbers, words, out])
    halves = out.view(np.uint16).reshape(1024, 8, 2)
    with np.errstate(over="ignore"):
        f16 = np.stack([numbers, -numbers], 1).astype(np.float16)
    np.testing.assert_array_equal(halves[:, 0], f16.view(np.uint16))
    np.testing.assert_array_equal(halves[:, 1], bf16_bits(np.stack([numbers, -numbers], 1)))
    codes = words.view(np.uint8).reshape(1024, 2, 2)
    np.testing.assert_array_equal(halves[:, 2:4].view(np.float16).astype(np.float64), VALUES[codes])
    pairs = words.view(np.float16).reshape(1024, 2)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(halves[:, 4].view(np.float16), pairs * np.array([1, 1.5], np.float16))
        powers = np.exp2(numbers.astype(np.float64)).astype(np.float32)
    finite = (powers > 2.0**-126) & np.isfinite(powers)
    np.testing.assert_allclose(out[:, 5].view(np.float32)[finite], powers[finite], rtol=2.0**-21)
    assert (out[:, 5].view(np.float32)[powers < 2.0**-126] == 0).all()
    np.testing.assert_array_equal(out[:, 6].view(np.float32), np.fmax(numbers, words.view(np.float32)))
    matrices = words.view(np.uint16).reshape(32, 8, 8)  # of each round; a lane has two neighbours of a row
    np.testing.assert_array_equal(halves[:, 7].reshape(32, 8, 8), matrices.transpose(0, 2, 1))


@needs_cxx
def test_conversions_and_warp_operations_are_those_of_numpy() -> None:
    primitives(Emulator(5))


@needs_gpu
def test_conversions_and_warp_operations_are_alike_on_a_gpu() -> None:
    primitives(the_gpu())


@needs_cxx
def test_a_barrier_tells_all_whether_any_thread_voted(tmp_path: Path) -> None:
    body = """
      const bool some = block_barrier_any(threadIdx.x == 63), none = block_barrier_any(false);
      if (!some || none) load((int*)4);
    """
    for seed in SEEDS:
        emulate(tmp_path, body, seed=seed)


@needs_cxx
def test_some_threads_meet_at_a_barrier_of_their_own(tmp_path: Path) -> None:
    body = """
      const int pair = threadIdx.x / 64, other = threadIdx.x ^ 32;
      at_byte<int>(memory, 0)[threadIdx.x] = threadIdx.x;
      {barrier}
      if (at_byte<int>(memory, 0)[other] != other) load((int*)4);
      if (pair == 0) {{ {barrier} }}
    """
    for seed in SEEDS:
        emulate(tmp_path, body.format(barrier="barrier_among(1 + pair, 64);"), threads=128, shared_bytes=512, seed=seed)
    with pytest.raises(EmulatorError):
        emulate(tmp_path, body.format(barrier=""), threads=128, shared_bytes=512, seed=SEEDS[-1])


@needs_cxx
@pytest.mark.parametrize(
    "edit",
    [
        ("    copy_async_wait<1>();\n", ""),
        ("copy_async_wait<1>", "copy_async_wait<2>"),
        ("    block_barrier();  // the slice of every thread is there\n", ""),
        ("    block_barrier();  // nobody reads the slice that is overwritten next\n", ""),
        ("load_matrices_transposed(b", "load_matrices(b"),
        ("sums[n + 1], a, b[2], b[3]", "sums[n + 1], a, b[3], b[2]"),
        ("lane / 4 + i / 2 * 8", "lane / 4 + i % 2 * 8"),
        ("(slice + 1) % STAGES * STAGE_BYTES", "slice % STAGES * STAGE_BYTES"),
    ],
    ids=lambda edit: edit[0].strip()[:40] + ("" if edit[1] else ": left out"),
)
def test_a_broken_product_is_noticed(edit: tuple[str, str]) -> None:
    caught = 0
    for seed in SEEDS:
        try:
            product(Emulator(seed, edits=(edit,)), 160)
        except (AssertionError, EmulatorError):
            caught += 1
    assert caught


def emulate(folder: Path, body: str, *, threads: int = 64, shared_bytes: int = 256, seed: int = 0) -> None:
    """Run a kernel of one array of 64 whole numbers."""
    source = folder / "probe.cu"
    text = f'#include "device.cuh"\nKERNEL({threads}) probe(int32_t* numbers) {{ SHARED_MEMORY(memory); {body} }}\n'
    source.write_text(text, encoding="utf-8")
    launch = Launch(Program(source, "probe"), (1, 1, 1), threads, shared_bytes)
    Emulator(seed).run(launch, [np.zeros(64, np.int32)])


@needs_cxx
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("if (threadIdx.x < 3) block_barrier(); else warp_barrier();", "deadlock"),
        ("if (threadIdx.x < 32) barrier_among(1, 64); else block_barrier();", "deadlock"),
        ("barrier_among(1, threadIdx.x < 32 ? 96 : 64);", "threads of different numbers meet"),
        ("barrier_among(16, 64);", "no such barrier"),
        ("if (threadIdx.x % 2) warp_max(1); else warp_min(1);", "different warp operations"),
        ("store(numbers + 64, 1);", "outside of all arrays"),
        ("load(numbers - 1);", "outside of all arrays"),
        ("load((const int64_t*)(numbers + 1));", "not aligned"),
        ("copy_async_16(memory, numbers + 1, true);", "not aligned"),
        ("at_byte<int>(memory, 0)[64] = 1;", "outside of the block's shared memory"),
        ("copy_async_16(memory + 256, numbers, true);", "outside of the block's shared memory"),
        ("uint32_t tile[4]; load_matrices(tile, memory + 256);", "outside of the block's shared memory"),
        ("barrier_among(1 + threadIdx.x % 2, 64);", "lanes of one warp are at different barriers"),
        ("memory[256 + threadIdx.x] = 1;", "shared memory was written 0 bytes behind its end"),
        ("numbers[64] = 1;", "written outside the array"),
    ],
)
def test_the_emulator_says_what_a_gpu_leaves_undefined(tmp_path: Path, body: str, said: str) -> None:
    emulate(tmp_path, "store(numbers + threadIdx.x, 1); block_barrier();")
    with pytest.raises(EmulatorError, match=said):
        emulate(tmp_path, body)


@needs_cxx
@pytest.mark.parametrize(
    ("between", "other", "in_order"),
    [
        ("", 1, False),
        ("warp_max(1);", 1, False),  # all lanes were there, but that says nothing of memory
        ("warp_barrier();", 1, True),
        ("warp_barrier();", 32, False),
        ("barrier_among(1 + threadIdx.x / 64, 64);", 32, True),
        ("barrier_among(1 + threadIdx.x / 64, 64);", 64, False),
        ("block_barrier();", 64, True),
    ],
)
def test_what_no_barrier_puts_in_order_is_said(tmp_path: Path, between: str, other: int, *, in_order: bool) -> None:
    place = "at_byte<int>(memory, 0)"
    body = f"{place}[threadIdx.x] = 1; {between} if ({place}[threadIdx.x ^ {other}] == 7) load((int*)4);"
    if in_order:
        emulate(tmp_path, body, threads=128, shared_bytes=512, seed=16)
        body += f" {place}[threadIdx.x] = 2;"  # which the other one may not have read yet
    with pytest.raises(EmulatorError, match=r"no barrier between threads .*: a (write and a read|read and a write) at"):
        emulate(tmp_path, body, threads=128, shared_bytes=512, seed=16)


@needs_cxx
def test_a_copy_under_way_is_not_read(tmp_path: Path) -> None:
    copy = "at_byte<int>(memory, 0); copy_async_4(memory + 4 * threadIdx.x, numbers); copy_async_commit();"
    read = "if (at_byte<int>(memory, 0)[threadIdx.x] != 0) load((int*)4);"
    for seed in (16, 17):
        emulate(tmp_path, f"{copy} copy_async_wait<0>(); {read}", seed=seed)
        with pytest.raises(EmulatorError, match="a copy is under way"):
            emulate(tmp_path, f"{copy} {read}", seed=seed)


@needs_cxx
def test_shared_memory_is_poisoned_and_copies_land_when_seeds_say(tmp_path: Path) -> None:
    check = "if (*(int*)memory != {}) load((int*)4);"
    emulate(tmp_path, check.format("-1"))
    copy = f"copy_async_4(memory, numbers); copy_async_commit(); {check} copy_async_wait<0>(); {check.format(0)}"
    emulate(tmp_path, copy.format("-1"), threads=1, seed=2)
    emulate(tmp_path, copy.format("0"), threads=1, seed=3)


@needs_compiler
@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_90", "sm_120"])
def test_the_foundation_compiles_within_its_budget(architecture: str) -> None:
    assert over_budget(Build(PRODUCT, register_budget=96, shared_bytes=PRODUCT_SHARED), architecture) == []
    assert over_budget(Build(PRIMITIVES, register_budget=64), architecture) == []
    ceiling = Program(COMMON / "ceilings.cu", "multiply_only")
    assert over_budget(Build(ceiling, register_budget=64), architecture) == []


def test_a_budget_says_all_that_breaks_it() -> None:
    tight = Build(PRODUCT, register_budget=32, shared_bytes=SHARED_BYTES_LIMIT)
    assert tight.faults(build.Resources(32, 0, 0, 0)) == []
    assert tight.faults(build.Resources(33, 8, 24, 16)) == [
        "33 registers, 32 are allowed",
        "8 bytes of registers spilled",
        "24 bytes of local memory",
        "101392 bytes of shared memory, 101376 are allowed",
    ]


LOG = """ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 8 bytes stack, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'two' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 7 registers
"""


def test_a_log_of_warnings_alone_is_asked_for_again() -> None:
    library = Mock(spec=nvrtc.Nvrtc)
    library.architectures.return_value = (90,)
    warning = (b"old", "one.cu(3): warning: 'unused' of one is never used")  # which names the kernel
    library.compile.side_effect = [warning, (b"code", LOG)]
    compiler = build.Compiler("NVRTC", library=library)
    assert compiler.compile(Program(COMMON / "primitives.cu", "one"), "sm_90") == (b"code", LOG)
    assert ["--no-cache" in call.args[-1] for call in library.compile.call_args_list] == [False, True]


def test_the_log_of_the_compiler_is_understood() -> None:
    assert build.parse_log(LOG, "one") == build.Resources(40, 28, 8, 1024)
    assert build.parse_log(LOG, "two") == build.Resources(7, 0, 0, 0)
    with pytest.raises(CompilerError, match="says nothing about three"):
        build.parse_log(LOG, "three")


@needs_compiler
def test_a_program_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", str(tmp_path))
    first = build.compile_program(PRODUCT, "sm_90")
    monkeypatch.setattr(build.Compiler, "compile", lambda *_: pytest.fail("compiled again"))
    assert build.compile_program(PRODUCT, "sm_90") == first
    monkeypatch.undo()
    monkeypatch.setenv("TRACEANALYZE_CACHE_DIR", str(tmp_path))
    for about in cache.folder().glob("*.json"):
        about.write_text('{"regis')
    assert build.compile_program(PRODUCT, "sm_90").resources == first.resources


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_nvcc_serves_where_there_is_no_nvrtc() -> None:
    nvcc = build.Compiler("nvcc", nvcc=shutil.which("nvcc") or "")
    image, log = nvcc.compile(PRODUCT, "sm_90")
    assert image.startswith(b"\x7fELF")
    assert Build(PRODUCT, register_budget=96).faults(build.parse_log(log, "tile_product")) == []
    with pytest.raises(CompilerError, match="does not compile with"):
        nvcc.compile(Program(PRODUCT.source, "tile_product", edits=(("#include", "nonsense"),)), "sm_90")


@needs_nvrtc
def test_a_refusal_of_the_compiler_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cu"
    broken.write_text('extern "C" __global__ void broken() { nonsense; }')
    with pytest.raises(CompilerError, match=r"broken.cu does not compile(.|\n)*nonsense"):
        build.compile_program(Program(broken, "broken"), "sm_90")
    with pytest.raises(CompilerError, match="does not know sm_999, only sm_"):
        build.compile_program(PRODUCT, "sm_999")


def test_without_a_compiler_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "find", lambda: None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    build.find_compiler.cache_clear()
    try:
        with pytest.raises(
            CompilerError, match=r"`pip install nvidia-cuda-nvrtc`, or name the library in TRACEANALYZE_NVRTC"
        ):
            build.find_compiler()
    finally:
        build.find_compiler.cache_clear()


def test_compilers_of_torch_come_before_those_of_toolkits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "site/nvidia/cu13/lib/libnvrtc.so.13",
        "site/nvidia/cu13/lib/libnvrtc.alt.so.13",
        "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "cuda/lib64/libnvrtc.so.12.8",
        "cuda/lib64/libnvrtc.so.13.0",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = [path for path in nvrtc.candidates() if path.startswith(str(tmp_path))]
    assert [Path(path).relative_to(tmp_path).as_posix() for path in found] == [
        "site/nvidia/cu13/lib/libnvrtc.so.13",
        "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "cuda/lib64/libnvrtc.so.13.0",
        "cuda/lib64/libnvrtc.so.12.8",
    ]


def test_a_library_that_is_named_and_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nvrtc.VARIABLE, "/nowhere/libnvrtc.so")
    with pytest.raises(CompilerError, match="TRACEANALYZE_NVRTC=/nowhere/libnvrtc"):
        nvrtc.find.__wrapped__()


def test_without_a_driver_the_error_has_the_exit_code_of_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    with pytest.raises(NeedsGpuError, match="no NVIDIA GPU was found here") as error:
        driver.find_driver.__wrapped__()
    assert error.value.exit_code == 4


def test_moved_clocks_are_said() -> None:
    def at(sm: int | None, memory: int | None = 3201) -> GpuState:
        return GpuState(sm, memory, 1980, None, None, None, None, None)

    assert clocks_moved([at(1980), at(1965), at(None)]) is None
    assert clocks_moved([]) is None
    said = "clock moved between 1200 and 1980 MHz while this was measured"
    assert clocks_moved([at(1980), at(1200)]) == f"the SM {said}"


def test_kernels_are_found_by_name() -> None:
    assert find("gather-cast") is find("gather_cast") is KERNELS[0]
    with pytest.raises(UsageError, match="no kernel 'gather'; there are gather_cast, tree_build"):
        find("gather")


def test_every_kernel_has_all_its_parts() -> None:
    for kernel in KERNELS:
        folder = COMMON.parent / kernel.name
        parts = {"README.md", "reference.py", "baseline.py", f"{kernel.name}.cu", "launch.py", "op.py", "cases.py"}
        assert parts | {"bench.py", f"test_{kernel.name}.py"} <= {path.name for path in folder.iterdir()}
        assert any(case.full for case in kernel.cases())
        assert f"{kernel.name}/" in (COMMON.parent / "README.md").read_text(encoding="utf-8")


def test_importing_the_kernels_loads_neither_torch_nor_polars() -> None:
    code = (
        "import sys, traceanalyzer.kernels, traceanalyzer.kernels.gather_cast, traceanalyzer.kernels.tree_build.cases;"
        "print([name for name in ('torch', 'polars', 'pynvml', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
