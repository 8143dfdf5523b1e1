"""The rules for other producers' files: each on hand-made slices, then all of them over the collected real files.

The golden figures (`golden/producers.jsonl`) come from `oracles/producers_oracle.py`, an independent program whose
docstring gives the definitions and how the figures were checked by hand.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import producer_files
import pytest

from traceanalyzer.analyses import intervals
from traceanalyzer.ingest.producers import RULES, FileFacts, Reclassified, identify, reclassify

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures" / "producers"
GOLDEN = [json.loads(line) for line in (HERE / "golden" / "producers.jsonl").read_text().splitlines()]
DEVICE = ("kind", "name", "device", "stream", "start_ns", "duration_ns")
CORPUS = Path(os.environ.get("TRACEANALYZER_SHARED", HERE.parent / "../shared")) / "corpus"


def process(pid: Any, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def thread(pid: Any, tid: Any, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def event(name: str, pid: Any, tid: Any, ts: Any, dur: Any, cat: Any = None, **args: Any) -> dict[str, Any]:
    known = {"cat": cat} if cat else {}
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, **known, "args": args}


def moved(*events: Mapping[str, Any], **metadata: Any) -> Reclassified:
    """The outcome of a rule that must match."""
    result = reclassify(*producer_files.split({**metadata, "traceEvents": list(events)} if metadata else list(events)))
    assert result is not None
    return result


def fixture(name: str) -> Reclassified:
    result = reclassify(*producer_files.read(FIXTURES / name))
    assert result is not None
    return result


def names(frame: pl.DataFrame) -> list[str]:
    return frame["name"].to_list()


def device_rows(result: Reclassified) -> list[tuple[Any, ...]]:
    return result.kernels.select(DEVICE).rows()


class TestRocprof:
    HIP, COPY, GPU1 = process(2, "CPU HIP API"), process(1, "COPY"), process(7, "GPU1")

    def test_measured_nanoseconds_replace_whole_microseconds(self) -> None:
        kernel = event("k", "7", "1", "10", "1", BeginNs="10400", EndNs="10400")  # the writer made 1 of a length of 0
        later = event("k", "7", "1", "11", "5", BeginNs="11999", EndNs="17000")
        result = moved(self.GPU1, kernel, later)
        assert result.kernels.select("start_ns", "duration_ns").rows() == [(10_400, 0), (11_999, 5_001)]

    def test_a_rebased_file_keeps_its_own_origin(self) -> None:
        start = 5_000_000_250  # BeginNs is absolute, ts counts from there
        rows = [
            event("k", "7", "1", str(at // 1000), "1", BeginNs=str(start + at), EndNs=str(start + at + 700))
            for at in (3_100, 9_999)
        ]
        result = moved(self.GPU1, *rows)
        first, second = result.kernels["start_ns"]
        assert second - first == 6_899
        assert abs(first - 3_100) < 1000
        assert result.notes == ()

    def test_times_that_do_not_follow_each_other_are_left_and_said(self) -> None:
        rows = [
            event("k", "7", "1", "10", "1", BeginNs=begin, EndNs=str(int(begin) + 5)) for begin in ("10000", "90000")
        ]
        result = moved(self.GPU1, *rows)
        assert result.kernels.select("start_ns", "duration_ns").rows() == [(10_000, 5), (10_000, 5)]
        assert [note.code for note in result.notes] == ["rocprof-clock"]

    def test_sections_become_tables(self) -> None:
        clock = {"BeginNs": "1000", "EndNs": "2000"}
        result = moved(
            self.HIP, self.COPY, self.GPU1, process(3, "CPU HSA API"), process(0, "Markers and Ranges"),
            process(519, "GPU Barriers1"),
            event("gemm", "7", "4", "1", "1", **clock, **{"dev-id": "1", "queue-id": "0", "stream-id": "4"}),
            event("<barrier packet>", "7", "4", "1", "1", **clock),
            event("<barrier packet>", "519", "4", "1", "1", **clock),
            event("CopyHostToDevice", "1", "4", "1", "1", **clock, **{"dev-id": "1", "stream-id": "4"}),
            event("FillBuffer", "1", "4", "1", "1", **clock, **{"dev-id": "1", "queue-id": "2"}),
            event("async-copy", "1", "-1", "1", "1", **clock),
            event("hipLaunchKernel", "2", "9", "1", "1", **clock),
            event("hsa_signal_create", "3", "9", "1", "1", **clock),
            event("step", "0", "9", "1", "1", **clock),
        )  # fmt: skip
        assert [row[:4] for row in device_rows(result)] == [
            ("kernel", "gemm", "1", "4"),
            ("memcpy", "CopyHostToDevice", "1", "4"),
            ("memset", "FillBuffer", "1", "2"),
            ("memcpy", "async-copy", None, None),
        ]
        assert result.launches.select("kind", "name").rows() == [
            ("runtime", "hipLaunchKernel"),
            ("driver", "hsa_signal_create"),
        ]
        assert result.annotations.select("on_device", "name").rows() == [(False, "step")]
        assert names(result.slices) == ["<barrier packet>"] * 2

    def test_blocks_are_work_items_over_group_size(self) -> None:
        shape = {"grd": "1000", "wgr": "256", "lds": "512", "arch_vgpr": "28", "accum_vgpr": "4", "gpu-id": "1"}
        kernel = event("k", 7, 5, "1", "1", BeginNs="1000", EndNs="2000", **shape)
        older = event("k", 7, 5, "1", "1", BeginNs="1000", EndNs="2000", vgpr="32")
        columns = ("grid_x", "grid_y", "block_x", "block_z", "shared_memory", "registers")
        assert moved(self.GPU1, kernel, older).kernels.select(columns).rows() == [
            (4, 1, 256, 1, 512, 32),
            (None, None, None, None, None, 32),
        ]

    def test_the_sections_alone_do_not_make_a_file_rocprofs(self) -> None:
        assert reclassify(*producer_files.split([self.GPU1, event("k", 7, 1, 1, 1)])) is None


class TestAscend:
    HARDWARE, CANN = process(800, "Ascend Hardware"), process(43, "CANN")

    def test_tasks_are_work_and_the_schedulers_own_are_not(self) -> None:
        def task(name: str, kind: str, **args: Any) -> dict[str, Any]:
            return event(name, 800, 3, "1704161511422904.204", 1.35, **{"Task Type": kind, "Stream Id": 7}, **args)

        result = moved(
            self.HARDWARE,
            task("aclnnAdd_Add", "AI_VECTOR_CORE", connection_id=8),
            task("aclnnMm_MatMul_MemSet", "AI_CORE", connection_id=-1),
            task("MEMCPY_ASYNC", "Other", **{"size(B)": 512}),
            task("Memcpy", "SDMA"),
            task("EVENT_WAIT", "EVENT_WAIT"),
            task("Notify_Wait", "NOTIFY_WAIT_SQE"),
            task("MODEL_EXECUTE", "MODEL_EXECUTE"),
            event("MsTx_3", 800, 3, "1704161511422904.204", 1),
        )
        start = 1_704_161_511_422_904_204
        assert device_rows(result) == [
            ("kernel", "aclnnAdd_Add", "800", "3", start, 1350),
            ("kernel", "aclnnMm_MatMul_MemSet", "800", "3", start, 1350),
            ("memcpy", "MEMCPY_ASYNC", "800", "3", start, 1350),
            ("memcpy", "Memcpy", "800", "3", start, 1350),
        ]
        assert result.kernels["correlation"].to_list() == [8, None, None, None]
        assert result.kernels["bytes"].to_list() == [None, None, 512, None]
        assert names(result.slices) == ["EVENT_WAIT", "Notify_Wait", "MODEL_EXECUTE", "MsTx_3"]

    def test_rows_that_repeat_the_tasks_stay_and_are_counted_in_a_note(self) -> None:
        result = moved(
            self.HARDWARE, self.CANN, process(9, "Overlap Analysis"), process(10, "HCCL"), process(11, "Python"),
            event("Computing", 9, 0, "1.0", 2),
            event("hcom_allReduce__428_0_1", 10, 0, "1.0", 2),
            event("Memcpy", 10, 1, "1.0", 2, **{"task type": "SDMA"}),
            event("AscendCL@aclrtMemcpy", 43, 5, "1.0", 2, connection_id=3),
            event("Enqueue", 11, 1, "1.0", 2, cat="enqueue"),
        )  # fmt: skip
        assert result.kernels.is_empty()
        assert result.launches.select("kind", "name", "correlation").rows() == [("runtime", "AscendCL@aclrtMemcpy", 3)]
        assert names(result.slices) == ["Computing", "hcom_allReduce__428_0_1", "Memcpy", "Enqueue"]
        assert [(note.code, note.count) for note in result.notes] == [("ascend-repeated-rows", 3)]


class TestNsys:
    ARGS: Mapping[str, Any] = {
        "grid": [32, 2, 1], "block": [128, 1, 1], "registersPerThread": 24, "staticSharedMemory": 16,
        "dynamicSharedMemory": 48, "correlationId": 5, "deviceId": 1, "streamId": 7,
    }  # fmt: skip

    def test_kernels_calls_and_ranges(self) -> None:
        result = moved(
            event("gemm", "Device 1", "Stream 7", 169273.714, 0.992, "cuda", **self.ARGS),
            event("cudaGraphLaunch_v10000", "Device 1", "CUDA API Thread 9", 1, 2, "cuda_api", correlationId=5),
            event("cuMemcpyHtoD_v2", "Device 1", "CUDA API Thread 9", 1, 2, "cuda_api", correlationId=6),
            event("step", "Device 1", "NVTX Thread 9", 1, 2, "nvtx"),
            event("step", "Device 1", "NVTX Kernel Thread 9", 1, 2, "nvtx-kernel"),
            event("epoll_wait", "Process 9", "Thread 9", 1, 2, "osrt"),
        )
        assert device_rows(result) == [("kernel", "gemm", "1", "7", 169_273_714, 992)]
        details = ("grid_x", "grid_y", "block_x", "registers", "shared_memory", "correlation")
        assert result.kernels.select(details).row(0) == (32, 2, 128, 24, 64, 5)
        assert result.launches.select("kind", "name", "correlation").rows() == [
            ("runtime", "cudaGraphLaunch", 5),
            ("driver", "cuMemcpyHtoD_v2", 6),
        ]
        assert result.annotations["on_device"].to_list() == [False, True]
        assert names(result.slices) == ["epoll_wait"]
        assert [(note.level, note.code, note.count) for note in result.notes] == [("warning", "copies-not-exported", 1)]

    def test_rows_without_args_take_device_and_stream_from_the_names(self) -> None:
        result = moved({**event("gemm", "Device 3", "Stream 15", 1, 2, "cuda"), "args": {}})
        assert device_rows(result) == [("kernel", "gemm", "3", "15", 1000, 2000)]
        assert result.notes == ()

    def test_the_category_cuda_alone_is_no_mark(self) -> None:
        assert reclassify(*producer_files.split([event("setup", 1, 2, 1, 2, "cuda")])) is None


class TestCupti:
    def test_kernels_without_a_process_and_with_everything(self) -> None:
        bare = {"ph": "X", "cat": "GPU_Kernel", "name": "Kernel: _Z4axpyd", "ts": 1756213856523812.0, "dur": 108710.809}
        place = {"deviceId": 1, "streamId": 7, "grid": [4, 1, 1], "block": [256, 1, 1], "correlationId": 9}
        result = moved(
            {**bare, "args": {"correlationId": 331}},
            event("Kernel: gemm", "Device_1", "GPU1_Stream7", 1, 2, "GPU_Kernel", **place),
            event("MemCopy: HtoD", "MemCopy", "MemCopy_Operations", 1, 2, "MemCopy", size=64, correlationId=8),
            event("Runtime: cudaLaunchKernel_v7000", 3, 4, 1, 2, "CUDA_Runtime", correlationId=331),
            event("Driver: cuCtxSetCurrent", 3, 4, 1, 2, "CUDA_Driver", correlationId=329),
            event("Overhead: LAZY_FUNCTION_LOADING", "CUPTI_Overhead", 4, 1, 2, "Overhead"),
            metadata={"tool": "CUPTI to Chrome Trace Converter"},
        )
        assert device_rows(result) == [
            ("kernel", "_Z4axpyd", None, None, 1_756_213_856_523_812_000, 108_710_809),
            ("kernel", "gemm", "1", "7", 1000, 2000),
            ("memcpy", "MemCopy: HtoD", None, None, 1000, 2000),
        ]
        details = ("correlation", "grid_x", "block_x", "bytes")
        assert result.kernels.select(details).rows() == [
            (331, None, None, None),
            (9, 4, 256, None),
            (8, None, None, 64),
        ]
        assert result.launches.select("kind", "name", "correlation").rows() == [
            ("runtime", "cudaLaunchKernel", 331),
            ("driver", "cuCtxSetCurrent", 329),
        ]
        assert names(result.slices) == ["Overhead: LAZY_FUNCTION_LOADING"]


class TestGrof:
    def test_copies_by_name_and_no_args(self) -> None:
        events = [
            {"name": "[MEMCPY] HtoD", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 7},
            {"name": "gemm", "ph": "X", "ts": 5, "dur": 2, "pid": 1, "tid": 7},
        ]
        result = moved(*events)
        assert device_rows(result) == [
            ("memcpy", "[MEMCPY] HtoD", "1", "7", 1000, 2000),
            ("kernel", "gemm", "1", "7", 5000, 2000),
        ]
        assert result.slices.is_empty()

    def test_without_copies_the_ids_tell(self) -> None:
        result = moved(event("gemm", 1, 7, 1, 2, correlationId=4, externalId=0, sm_throughput_pct=3.5))
        assert result.kernels.select("correlation", "external_id").row(0) == (4, None)

    @pytest.mark.parametrize(
        "other",
        [
            event("[MEMCPY] HtoD", 2, 7, 1, 2),  # the writer's process is always 1
            event("gemm", 1, 7, 1, 2, correlationId=4),  # one id only
            event("[MEMCPY] HtoD", 1, 7, 1, 2, cat="copy"),
        ],
    )
    def test_what_is_like_it_is_not_taken(self, other: dict[str, Any]) -> None:
        assert reclassify(*producer_files.split([other])) is None


class TestKinetoForks:
    def test_copies_calls_and_ranges(self) -> None:
        result = moved(
            event("Memcpy HtoD", 0, 5, 1, 2, "mlu_memcpy", device=1, stream=9, correlation=4, bytes=64),
            event("Memset", 0, 5, 1, 2, "GCU_MEMSET"),
            event("cnInvokeKernel", 8, 9, 1, 2, "mlu_runtime", correlation=4, **{"External id": 3}),
            event("fwd", 0, 5, 1, 2, "mlu_user_annotation"),
            event("sync", 0, 5, 1, 2, "xpu_sync"),
            schemaVersion=1,
        )
        assert [row[:4] for row in device_rows(result)] == [
            ("memcpy", "Memcpy HtoD", "1", "9"),
            ("memset", "Memset", "0", "5"),
        ]
        assert result.launches.select("kind", "correlation", "external_id").rows() == [("runtime", 4, 3)]
        assert result.annotations["on_device"].to_list() == [True]
        assert names(result.slices) == ["sync"]

    def test_mtia_device_events_are_only_counted(self) -> None:
        result = moved(event("pe_exe", 17, 1, 1, 2, "mtia_ccp_events", stream=3), schemaVersion=1)
        assert result.kernels.is_empty()
        assert names(result.slices) == ["pe_exe"]
        assert [(note.code, note.count) for note in result.notes] == [("mtia-not-counted", 1)]


class TestXla:
    def test_stream_lines_are_work_and_derived_lines_are_not(self) -> None:
        result = fixture("xla_gpu.json")
        assert device_rows(result) == [
            ("memcpy", "MemcpyH2D", "0", "13", 100_000, 4_500),
            ("memset", "Memset", "0", "13", 105_000, 896),
            ("kernel", "loop_add_fusion", "0", "13", 110_250, 20_000),
            ("kernel", "memcpy128", "0", "13", 131_000, 2_000),  # a kernel by its details, whatever its name
        ]
        assert result.kernels["bytes"].to_list() == [4096, 256, None, None]
        assert result.kernels["correlation"].to_list() == [7, 8, 9, 9]
        shape = ("grid_x", "grid_y", "grid_z", "block_x", "registers", "shared_memory", "graph_id")
        assert result.kernels.select(shape).rows()[2:] == [(64, 2, 1, 128, 24, 1152, None), (8, 1, 1, 256, 16, 0, 3)]
        assert result.annotations.select("on_device", "name").rows() == [(True, "0"), (True, "jit_f(1)")]
        assert result.launches.select("kind", "name", "correlation").rows() == [("driver", "cuLaunchKernel", 9)]
        assert names(result.slices) == ["add.1", "PjitFunction(f)"]

    def test_records_of_memory_are_no_work(self) -> None:
        result = moved(
            process(1, "/device:GPU:0"), thread(1, 13, "Stream #13(Compute)"),
            event("MemoryResidency", 1, 13, 1, 2, memory_residency_details="kind:device num_bytes:8"),
        )  # fmt: skip
        assert result.kernels.is_empty()

    def test_a_tpu_is_no_gpu(self) -> None:
        facts, slices = producer_files.split([process(1, "/device:TPU:0"), event("fusion", 1, 1, 1, 2)])
        assert reclassify(facts, slices) is None
        assert identify(facts, slices) == "JAX/XLA"


class TestProton:
    def test_scopes_are_annotations_on_host_or_device(self) -> None:
        result = fixture("proton_scopes.json")
        assert result.annotations.select("on_device", "name", "start_ns", "duration_ns").rows() == [
            (False, "forward", 0, 50_000),
            (False, "loss [flops=8]", 60_000, 1_500),
            (True, "layer", 20_000, 10_000),
        ]
        assert result.kernels.is_empty()  # the category `kernel` is placed before the rules
        assert result.slices.is_empty()

    def test_a_file_without_scopes_is_known_by_its_lanes(self) -> None:
        facts, slices = producer_files.split([process(0, "Trace"), thread(0, 7, "GPU Stream 7")])
        assert identify(facts, slices) == "Proton"
        assert identify(*producer_files.split([process(0, "Trace"), thread(0, 7, "Thread 7")])) == "unknown"

    def test_events_inside_kernels_stay(self) -> None:
        result = fixture("proton_intra_kernel.json")
        assert result.kernels.is_empty()
        assert names(result.slices) == ["load", "store"]
        assert [(note.code, note.count) for note in result.notes] == [("intra-kernel-events", 2)]

    def test_warps_of_the_intra_kernel_profiler_stay(self) -> None:
        warp = thread(128, 0, "block 0 warp 0")
        result = moved(process(128, "sm 128"), warp, event("compute", 128, 0, 1, 2, sm=128, block=0, warp=0))
        assert names(result.slices) == ["compute"]


class TestUnitrace:
    def test_commands_are_work_unless_they_only_order(self) -> None:
        result = fixture("unitrace.json")
        assert [row[:3] for row in device_rows(result)] == [
            ("memcpy", "zeCommandListAppendMemoryCopy(M2D)[4096]", "0"),
            ("memset", "zeCommandListAppendMemoryFill(D)[512]", "0"),
            ("kernel", "gemm[SIMD16 {24; 2; 1} {128; 4; 1}]", "0"),
            ("kernel", "Tile #1: scale[SIMD32 {8; 1; 1} {256; 1; 1}]", "1.1"),
        ]
        assert result.kernels["bytes"].to_list() == [4096, 512, None, None]
        shape = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
        assert result.kernels.select(shape).rows()[2:] == [(24, 2, 1, 128, 4, 1), (8, 1, 1, 256, 1, 1)]
        assert result.kernels["start_ns"][2] == 1_700_000_000_000_030_000
        assert names(result.slices) == ["zeCommandListAppendBarrier"]

    def test_the_category_alone_is_no_mark(self) -> None:
        assert reclassify(*producer_files.split([event("draw", 1, 2, 1, 2, "gpu_op")])) is None


class TestAutogradProfiler:
    def test_innermost_device_times_are_kernels(self) -> None:
        result = fixture("autograd_cuda.json")
        assert names(result.ops) == ["aten::linear", "aten::t", "aten::addmm"]
        assert result.kernels.select("kind", "name", "device", "duration_ns").rows() == [
            ("kernel", "aten::t", "0", 3_500),
            ("kernel", "aten::addmm", "0", 50_000),
        ]
        assert result.annotations.select("on_device", "name").rows() == [(True, "aten::linear")]
        assert [note.code for note in result.notes] == ["event-timed-kernels"]


class TestNegatives:
    def test_a_kineto_trace_is_nobodys(self) -> None:
        kineto = {
            "schemaVersion": 1,
            "deviceProperties": [],
            "traceEvents": [
                process(0, "python"),
                process(1, "python"),
                event("gemm", 0, 7, 1, 2, "kernel", device=0, stream=7),
                event("Stream Sync", 0, 7, 1, 2, "cuda_sync"),
                event("Activity Buffer Request", -1, 0, 1, 2, "overhead"),
                event("PyTorch Profiler (0)", "Spans", "PyTorch Profiler", 1, 2, "Trace"),
            ],
        }
        facts, slices = producer_files.split(kineto)
        assert slices.height == 3
        assert reclassify(facts, slices) is None
        assert identify(facts, slices) == "PyTorch Kineto"

    @pytest.mark.parametrize(
        ("expected", "metadata", "events"),
        [
            ("VizTracer", {"viztracer_metadata": {}}, [event("f (a.py:1)", 1, 1, 1, 2, "FEE")]),
            ("VizTracer", {"displayTimeUnit": "ns"}, [event("f (a.py:1)", 1, 1, 1, 2, "FEE")]),
            ("Chrome DevTools", {}, [event("RunTask", 1, 1, 1, 2, "disabled-by-default-devtools.timeline")]),
            ("clang -ftime-trace", {"beginningOfTime": 1}, [event("Source", 1, 1, 1, 2)]),
            ("Bazel", {"otherData": {"build_id": "x"}}, [event("Init", 1, 1, 1, 2, "build phase marker")]),
            ("torch.compile (tlparse)", {}, [event("compile", 0, 0, 1, 2, "dynamo_timed")]),
            ("unknown", {}, [event("main", 0, 0, 1, 2)]),
            ("unknown", {}, []),
        ],
    )
    def test_files_without_a_gpu(self, expected: str, metadata: dict[str, Any], events: list[dict[str, Any]]) -> None:
        facts, slices = producer_files.split({**metadata, "traceEvents": events})
        assert reclassify(facts, slices) is None
        assert identify(facts, slices) == expected


class TestFrames:
    """What holds for every rule, whatever the types of the frame it gets."""

    @pytest.mark.parametrize("text", [pl.String(), pl.Categorical()])
    def test_text_columns_of_either_type_give_the_same(self, text: pl.DataType) -> None:
        facts, slices = producer_files.read(FIXTURES / "xla_gpu.json")
        given = slices.with_columns(pl.col("category", "name", "pid", "tid").cast(text))
        result, plain = reclassify(facts, given), reclassify(facts, slices)
        assert result is not None
        assert plain is not None
        assert result.kernels.equals(plain.kernels)
        assert result.slices.schema == given.schema

    def test_args_that_are_damaged_cost_their_row_only_the_details(self) -> None:
        facts, slices = producer_files.split([event("gemm", "Device 0", "Stream 7", 1, 2, "cuda", correlationId=5)] * 3)
        texts = ['{"correlationId": NaN}', "[1]", '{"correlationId": "6", "grid": [1, 2], "deviceId": true}']
        result = reclassify(facts, slices.with_columns(args=pl.Series(texts)))
        assert result is not None
        assert result.kernels["correlation"].to_list() == [None, None, 6]
        assert result.kernels["grid_x"].to_list() == [None] * 3
        assert result.kernels["device"].to_list() == ["0"] * 3

    def test_ids_beyond_63_bits_are_no_ids(self) -> None:
        result = moved(event("gemm", "Device 0", "Stream 7", 1, 2, "cuda", correlationId=1 << 63))
        assert result.kernels["correlation"].to_list() == [None]

    def test_null_ids_and_categories_do_no_harm(self) -> None:
        nameless = {"ph": "X", "name": "x", "ts": 1, "dur": 2}
        result = moved(nameless, event("f", "Device 0", "CUDA API Thread 1", 1, 2, "cuda_api"))
        assert names(result.slices) == ["x"]


def corpus_file(name: str) -> Path:
    if not CORPUS.is_dir():
        pytest.skip(f"no folder {CORPUS}: set TRACEANALYZER_SHARED to the folder that holds corpus/")
    return CORPUS / name


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["file"])
def test_real_files_have_the_oracles_figures(golden: dict[str, Any]) -> None:
    facts, slices = producer_files.read(corpus_file(golden["file"]))
    result = reclassify(facts, slices)
    assert result is not None
    assert identify(facts, slices) == golden["producer"]
    assert {**_device_figures(result.kernels), **_table_sizes(facts, result)} == {
        key: value for key, value in golden.items() if key not in ("file", "producer")
    }


@pytest.mark.slow
def test_no_other_real_file_matches_a_rule() -> None:
    """All of the corpus: no GPU producer is overlooked, no file without one is taken, no two rules compete."""
    with_device_work = {golden["file"] for golden in GOLDEN}
    for path in sorted(corpus_file("").glob("*/*")):
        name = path.relative_to(CORPUS).as_posix()
        if name.startswith("neg-"):  # no event trace; refused by the reader
            continue
        facts, slices = producer_files.read(path, exact=False)
        matching = [rule.NAME for rule in RULES if rule.matches(facts, slices)]
        assert len(matching) == (name in with_device_work), (name, matching)


def _device_figures(kernels: pl.DataFrame) -> dict[str, Any]:
    kinds = {kind: kernels.filter(pl.col("kind") == kind) for kind in ("kernel", "memcpy", "memset")}
    top = (
        kinds["kernel"]
        .group_by("name")
        .agg(count=pl.len(), total_ns=pl.sum("duration_ns"))
        .sort("total_ns", "name", descending=[True, False])
    )
    spans = intervals.of_events(kernels, ["device"])
    busy, reach = intervals.coverage(spans, ["device"]), intervals.hull(spans, ["device"])
    devices = busy.join(reach, on="device", nulls_equal=True).sort("device")
    return {
        **{f"{kind}_count": rows.height for kind, rows in kinds.items()},
        **{f"{kind}_ns": rows["duration_ns"].sum() for kind, rows in kinds.items()},
        "devices": devices.select(
            "device", busy_ns="covered_ns", span_ns=pl.col("end_ns") - pl.col("start_ns")
        ).to_dicts(),
        "distinct_kernel_names": top.height,
        "top_kernels": top.head(5).to_dicts(),
    }


def _table_sizes(facts: FileFacts, result: Reclassified) -> dict[str, int]:
    """Rows of the other tables, those included that go there by category."""
    by_category = Counter({category: count for (phase, category), count in facts.counts.items() if phase == "X"})
    return {
        "launches": result.launches.height + by_category["mtia_runtime"],
        "ops": result.ops.height + by_category["cpu_op"],
        "annotations": result.annotations.height + by_category["user_annotation"],
        "slices": result.slices.height,
    }
