"""The written site in headless Chromium: the curve of a native run, the same draws, errors that are said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scellis_core import rng
from scellis_core.catalog import Catalog
from scellis_core.compile import compile_run
from scellis_core.lower.program import Limits
from scellis_core.model import resolve_run
from scellis_core.record import Record
from scellis_core.rng import PHILOX_WGSL
from scellis_core.site import write_site
from scellis_core.train.session import open_session

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 50

RECORD_MESSAGES = """
window.messages = [];
const Plain = window.Worker;
window.Worker = class extends Plain {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", (event) => window.messages.push(event.data));
  }
};
"""
READY = "!document.getElementById('toggle').disabled || !document.getElementById('error').hidden"


@pytest.fixture(scope="module")
def record() -> Record:
    return Record.load(EXAMPLES / "digits.sml").with_override("epochs", 2)


@pytest.fixture(scope="module")
def site(record: Record, tmp_path_factory: pytest.TempPathFactory, serve: Callable[[Path], str]) -> str:
    folder = tmp_path_factory.mktemp("tab") / "site"
    write_site(record, folder, Catalog.discover())
    return serve(folder)


@pytest.fixture(scope="module")
def asked() -> list[str]:
    """Every address that the trained page asked for."""
    return []


@pytest.fixture(scope="module")
def trained(browser: Any, site: str, asked: list[str]) -> Any:
    """A page that trained to the end, paused and resumed on its way."""
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.add_init_script(RECORD_MESSAGES)
    page.goto(site)
    page.wait_for_function(READY, timeout=120_000)
    assert page.inner_text("#toggle") == "Start"
    page.click("#toggle")
    page.wait_for_function("messages.filter((m) => m.type === 'step').length > 10", timeout=30_000)
    page.click("#toggle")
    page.wait_for_function("messages.some((m) => m.state === 'paused')", timeout=30_000)
    assert page.inner_text("#toggle") == "Resume"
    count = "messages.filter((m) => m.type === 'step').length"
    paused = page.evaluate(count)
    page.wait_for_timeout(400)
    assert page.evaluate(count) == paused
    page.click("#toggle")
    page.wait_for_function("messages.some((m) => m.state === 'finished')", timeout=60_000)
    return page


def test_losses_are_those_of_the_native_run(trained: Any, record: Record, device_name: str) -> None:
    session = open_session(record, Catalog.discover(), device=device_name)
    session.initialise()
    native = [session.report(session.update()) for _ in range(STEPS)]
    session.close()
    steps = [m for m in trained.evaluate("messages") if m["type"] == "step"]
    assert [m["step"] for m in steps] == list(range(1, len(steps) + 1))
    assert len(steps) == session.plan.total >= STEPS
    np.testing.assert_allclose([m["loss"] for m in steps[:STEPS]], [r["loss"] for r in native], rtol=1e-4)
    np.testing.assert_allclose([m["grad_norm"] for m in steps[:STEPS]], [r["grad_norm"] for r in native], rtol=1e-3)


def test_metrics_come_at_the_end_of_each_epoch(trained: Any) -> None:
    found = [m for m in trained.evaluate("messages") if m["type"] == "metrics"]
    assert [m["epoch"] for m in found] == [0, 1]
    assert found[1]["metrics"]["val_accuracy"] > 0.7
    assert trained.inner_text("#toggle") == "Finished"
    assert "val accuracy" in trained.inner_text("#numbers")


def test_nothing_is_fetched_from_elsewhere(trained: Any, asked: list[str], site: str) -> None:
    assert len(asked) > 8
    assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []


def test_draws_are_the_same_bits(trained: Any) -> None:
    code = (
        PHILOX_WGSL
        + """
@group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  out[id.x] = philox4x32(vec4<u32>(id.x * 2654435761u, id.x, 0xffffffffu - id.x, 7u), vec2<u32>(KEY));
}"""
    ).replace("KEY", "123456789u, 4294967295u")
    found = trained.evaluate(
        """async (code) => {
          const { openDevice } = await import("./host.js");
          const { device } = await openDevice();
          const out = device.createBuffer({ size: 4096, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC });
          const read = device.createBuffer({ size: 4096, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
          const module = device.createShaderModule({ code });
          const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module } });
          const layout = pipeline.getBindGroupLayout(0);
          const group = device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer: out } }] });
          const encoder = device.createCommandEncoder();
          const pass = encoder.beginComputePass();
          pass.setPipeline(pipeline);
          pass.setBindGroup(0, group);
          pass.dispatchWorkgroups(4);
          pass.end();
          encoder.copyBufferToBuffer(out, 0, read, 0, 4096);
          device.queue.submit([encoder.finish()]);
          await read.mapAsync(GPUMapMode.READ);
          return Array.from(new Uint32Array(read.getMappedRange()));
        }""",
        code,
    )
    want = [
        word
        for i in range(256)
        for word in rng.philox4x32((i * 2654435761 % 2**32, i, 0xFFFFFFFF - i, 7), (123456789, 4294967295))
    ]
    assert found == want


@pytest.mark.parametrize("example", sorted(p.name for p in EXAMPLES.glob("*.sml")))
def test_every_kernel_of_the_examples_compiles(trained: Any, example: str) -> None:
    loaded = Record.load(EXAMPLES / example)
    run = resolve_run(loaded, Catalog.discover(), loaded.base)
    batch = loaded.spec.batch_size or 1
    kernels = compile_run(run, Limits(), train=[batch, 3], evaluate=[batch], predict=[1]).program.kernels
    found = trained.evaluate(
        """async (texts) => {
          const { openDevice } = await import("./host.js");
          const { device } = await openDevice();
          const infos = await Promise.all(
            texts.map((code) => device.createShaderModule({ code }).getCompilationInfo()));
          return infos.map((info) => info.messages.map((m) => `${m.type} ${m.lineNum}: ${m.message}`));
        }""",
        [k.wgsl for k in kernels.values()],
    )
    assert {key: said for key, said in zip(kernels, found, strict=True) if said} == {}


def test_a_lost_device_is_said(trained: Any) -> None:
    said = trained.evaluate(
        """async () => {
          const { Host, openDevice } = await import("./host.js");
          const { device } = await openDevice();
          const program = { limits: {}, buffers: [["scalars", 16, "scalars"]], kernels: {}, tensors: {}, scalars: {},
                            sequences: { run: { commands: [], inputs: {}, outputs: {}, draws: 0 } }, meta: {} };
          const host = await Host.create(device, program);
          host.run("run", {}, {});
          device.destroy();
          await device.lost;
          try { host.run("run", {}, {}); } catch (error) { return error.message; }
        }"""
    )
    assert said.startswith("WebGPU device: expected it to be there, got it lost (")


def opened(browser: Any, site: str, *, without: str = "", cut: str = "") -> str:
    """What the page says when a file of the site is missing or short."""
    page = browser.new_page()
    if without:
        page.route(f"**/{without}", lambda route: route.fulfill(status=404))
    if cut:
        page.route(f"**/{cut}", lambda route: route.fulfill(body=b"\\0" * 8))
    page.goto(site)
    page.wait_for_selector("#error:not([hidden])", timeout=30_000)
    said = page.inner_text("#error")
    assert page.is_disabled("#toggle")
    page.close()
    return said


def test_missing_and_short_files_are_said(browser: Any, site: str) -> None:
    assert opened(browser, site, without="program.json") == (
        "program.json: expected a file of this site, got HTTP 404; write the site again"
    )
    said = opened(browser, site, cut="weights.bin")
    assert said.startswith("weights.bin: expected ")
    assert said.endswith("; write the site again")


def test_a_browser_without_webgpu_is_said(plain_browser: Any, site: str) -> None:
    said = opened(plain_browser, site)
    assert said.startswith(("this browser: expected WebGPU, got none", "WebGPU: expected a GPU adapter, got none"))
