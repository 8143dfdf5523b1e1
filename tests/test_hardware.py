"""Occupancy rules against NVIDIA's own header, and GPUs by the names that people type.

`golden/occupancy_vectors.tsv` holds what the occupancy functions of CUDA 13.0 answer for 700 launches on ten compute
capabilities.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.errors import UsageError
from traceanalyzer.hardware import gpus, tables
from traceanalyzer.hardware.limits import WARP, limits_of, residency

VECTORS = Path(__file__).parent / "golden" / "occupancy_vectors.tsv"
_NAMES = {"WARPS": "warps", "REGS": "registers", "SMEM": "shared memory", "BLOCKS": "blocks per SM"}


def vectors() -> list[dict[str, str]]:
    with VECTORS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def capability(text: str) -> tuple[int, int]:
    major, minor = map(int, text.split("."))
    return major, minor


def test_all_700_vectors_of_the_header_are_reproduced() -> None:
    assert len(vectors()) == 700
    for row in vectors():
        limits = limits_of(*capability(row["cc"]))
        assert limits
        found = residency(
            limits,
            threads=int(row["block"]),
            registers=int(row["regs"]),
            shared_memory=int(row["static_smem"]) + int(row["dyn_smem"]),
        )
        assert found.resident_blocks == int(row["active_blocks"]), row
        assert found.limited_by == tuple(_NAMES[name] for name in row["limiting"].split("|")), row
        wanted = [int(row[f"blk_lim_{name}"]) for name in ("warps", "regs", "smem", "blocks")]
        assert [found.warps, found.registers, found.shared_memory, found.blocks] == wanted, row
        warps = -(-int(row["block"]) // WARP)
        occupancy = 100 * found.resident_blocks * warps / limits.warps_per_sm
        assert occupancy == pytest.approx(float(row["theoretical_pct"]), abs=1e-4), row


def test_the_kernel_that_kineto_reports_0_for_has_one_resident_block() -> None:
    """256 threads, 168 registers, 51,200 bytes on sm_120: the profiler prints 0 %."""
    limits = limits_of(12, 0)
    assert limits
    found = residency(limits, threads=256, registers=168, shared_memory=51_200)
    assert found.resident_blocks == 1
    assert found.resident_blocks * 8 / limits.warps_per_sm == pytest.approx(0.1667, abs=1e-4)


@given(
    st.sampled_from([row["cc"] for row in tables.rows("cc_limits.tsv")]),
    st.integers(1, 1024),
    st.integers(1, 255),
    st.integers(0, 100_000),
)
def test_more_of_a_resource_never_lets_more_blocks_in(cc: str, threads: int, registers: int, shared: int) -> None:
    limits = limits_of(*capability(cc))
    assert limits
    lean = residency(limits, threads=threads, registers=registers, shared_memory=shared).resident_blocks
    for more in ({"threads": threads + 32}, {"registers": registers + 8}, {"shared_memory": shared + 1024}):
        given_more = {"threads": threads, "registers": registers, "shared_memory": shared} | more
        assert residency(limits, **given_more).resident_blocks <= lean
    assert 0 <= lean * -(-threads // WARP) <= limits.warps_per_sm


def test_a_compute_capability_of_no_table_has_no_limits() -> None:
    assert limits_of(6, 0) is None


@pytest.mark.parametrize(
    ("typed", "name", "sms"),
    [
        ("RTX PRO 6000", "RTX PRO 6000 Blackwell Workstation", 188),
        ("rtx pro 6000 max-q", "RTX PRO 6000 Blackwell Max-Q", 188),
        ("pro6000", "RTX PRO 6000 Blackwell Workstation", 188),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server", 188),
        ("4090", "RTX 4090", 128),
        ("NVIDIA GeForce RTX 3090", "RTX 3090", 82),
        ("h100 pcie", "H100 PCIe 80GB", 114),
        ("h100pcie", "H100 PCIe 80GB", 114),
        ("H100 SXM", "H100 SXM5 80GB", 132),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB", 132),
        ("H200", "H200 SXM 141GB", 132),
        ("a100", "A100 SXM4 40GB", 108),
        ("A100-SXM4-80GB", "A100 SXM4 80GB", 108),
        ("A10", "A10", 72),
        ("L4", "L4", 58),
        ("B200", "B200 SXM 180GB", 148),
        ("Tesla T4", "T4", 40),
        ("AMD Instinct MI300X", "MI300X", 304),
        ("V100", "V100 SXM2 16/32GB", 80),
    ],
)
def test_gpus_by_the_names_that_people_type(typed: str, name: str, sms: int) -> None:
    found = gpus.find(typed)
    assert (found.name, found.sms) == (name, sms)


@pytest.mark.parametrize("gpu", gpus.known(), ids=lambda gpu: gpu.name)
def test_every_gpu_is_found_by_its_own_name(gpu: gpus.Gpu) -> None:
    assert gpus.find(gpu.name) == gpu
    assert gpu.compute_capability is None or limits_of(*gpu.compute_capability)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("H100", "several GPUs are called 'H100' and differ; which of H100 SXM5 80GB (132 SMs), H100 PCIe 80GB (114"),
        ("RTX PRO 6001", "no GPU 'RTX PRO 6001' in the table; near: RTX PRO 6000"),
        ("RTX 6000", "no GPU 'RTX 6000' in the table; near: RTX PRO 6000"),
        ("H1000", "near: "),
        ("quantum", "no GPU 'quantum' in the table; "),
        ("", "no GPU '' in the table; "),
        ("42", "no GPU '42' in the table; "),
    ],
)
def test_a_name_that_is_none_is_one_line_with_near_ones(typed: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        gpus.find(typed)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
