"""Write a trace of any size in the text layout of torch 2.13: `python benchmarks/generate.py OUT.json.gz MEGABYTES`.

One server process in eager mode with python stacks: of the events about a quarter are python calls, a quarter arrows,
a sixth operators, an eighth launches and an eighth device work, as in profiles of SGLang and vLLM with stacks. Names
run to 4 KB and hold quotes, braces and separators. The same seed and size give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

BASE_NS = 1_790_857_026_000_000_000
FIRST_NS = 5_143_117_209_801_565
PID = 15173
LAUNCHES_PER_STEP = 120
#: Megabytes of JSON beyond which events repeat.
MOST_DISTINCT = 2000
OPERATORS = [
    "aten::empty", "aten::copy_", "aten::add", "aten::mul", "aten::mm", "aten::linear", "aten::view", "aten::slice",
    "aten::to", "aten::softmax", "aten::index_select", "aten::cat", "c10d::_allgather_base_", "record_param_comms",
]  # fmt: skip
SHAPES = ["[[{n}, 4096], [4096, 4096], []]", "[[{n}, 128], [], []]", "[[{n}, 32, 128], [{n}, 8, 128], [1, 4096], []]"]
TYPES = '["c10::BFloat16", "c10::BFloat16", ""]'
CALLS = ["cudaLaunchKernel", "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync"]
STREAMS = [7, 7, 7, 20, 24]


class Generator:
    """A source of steps, each some hundred events."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._time = FIRST_NS
        self._correlation = 1000
        self._python_id = 0
        self._kernels = [self._kernel_name(i) for i in range(280)]
        self._frames = [self._frame_name(i) for i in range(1200)]

    def step(self) -> str:
        """The text of the events of one step, each with a comma behind it."""
        events = [event for _ in range(LAUNCHES_PER_STEP) for event in self._launch()]
        events.append(self._span("user_annotation", "step[DECODE bs=8 toks=8]", PID, PID, 90_000, '"Ev Idx": 1'))
        return "".join(events)

    def _launch(self) -> Iterator[str]:
        pick = self._random
        self._correlation += 1
        number = self._correlation
        for _ in range(pick.choice((1, 2, 2, 3))):
            self._python_id += 1
            args = f'"Python parent id": {self._python_id - 1}, "Python id": {self._python_id}, "Ev Idx": {number}'
            yield self._span("python_function", pick.choice(self._frames), PID, PID, pick.randint(900, 900_000), args)
        for _ in range(pick.choice((1, 1, 2))):
            shape = pick.choice(SHAPES).format(n=pick.choice((1, 8, 17, 256, 4096)))
            args = f'"External id": {number},"Record function id": 0, "Concrete Inputs": ["", "1", ""], "Input type": {TYPES}'
            args += f', "Input Strides": [[4096, 1], [], []], "Input Dims": {shape}, "Ev Idx": {number}'
            yield self._span("cpu_op", pick.choice(OPERATORS), PID, PID, pick.randint(900, 90_000), args)
        call = pick.choice(CALLS)
        ids = f'"External id": {number},"cbid": 211, "correlation": {number}'
        yield self._span("cuda_runtime", call, PID, PID, pick.randint(900, 9000), ids)
        yield self._arrow("s", number, PID, PID, self._time)
        stream, start = pick.choice(STREAMS), self._time + pick.randint(3000, 30_000)
        yield self._device_work(call, number, stream, start)
        yield self._arrow("f", number, 0, stream, start)
        if pick.random() < 0.3:
            yield self._memory_event(number)

    def _device_work(self, call: str, number: int, stream: int, start: int) -> str:
        pick = self._random
        ids = f'"External id": {number},"device": 0, "context": 1, "stream": {stream}, "correlation": {number}'
        if call == "cudaMemcpyAsync":
            args = f'{ids}, "bytes": {pick.choice((4, 4096, 33554432))}, "memory bandwidth (GB/s)": 12.345678'
            name = "Memcpy HtoD (Pinned -> Device)"
            return self._span("gpu_memcpy", name, 0, stream, pick.randint(900, 90_000), args, start)
        blocks, threads = pick.randint(1, 5000), pick.choice((128, 256, 512))
        args = (
            f'{ids}, "registers per thread": {pick.choice((16, 32, 168))}, "shared memory": {pick.choice((0, 16384))}'
        )
        args += f', "blocks per SM": {blocks / 132:.6f}, "warps per SM": {blocks * threads / 32 / 132:.6f}'
        args += f', "grid": [{blocks}, 1, 1], "block": [{threads}, 1, 1], "est. achieved occupancy %": {pick.randint(0, 99)}'
        args += ', "graph id": 0, "graph node id": 0'
        return self._span("kernel", pick.choice(self._kernels), 0, stream, pick.randint(900, 300_000), args, start)

    def _span(self, category: str, name: str, pid: int, tid: int, ns: int, args: str, start: int | None = None) -> str:
        if start is None:
            self._time += self._random.randint(200, 3000)
            start = self._time
        return (
            f'\n  {{\n    "ph": "X",\n    "cat": "{category}",\n    "name": {json.dumps(name)},\n    "pid": {pid},'
            f'\n    "tid": {tid},\n    "ts": {_us(start)},\n    "dur": {_us(ns)}\n    ,\n    "args": {{\n      {args}'
            "\n    }\n  },"
        )

    def _arrow(self, phase: str, number: int, pid: int, tid: int, time: int) -> str:
        end = ', "bp": "e"' if phase == "f" else ""
        return (
            f'\n  {{\n    "ph": "{phase}",\n    "id": {number},\n    "pid": {pid},\n    "tid": {tid},\n    "ts": {_us(time)},'
            f'\n    "cat": "ac2g",\n    "name": "ac2g"\n    {end}\n  }},'
        )

    def _memory_event(self, number: int) -> str:
        allocated = self._random.randint(0, 1 << 36)
        return (
            f'\n  {{\n    "ph": "i",\n    "cat": "cpu_instant_event",\n    "s": "t",\n    "name": "[memory]",\n    "pid": {PID},'
            f'\n    "tid": {PID},\n    "ts": {_us(self._time)}\n    ,\n    "args": {{\n      "Total Reserved": 2097152, '
            f'"Total Allocated": {allocated}, "Bytes": -512, "Device Id": 0, "Device Type": 1, "Ev Idx": {number}\n    }}\n  }},'
        )

    def _kernel_name(self, number: int) -> str:
        if number % 40 == 0:
            return ('}, {"ph": "X", "cat": "kernel"}, ]}', 'void weird<{"device": "cuda", "x": [1,2]}>(a[3], {b})')[
                number % 80 // 40
            ]
        arguments = ", ".join(self._template(self._random.randint(0, 4)) for _ in range(2))
        family = self._random.choice(("at::native::vectorized_elementwise_kernel", "flash::flash_fwd_splitkv_kernel",
                                      "cutlass::device_kernel", "sglang::cross_device_reduce_1stage"))  # fmt: skip
        return f"void {family}<{number}, {arguments}>(int, std::array<char*, {1 + number % 4}ul>)"[:4000]

    def _template(self, depth: int) -> str:
        if depth == 0:
            return self._random.choice(("float", "__half", "cutlass::bfloat16_t", "c10::BFloat16"))
        inner = ", ".join(self._template(depth - 1) for _ in range(2))
        return f"cutlass::gemm::collective::CollectiveMma<{self._random.randint(1, 256)}, cute::tuple<cute::C<128> >, {inner} >"

    def _frame_name(self, number: int) -> str:
        module = self._random.choice(("sglang/srt/layers", "torch/nn/modules", "vllm/model_executor", "torch/_ops"))
        return f"/usr/lib/python3.12/dist-packages/{module}/file{number % 90}.py({number}): forward"


def write(path: Path, megabytes: float, *, seed: int = 7) -> int:
    """Write a gzipped trace of about `megabytes` of JSON (10^6 bytes); gives the exact number of bytes of JSON.

    Beyond `MOST_DISTINCT` the same events are written again, as a copy of their compressed bytes: one gzip member all
    the same, made in a fraction of the time.
    """
    generator = Generator(seed)
    times = max(round(megabytes / MOST_DISTINCT), 1)
    with path.open("w+b") as file:
        packed = _Packed(file)
        packed.add(iter([_head()]))
        start = file.tell()
        body = packed.add(_steps(generator, megabytes / times * 1e6))
        end = file.tell()
        for _ in range(times - 1):
            packed.add_again(body, start, end)
        packed.add(iter([_TAIL]))
        packed.finish()
    return packed.size


class _Packed:
    """A gzip member, made of stretches that do not depend on what stands before them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size, self._checksum = 0, 0
        file.write(b"\x1f\x8b\x08" + bytes(6) + b"\xff")

    def add(self, texts: Iterator[str]) -> tuple[int, int]:
        """Write a stretch; gives its size and checksum."""
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        size = checksum = 0
        for text in texts:
            data = text.encode()
            size, checksum = size + len(data), zlib.crc32(data, checksum)
            self._file.write(packer.compress(data))
        self._file.write(packer.flush(zlib.Z_FULL_FLUSH))
        self._count(size, checksum)
        return size, checksum

    def add_again(self, body: tuple[int, int], start: int, end: int) -> None:
        """Write a stretch again that stands in the file from `start` to `end`."""
        for place in range(start, end, 1 << 20):
            self._file.seek(place)
            data = self._file.read(min(1 << 20, end - place))
            self._file.seek(0, os.SEEK_END)
            self._file.write(data)
        self._count(*body)

    def finish(self) -> None:
        """Write the end mark and the trailer."""
        self._file.write(zlib.compressobj(6, zlib.DEFLATED, -15).flush())
        self._file.write(struct.pack("<II", self._checksum, self.size & 0xFFFFFFFF))

    def _count(self, size: int, checksum: int) -> None:
        from isal.isal_zlib import crc32_combine  # type: ignore[attr-defined]

        self._checksum = crc32_combine(self._checksum, checksum, size)
        self.size += size


def _head() -> str:
    return (
        ' {\n    "schemaVersion": 1,\n    "deviceProperties": [\n    {\n      "id": 0, "name": "NVIDIA H200", "numSms": 132,'
        ' "computeMajor": 9, "computeMinor": 0\n    }],\n    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},'
        f'\n    "baseTimeNanoseconds": {BASE_NS},\n    "traceEvents": [\n    \n  {{\n    "ph": "M",\n    "name": "process_name",'
        f'\n    "ts": {_us(FIRST_NS)},\n    "pid": {PID},\n    "tid": 0,\n    "args": {{\n      "name": "python"\n    }}\n  }},'
    )


def _steps(generator: Generator, size: float) -> Iterator[str]:
    done = 0.0
    while done < size:
        text = generator.step()
        done += len(text)
        yield text


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


_TAIL = (
    f'\n  {{\n    "ph": "i",\n    "s": "g",\n    "name": "Record Window End",\n    "pid": "",\n    "tid": "",\n    "ts": '
    f'{_us(FIRST_NS)}\n  }}\n  ],"traceName": "trace.json" }}'
)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("megabytes", type=float)
    arguments = parser.parse_args()
    print(f"{arguments.out}: {write(arguments.out, arguments.megabytes):,} bytes of JSON")


if __name__ == "__main__":
    main()
