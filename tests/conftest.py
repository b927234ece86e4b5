"""Shared by all tests: what a test that needs a GPU asks for, and how a machine without one is treated."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("SCELLIS_CHECK", "1")


def _adapters() -> list[str]:
    from scellis_core import runtime

    return [a.name for a in runtime.adapters()]


@pytest.fixture(scope="session")
def device_name() -> str:
    """Name of the adapter that ``auto`` takes; skips where there is none, fails under SCELLIS_REQUIRE_GPU=1."""
    found = _adapters()
    if not found:
        message = "no WebGPU adapter: wgpu lists none that is Vulkan, Metal or DX12 (`scellis doctor`)"
        if os.environ.get("SCELLIS_REQUIRE_GPU"):
            pytest.fail(message)
        pytest.skip(message)
    return found[0]
