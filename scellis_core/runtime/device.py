# pyright: basic
"""Adapters and devices: what is there, what it allows, and how it fails."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import wgpu

from scellis_core.errors import DeviceError
from scellis_core.lower.program import Limits

logging.getLogger("wgpu").setLevel(logging.CRITICAL)

_LIMITS = {
    "max_storage_buffer_binding_size": "max-storage-buffer-binding-size",
    "max_buffer_size": "max-buffer-size",
    "max_storage_buffers_per_shader_stage": "max-storage-buffers-per-shader-stage",
    "max_compute_invocations_per_workgroup": "max-compute-invocations-per-workgroup",
    "max_compute_workgroup_size_x": "max-compute-workgroup-size-x",
    "max_compute_workgroup_storage_size": "max-compute-workgroup-storage-size",
    "max_compute_workgroups_per_dimension": "max-compute-workgroups-per-dimension",
    "min_storage_buffer_offset_alignment": "min-storage-buffer-offset-alignment",
}
_FEATURES = ("shader-f16", "subgroup", "timestamp-query")
_RANK = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2, "CPU": 3}


@dataclass(frozen=True)
class AdapterInfo:
    """A GPU as the system lists it.

    Attributes:
        name, backend, kind, driver: ``kind`` is ``DiscreteGPU``, ``IntegratedGPU``, ``CPU`` ...
        features: WebGPU features that Scellis uses.
        limits: what it allows.
    """

    name: str
    backend: str
    kind: str
    driver: str
    features: tuple[str, ...]
    limits: Limits

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "adapter": self.name,
            "backend": self.backend,
            "type": self.kind,
            "driver": self.driver,
            "features": list(self.features),
            "limits": self.limits.to_json(),
        }


def _describe(adapter: Any) -> AdapterInfo:
    info = adapter.info
    features = tuple(f for f in _FEATURES if f in adapter.features)
    values = {ours: int(adapter.limits[theirs]) for ours, theirs in _LIMITS.items()}
    values["min_storage_buffer_offset_alignment"] = max(256, values["min_storage_buffer_offset_alignment"])
    kind = str(info["adapter_type"])
    shown = (*features, "cpu-adapter") if kind == "CPU" else features
    return AdapterInfo(
        str(info["device"]) or str(info["vendor"]),
        str(info["backend_type"]),
        kind,
        str(info["description"]),
        features,
        Limits(**values, features=shown),
    )


def _enumerate() -> list[tuple[AdapterInfo, Any]]:
    found = [(_describe(a), a) for a in wgpu.gpu.enumerate_adapters_sync()]
    usable = [(i, a) for i, a in found if i.backend != "OpenGL" and i.limits.max_storage_buffers_per_shader_stage >= 8]
    return sorted(usable, key=lambda pair: _RANK.get(pair[0].kind, 2))


def adapters() -> list[AdapterInfo]:
    """Adapters that can run Scellis, best first (discrete, integrated, software)."""
    return [info for info, _ in _enumerate()]


class Device:
    """An open device.

    Attributes:
        info: of its adapter.
        limits: what was granted; never more than asked for.
    """

    def __init__(self, info: AdapterInfo, handle: Any, limits: Limits) -> None:
        self.info, self.handle, self.limits = info, handle, limits
        self.lost = ""

    def close(self) -> None:
        """Free it."""
        self.handle.destroy()

    def describe(self) -> dict[str, Any]:
        """Adapter, driver and the limits in force."""
        return {**self.info.to_json(), "limits": self.limits.to_json(), "wgpu": wgpu.__version__}


def open_device(name: str | None = None, limits: Limits | None = None) -> Device:
    """Open an adapter.

    Args:
        name: part of its name or backend, any case; None for the best there is.
        limits: ask for these instead of all that the adapter has.

    Raises:
        DeviceError: if there is no such adapter, or it allows less than ``limits``.
    """
    found = _enumerate()
    if not found:
        raise DeviceError(
            "GPU", "a WebGPU adapter (Vulkan, Metal or DX12)", "none",
            "a driver (Debian: apt-get install mesa-vulkan-drivers libvulkan1), or --device oracle",
        )  # fmt: skip
    chosen = [p for p in found if name is None or name.lower() in f"{p[0].name} {p[0].backend}".lower()]
    if not chosen:
        raise DeviceError("--device", "part of an adapter's name", repr(name), "; ".join(i.name for i, _ in found))
    info, adapter = chosen[0]
    wanted = limits or info.limits
    required: dict[str, int] = {}
    for ours, theirs in _LIMITS.items():
        has, asked = getattr(info.limits, ours), getattr(wanted, ours)
        if ours == "min_storage_buffer_offset_alignment":
            continue
        if asked > has:
            raise DeviceError(f"device {info.name}", f"{theirs} of at least {asked}", str(has), f"at most {has}")
        required[theirs] = asked
    missing = [f for f in wanted.features if f not in info.limits.features]
    if missing:
        raise DeviceError(f"device {info.name}", f"feature {missing[0]}", "a device without it", "precision: { policy: f32 }")
    handle = adapter.request_device_sync(
        label="scellis", required_features=[f for f in info.features if limits is None or f in wanted.features or f == "timestamp-query"], required_limits=required
    )
    return Device(info, handle, wanted if limits is not None else info.limits)
