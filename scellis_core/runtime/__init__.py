"""The only importer of wgpu: adapters, devices, and the replay of step programs."""

from scellis_core.runtime.device import AdapterInfo, Device, Power, adapters, open_device
from scellis_core.runtime.executor import GpuExecutor, Readback
from scellis_core.runtime.native import live_objects
from scellis_core.runtime.replay import Timing

__all__ = [
    "AdapterInfo",
    "Device",
    "GpuExecutor",
    "Power",
    "Readback",
    "Timing",
    "adapters",
    "live_objects",
    "open_device",
]
