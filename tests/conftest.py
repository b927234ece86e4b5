"""Shared by all tests: what a test that needs a GPU asks for, and how a machine without one is treated."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("same", derandomize=True, database=None)
hypothesis.settings.load_profile("same")

GOLDEN = Path(__file__).parent / "golden"

os.environ.setdefault("SCELLIS_CHECK", "1")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "error")


@pytest.fixture(autouse=True)
def strict_numbers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Golden tests: an overflow, an underflow or a NaN that nobody asked for is an error."""
    if GOLDEN not in request.path.parents:
        yield
        return
    import numpy as np

    with np.errstate(all="raise"):
        yield


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
