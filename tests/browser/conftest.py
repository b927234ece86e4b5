"""Headless Chromium with WebGPU on its software adapter; skips without it, fails where a GPU is required."""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]
WEBGPU = [*FLAGS, "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


def _missing(reason: str) -> None:
    if os.environ.get("SCELLIS_REQUIRE_GPU"):
        pytest.fail(f"SCELLIS_REQUIRE_GPU=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium or Chrome."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        _missing("no Chromium here (Debian: apt-get install chromium)")
    return str(found)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Any]:
    """Playwright's driver, which runs in a process of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="session")
def browser(playwright: Any, chromium: str) -> Iterator[Any]:
    """A browser whose WebGPU runs in software."""
    opened = playwright.chromium.launch(executable_path=chromium, args=WEBGPU)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def plain_browser(playwright: Any, chromium: str) -> Iterator[Any]:
    """The same browser without WebGPU."""
    opened = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS, "--disable-features=WebGPU"])
    yield opened
    opened.close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """``serve(folder)``: its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(folder: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
