"""What state a GPU is in while it is measured: clocks, memory, power, through NVML (nvidia-ml-py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: A clock that differs by more than this share between two readings has moved.
_CLOCK_TOLERANCE = 0.02


@dataclass(frozen=True)
class GpuState:
    """One reading. None where the GPU does not tell."""

    sm_mhz: int | None
    memory_mhz: int | None
    most_sm_mhz: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_watts: float | None
    power_limit_watts: float | None
    celsius: int | None


class Monitor:
    """Reads the state of the GPU with a UUID (`GPU-...`). Raises `ImportError` or `OSError` where NVML is not there."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        self._nvml: Any = pynvml
        with _as_os_error(pynvml):
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self.driver_version: str = _text(pynvml.nvmlSystemGetDriverVersion())

    def read(self) -> GpuState:
        """The state now."""
        nvml = self._nvml
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        power, limit = self._ask("nvmlDeviceGetPowerUsage"), self._ask("nvmlDeviceGetEnforcedPowerLimit")
        return GpuState(
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            memory_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            most_sm_mhz=self._ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            power_watts=None if power is None else power / 1000,
            power_limit_watts=None if limit is None else limit / 1000,
            celsius=self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        )

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None


def clocks_moved(states: Sequence[GpuState]) -> str | None:
    """What to warn of: a clock that differed between readings under load; None where all held still."""
    for name, values in (
        ("SM", [state.sm_mhz for state in states]),
        ("memory", [state.memory_mhz for state in states]),
    ):
        known = [value for value in values if value is not None]
        if known and max(known) - min(known) > _CLOCK_TOLERANCE * max(known):
            return f"the {name} clock moved between {min(known)} and {max(known)} MHz while this was measured"
    return None


@contextlib.contextmanager
def _as_os_error(nvml: Any) -> Iterator[None]:
    try:
        yield
    except nvml.NVMLError as error:
        raise OSError(str(error)) from error


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
