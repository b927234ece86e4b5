"""The only importer of wgpu: adapters, devices, and the replay of step programs."""

from scellis_core.runtime.device import AdapterInfo, Device, adapters, open_device
from scellis_core.runtime.executor import GpuExecutor, Readback

__all__ = ["AdapterInfo", "Device", "GpuExecutor", "Readback", "adapters", "open_device"]
