"""Devices for these tests, opened once a process; without an adapter they skip, or fail where one is required."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scellis_core.lower.program import Limits, StepProgram

if TYPE_CHECKING:
    from scellis_core.runtime import Device, GpuExecutor

HERE = Path(__file__).parent
WEBGPU = Limits(features=("shader-f16", "subgroup"))
"""What a tab may count on, and the features that lavapipe and real GPUs have besides."""
MIB = 1 << 20


@functools.cache
def _missing() -> str:
    """Why there is no adapter; empty where there is one."""
    try:
        from scellis_core import runtime

        found = runtime.adapters()
    except Exception as error:  # noqa: BLE001 - whatever a driver or loader says is the reason to skip
        return f"no WebGPU adapter: {type(error).__name__}: {error}"
    return "" if found else "no WebGPU adapter: the loader lists none with 8 storage buffers a stage"


def pytest_report_header() -> str:
    reason = _missing()
    if reason:
        return f"gpu: {reason}"
    from scellis_core import runtime

    return "gpu: " + "; ".join(f"{a.name} ({a.kind}, {a.backend}, {a.driver})" for a in runtime.adapters())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.device)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if HERE not in item.path.parents:
        return
    reason = _missing()
    if reason and os.environ.get("SCELLIS_REQUIRE_GPU") == "1":
        pytest.fail(f"SCELLIS_REQUIRE_GPU=1, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


def limits_of(binding: int) -> Limits:
    """WebGPU's default limits with bindings of that many bytes, and the features that the adapter has of ours."""
    from scellis_core import runtime

    has = runtime.adapters()[0]
    return WEBGPU.with_(
        max_storage_buffer_binding_size=binding, features=tuple(f for f in WEBGPU.features if f in has.features)
    )


@pytest.fixture(scope="session")
def full_device() -> Iterator[Device]:
    """A device with all that the adapter has."""
    from scellis_core import runtime

    device = runtime.open_device()
    yield device
    device.close()


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    """A device asked for with WebGPU's default limits."""
    from scellis_core import runtime

    device = runtime.open_device(limits=limits_of(WEBGPU.max_storage_buffer_binding_size))
    yield device
    device.close()


@pytest.fixture(scope="session")
def small_device() -> Iterator[Device]:
    """A device asked for with bindings of 1 MiB."""
    from scellis_core import runtime

    device = runtime.open_device(limits=limits_of(MIB))
    yield device
    device.close()


@pytest.fixture
def place(device: Device) -> Iterator[Callable[..., GpuExecutor]]:
    """``place(program)`` or ``place(program, device)``: an executor, closed at the test's end; the device stays."""
    from scellis_core import runtime

    made: list[GpuExecutor] = []

    def put(program: StepProgram, on: Any = None) -> GpuExecutor:
        made.append(runtime.GpuExecutor(program, on or device, keep_device=True))
        return made[-1]

    yield put
    for executor in made:
        executor.close()
