# pyright: basic
"""Adapters and devices: what is there, and what it allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import wgpu

from scellis_core.errors import DeviceError
from scellis_core.lower.program import ALIGN, Limits
from scellis_core.runtime.native import Native, choose_backends, quiet_loader
from scellis_core.runtime.words import driver_words

Power = Literal["high-performance", "low-power"]

_LIMITS = {
    "max_storage_buffer_binding_size": "max-storage-buffer-binding-size",
    "max_buffer_size": "max-buffer-size",
    "max_storage_buffers_per_shader_stage": "max-storage-buffers-per-shader-stage",
    "max_compute_invocations_per_workgroup": "max-compute-invocations-per-workgroup",
    "max_compute_workgroup_size_x": "max-compute-workgroup-size-x",
    "max_compute_workgroup_storage_size": "max-compute-workgroup-storage-size",
    "max_compute_workgroups_per_dimension": "max-compute-workgroups-per-dimension",
}
"""Limits that are asked for, ours -> wgpu's."""

_FEATURES = ("shader-f16", "subgroup", "timestamp-query")
_HINTS = ("cpu-adapter",)
"""Entries of ``Limits.features`` that say what a device is, and aren't asked for."""

_KINDS: dict[Power, tuple[str, ...]] = {
    "high-performance": ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU"),
    "low-power": ("IntegratedGPU", "DiscreteGPU", "VirtualGPU", "Unknown", "CPU"),
}
_BACKENDS = ("Vulkan", "Metal", "D3D12")


@dataclass(frozen=True)
class AdapterInfo:
    """A GPU as the system lists it.

    Attributes:
        name: of the device.
        backend: ``Vulkan``, ``Metal`` or ``D3D12``.
        kind: ``DiscreteGPU``, ``IntegratedGPU``, ``VirtualGPU``, ``CPU`` or ``Unknown``.
        driver: its name and version, as far as it tells.
        features: WebGPU features that Scellis uses.
        limits: all that it allows.
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


class Device:
    """An open device.

    Attributes:
        info: of its adapter.
        limits: in force; never more than was asked for.
        features: that kernels and profiling may use.
        native: its C handles.
    """

    def __init__(self, info: AdapterInfo, limits: Limits, features: tuple[str, ...], native: Native) -> None:
        self.info, self.limits, self.features, self.native = info, limits, features, native

    def close(self) -> None:
        """Free it; once is enough."""
        self.native.close()

    def describe(self) -> dict[str, Any]:
        """Adapter, driver and the limits in force: plain data."""
        return {
            **self.info.to_json(),
            "features": list(self.features),
            "limits": self.limits.to_json(),
            "wgpu": wgpu.__version__,
        }


def adapters(power: Power = "high-performance") -> list[AdapterInfo]:
    """Adapters that can run Scellis, best first: discrete, integrated (the other way for low power), software."""
    return [info for info, _ in _enumerate(power)]


def open_device(name: str | None = None, limits: Limits | None = None, *, power: Power = "high-performance") -> Device:
    """Open an adapter.

    Args:
        name: part of its name or backend, any case; None for the first of :func:`adapters`.
        limits: ask for these and no more (features too); None for all that the adapter has.
        power: which kind comes first where there are several.

    Raises:
        DeviceError: if there is no such adapter, it allows less than ``limits``, or the driver refuses.
    """
    found = _enumerate(power)
    if not found:
        raise DeviceError(
            "GPU",
            "a WebGPU adapter (Vulkan, Metal or DX12)",
            "none",
            "a driver (Debian: apt-get install mesa-vulkan-drivers libvulkan1), or --device oracle",
        )
    chosen = [pair for pair in found if name is None or name.lower() in f"{pair[0].name} {pair[0].backend}".lower()]
    if not chosen:
        choices = "one of: " + ", ".join(f"{info.name} ({info.backend})" for info, _ in found)
        raise DeviceError("--device", "part of an adapter's name, auto or oracle", repr(name), choices)
    info, adapter = chosen[0]
    wanted = limits or info.limits
    _check(info, wanted)
    features = [f for f in info.features if f in wanted.features or f == "timestamp-query"]
    required = {theirs: getattr(wanted, ours) for ours, theirs in _LIMITS.items()}
    try:
        with quiet_loader():
            handle = adapter.request_device_sync(label="scellis", required_features=features, required_limits=required)
    except (RuntimeError, wgpu.GPUError) as error:
        raise DeviceError(f"device {info.name}", "a device that opens", driver_words(str(error))) from error
    return Device(info, wanted, tuple(features), Native(handle))


def _check(info: AdapterInfo, wanted: Limits) -> None:
    where = f"device {info.name}"
    for ours, theirs in _LIMITS.items():
        has, asked = getattr(info.limits, ours), getattr(wanted, ours)
        if asked > has:
            raise DeviceError(where, f"{theirs} of at least {asked}", str(has), f"at most {has}")
    for feature in wanted.features:
        if feature in info.features or feature in _HINTS:
            continue
        remedy = "precision: { policy: f32 }" if feature == "shader-f16" else "limits without it"
        raise DeviceError(where, f"the feature {feature}", "a device without it", remedy)


def _describe(adapter: Any) -> AdapterInfo:
    info = adapter.info
    features = tuple(f for f in _FEATURES if f in adapter.features)
    values = {ours: int(adapter.limits[theirs]) for ours, theirs in _LIMITS.items()}
    values["min_storage_buffer_offset_alignment"] = max(
        ALIGN, int(adapter.limits["min-storage-buffer-offset-alignment"])
    )
    kind = str(info["adapter_type"])
    hints = _HINTS if kind == "CPU" else ()
    return AdapterInfo(
        str(info["device"]) or str(info["vendor"]),
        str(info["backend_type"]),
        kind,
        str(info["description"]),
        features,
        Limits(**values, features=(*features, *hints)),
    )


def _enumerate(power: Power) -> list[tuple[AdapterInfo, Any]]:
    with quiet_loader():
        choose_backends()
        found = [(_describe(a), a) for a in wgpu.gpu.enumerate_adapters_sync()]
    least = Limits().max_storage_buffers_per_shader_stage
    usable = [
        (info, adapter)
        for info, adapter in found
        if info.backend in _BACKENDS and info.limits.max_storage_buffers_per_shader_stage >= least
    ]
    kinds = _KINDS[power]

    def rank(pair: tuple[AdapterInfo, Any]) -> tuple[int, int]:
        info = pair[0]
        kind = kinds.index(info.kind) if info.kind in kinds else kinds.index("Unknown")
        return kind, _BACKENDS.index(info.backend)

    return sorted(usable, key=rank)
