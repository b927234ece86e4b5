"""The runtime over programs written by hand: replay, windows, readback, tensors, memory, timestamps."""

from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest
from sketch import Sketch, doubled, plus, times

from scellis_core import runtime
from scellis_core.lower.program import Clear, Copy, Limits, Range, StepProgram

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def live(source=runtime) -> dict[str, int]:
    gc.collect()
    return source.live_objects()


# -- adapters and devices -------------------------------------------------------------------------------------
def test_adapters_are_ranked_and_plain_data() -> None:
    found = runtime.adapters()
    kinds = ["DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU"]
    order = [kinds.index(a.kind) for a in found]
    assert order == sorted(order)
    for adapter in found:
        assert adapter.backend in ("Vulkan", "Metal", "D3D12")
        assert adapter.limits.max_storage_buffers_per_shader_stage >= 8
        assert Limits.from_json(adapter.to_json()["limits"]) == adapter.limits
    assert {a.name for a in runtime.adapters("low-power")} == {a.name for a in found}


def test_device_has_what_was_asked_for(full_device, device, small_device) -> None:
    assert full_device.limits == full_device.info.limits
    assert device.limits.max_storage_buffers_per_shader_stage == 8
    assert device.limits.max_storage_buffer_binding_size == 128 << 20
    assert small_device.limits.max_storage_buffer_binding_size == 1 << 20
    told = small_device.describe()
    assert told["adapter"] == small_device.info.name
    assert told["limits"]["max_storage_buffer_binding_size"] == 1 << 20
    assert {"backend", "driver", "type", "features", "wgpu"} <= set(told)


def test_the_driver_itself_holds_the_small_binding_limit(small_device) -> None:
    native = small_device.native
    buffer = native.buffer("big", 4 << 20, runtime.native.STORAGE)
    layout, outer = native.layout([("read_write", 4)])
    with pytest.raises(runtime.executor.DeviceError, match="1048576"):
        native.bind_group("k", layout, [(buffer, 0, 2 << 20)])
    native.release("pipeline layout", outer)
    native.release("layout", layout)
    native.destroy_buffer(buffer)


# -- replay ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 63, 1000])
def test_double(place, device, count: int) -> None:
    executor = place(doubled(device.limits, count))
    for _ in range(3):
        x = floats(count)
        executor.run("run", {"x": x})
        np.testing.assert_array_equal(executor.outputs("run")["y"], 2 * x)


def test_a_chain_sees_every_step_before_it(place, device) -> None:
    sketch = Sketch(device.limits)
    sketch.tensor("a", (500,))
    sketch.tensor("b", (500,))
    there = sketch.map("grow", "a", "b", plus("1.0f"))
    back = sketch.map("grow", "b", "a", plus("1.0f"))
    executor = place(sketch.sequence("run", [there, back] * 150, outputs={"a": "a"}))
    executor.run("run")
    executor.run("run")
    np.testing.assert_array_equal(executor.outputs("run")["a"], np.full(500, 600, np.float32))
    assert len(executor.program.kernels) == 1


def test_scalars_of_each_dtype_change_between_runs(place, device) -> None:
    sketch = Sketch(device.limits)
    sketch.tensor("x", (8,), kind="input")
    sketch.tensor("y", (8,))

    def body(module, i, x, y) -> str:
        f, n, u = module.scalar("lr"), module.scalar("shift", "i32"), module.scalar("rng.counter_lo", "u32")
        return y.store(i, f"{x.load(i)} * {f} + f32({n}) + f32({u} >> 24u)")

    executor = place(sketch.sequence("run", [sketch.map("scaled", "x", "y", body)], {"x": "x"}, {"y": "y"}))
    x = floats(8)
    executor.run("run", {"x": x}, {"lr": 0.5, "shift": -3, "rng.counter_lo": 0xFFFFFFFF})
    np.testing.assert_allclose(executor.outputs("run")["y"], x * 0.5 - 3 + 255, rtol=1e-6)
    executor.run("run", {"x": x}, {"lr": 2.0})
    np.testing.assert_allclose(executor.outputs("run")["y"], x * 2 - 3 + 255, rtol=1e-6)


def test_more_workgroups_than_one_dimension_holds(place, device) -> None:
    count = 65_535 * 32 + 1
    sketch = Sketch(device.limits)
    sketch.tensor("x", (count,), "u32", kind="input")
    sketch.tensor("y", (count,), "u32")
    dispatch = sketch.map("spill", "x", "y", plus("7u"), size=32)
    assert dispatch.grid[1] == 2
    executor = place(sketch.sequence("run", [dispatch], {"x": "x"}))
    x = np.arange(count, dtype=np.uint32)
    executor.run("run", {"x": x})
    np.testing.assert_array_equal(executor.read("y"), x + 7)


def test_three_windows_under_one_mib(place, small_device) -> None:
    count = (5 << 18) // 2 + 3
    sketch = Sketch(small_device.limits)
    sketch.tensor("x", (count,), kind="input")
    sketch.tensor("y", (count,))
    dispatch = sketch.map("far", "x", "y", lambda m, i, x, y: y.store(f"({count - 1}u - {i})", x.load(i)))
    assert len(dispatch.binds) == 6
    executor = place(sketch.sequence("run", [dispatch], {"x": "x"}, {"y": "y"}), small_device)
    x = floats(count)
    executor.run("run", {"x": x})
    np.testing.assert_array_equal(executor.outputs("run")["y"], x[::-1])


def test_copy_and_clear_between_dispatches(place, device) -> None:
    sketch = Sketch(device.limits)
    for name in "abc":
        sketch.tensor(name, (128,))
    ranges = {name: Range(f"b.{name}", 0, 512) for name in "abc"}
    commands = [
        sketch.map("double", "a", "b", times("2.0f")),
        Copy(ranges["b"], ranges["c"]),
        Clear(Range("b.c", 0, 256)),
        sketch.map("double", "c", "b", times("2.0f")),
        Clear(ranges["a"]),
    ]
    executor = place(sketch.sequence("run", commands))
    a = floats(128)
    executor.write("a", a)
    executor.run("run")
    np.testing.assert_array_equal(executor.read("c"), np.r_[np.zeros(64), 2 * a[64:]].astype(np.float32))
    np.testing.assert_array_equal(executor.read("b"), np.r_[np.zeros(64), 4 * a[64:]].astype(np.float32))
    assert not executor.read("a").any()


def test_program_from_json_runs(place, device) -> None:
    program = StepProgram.from_json(doubled(device.limits, 10).to_json())
    executor = place(program)
    x = floats(10)
    executor.run("run", {"x": x})
    np.testing.assert_array_equal(executor.outputs("run")["y"], 2 * x)


def test_a_declared_binding_that_a_kernel_does_not_use_is_bound(place, device) -> None:
    sketch = Sketch(device.limits)
    sketch.tensor("x", (4,), kind="input")
    sketch.tensor("y", (4,))
    executor = place(
        sketch.sequence("run", [sketch.map("ones", "x", "y", lambda m, i, x, y: y.store(i, "1.0f"))], {"x": "x"})
    )
    executor.run("run", {"x": floats(4)})
    np.testing.assert_array_equal(executor.read("y"), np.ones(4, np.float32))


# -- readback -------------------------------------------------------------------------------------------------
def test_a_readback_taken_a_step_later_has_its_own_step(place, device) -> None:
    executor = place(doubled(device.limits, 50, staging=3 * 256, readbacks=3))
    batches = [floats(50) for _ in range(7)]
    handles = []
    for x in batches:
        executor.run("run", {"x": x})
        handles.append(executor.start_readback("run"))
    for x, handle in reversed(list(zip(batches, handles, strict=True))):
        np.testing.assert_array_equal(handle.result()["y"], 2 * x)
        assert handle.result() is handle.result()


def test_outputs_larger_than_the_staging_buffer_come_in_pieces(place, device) -> None:
    executor = place(doubled(device.limits, 3001, staging=4096))
    x = floats(3001)
    executor.run("run", {"x": x})
    np.testing.assert_array_equal(executor.outputs("run")["y"], 2 * x)
    np.testing.assert_array_equal(executor.read("y"), 2 * x)


def test_a_readback_does_not_wait_for_later_work(place, device) -> None:
    """What is waited for is the readback's own submission."""
    sketch = Sketch(device.limits, staging=512, readbacks=2)
    sketch.tensor("x", (50,), kind="input")
    sketch.tensor("y", (50,))
    sketch.tensor("a", (1 << 20,))
    sketch.tensor("b", (1 << 20,))
    slow = [sketch.map("sin", "a", "b", lambda m, i, x, y: y.store(i, f"sin({x.load(i)})"))] * 100
    sketch.sequence("slow", slow)
    executor = place(sketch.sequence("run", [sketch.map("double", "x", "y", times("2.0f"))], {"x": "x"}, {"y": "y"}))
    executor.prepare()
    executor.run("run", {"x": np.ones(50)})
    handle = executor.start_readback("run")
    executor.run("slow")
    np.testing.assert_array_equal(handle.result()["y"], np.full(50, 2, np.float32))
    assert not executor.device.native.idle()
    executor.sync()
    assert executor.device.native.idle()


# -- tensors --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("f32", np.float32([[1.5, -0.0, np.inf]])),
        ("f32", np.array([[1.0, 2.0, 3.0]])),
        ("f16", np.float32([[1.5, -2.0, 65504.0]])),
        ("i32", np.array([[-(2**31), 0, 2**31 - 1]])),
        ("u32", np.array([[0, 7, 2**32 - 1]])),
        ("bool", np.array([[True, False, True]])),
        ("bool", np.array([[1, 0, 1]])),
        ("f32", np.arange(6, dtype=np.float32)[::2][None]),
    ],
)
def test_write_and_read(place, device, dtype: str, given: np.ndarray) -> None:
    sketch = Sketch(device.limits)
    sketch.tensor("t", (1, 3), dtype)
    executor = place(sketch.sequence("none", []))
    executor.write("t", given)
    got = executor.read("t")
    assert got.dtype == (np.bool_ if dtype == "bool" else runtime.executor.NUMPY[dtype])
    np.testing.assert_array_equal(got, given)


def test_tensors_in_one_slab_do_not_touch(place, device) -> None:
    sketch = Sketch(device.limits)
    names = [f"t{k}" for k in range(5)]
    for k, name in enumerate(names):
        sketch.tensor(name, (2 * k + 1,), "f16", buffer="slab")
    executor = place(sketch.sequence("none", []))
    arrays = {n: floats(2 * k + 1).astype(np.float16) for k, n in enumerate(names)}
    for name in reversed(names):
        executor.write(name, arrays[name])
    for name in names:
        np.testing.assert_array_equal(executor.read(name), arrays[name])


def test_a_tensor_larger_than_one_upload(place, full_device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.executor, "_CHUNK", 1 << 20)
    sketch = Sketch(full_device.limits, staging=2 << 20, readbacks=2)
    count = (3 << 18) + 5
    sketch.tensor("t", (count,))
    executor = place(sketch.sequence("none", []), full_device)
    given = floats(count)
    executor.write("t", given)
    np.testing.assert_array_equal(executor.read("t"), given)


def test_zero_at_first(place, device) -> None:
    executor = place(doubled(device.limits, 300))
    assert not executor.read("y").any()


def test_f16_kernels(place, device) -> None:
    if "shader-f16" not in device.features:
        pytest.skip("the adapter has no shader-f16")
    sketch = Sketch(device.limits)
    sketch.tensor("x", (33,), "f16", kind="input")
    sketch.tensor("y", (33,), "f16")
    executor = place(sketch.sequence("run", [sketch.map("half", "x", "y", times("0.5h"))], {"x": "x"}))
    x = floats(33).astype(np.float16)
    executor.run("run", {"x": x})
    np.testing.assert_array_equal(executor.read("y"), x / 2)


# -- memory ---------------------------------------------------------------------------------------------------
def test_allocated_bytes_are_the_program_s(place, device) -> None:
    program = doubled(device.limits, 1000, staging=3 * 4096, readbacks=3)
    executor = place(program)
    planned = sum(program.bytes_by_kind().values())
    assert executor.allocated_bytes() == planned
    executor.run("run", {"x": floats(1000)})
    executor.outputs("run")
    executor.read("x")
    assert executor.allocated_bytes() == planned
    assert executor.describe()["allocated_bytes"] == planned


def test_a_thousand_runs_leave_nothing_behind(place, device) -> None:
    executor = place(doubled(device.limits, 64, staging=512, readbacks=2))
    x = floats(64)

    def steps(n: int) -> None:
        handle = None
        for _ in range(n):
            executor.run("run", {"x": x})
            if handle is not None:
                handle.result()
            handle = executor.start_readback("run")
        executor.sync()

    steps(3)
    objects, nbytes = live(executor), executor.allocated_bytes()
    steps(1000)
    assert live(executor) == objects
    assert executor.allocated_bytes() == nbytes


def test_close_frees_every_object(device) -> None:
    before = live()
    executor = runtime.GpuExecutor(doubled(device.limits, 64), device, keep_device=True)
    executor.run("run", {"x": floats(64)})
    pending = executor.start_readback("run")
    assert live()["buffers"] > before["buffers"]
    executor.close()
    executor.close()
    assert live() == before
    with pytest.raises(runtime.executor.DeviceError, match="closed"):
        executor.run("run", {"x": floats(64)})
    assert pending is not None


def test_an_executor_that_owns_its_device_closes_it() -> None:
    device = runtime.open_device(limits=Limits())
    executor = runtime.GpuExecutor(doubled(device.limits, 64), device)
    executor.run("run", {"x": floats(64)})
    executor.close()
    assert device.native.closed
    device.close()


# -- timestamps -----------------------------------------------------------------------------------------------
def test_profile_names_and_times_each_dispatch(place, device) -> None:
    if "timestamp-query" not in device.features:
        pytest.skip("the adapter has no timestamp-query")
    sketch = Sketch(device.limits)
    sketch.tensor("a", (4096,))
    sketch.tensor("b", (4096,))
    first = dataclasses.replace(sketch.map("grow", "a", "b", plus("1.0f")), path="blocks.0")
    second = sketch.map("double", "b", "a", times("2.0f"))
    program = sketch.sequence("run", [first, Clear(Range("b.a", 0, 4)), second] * 3)
    executor = place(program)
    executor.prepare()
    objects = live(executor)
    timings = executor.profile("run")
    assert live(executor) == objects
    assert [(t.op, t.path) for t in timings] == [("grow", "blocks.0"), ("double", "")] * 3
    assert all(t.ns >= 0 for t in timings)
    assert sum(t.ns for t in timings) > 0
    assert executor.read("a")[1] == ((0 + 1) * 2 + 1) * 2 * 2 + 2


def test_profile_of_more_dispatches_than_a_query_set_holds(place, device, monkeypatch: pytest.MonkeyPatch) -> None:
    if "timestamp-query" not in device.features:
        pytest.skip("the adapter has no timestamp-query")
    monkeypatch.setattr(runtime.replay, "_QUERIES", 8)
    sketch = Sketch(device.limits)
    sketch.tensor("a", (64,))
    sketch.tensor("b", (64,))
    there, back = sketch.map("grow", "a", "b", plus("1.0f")), sketch.map("grow", "b", "a", plus("1.0f"))
    executor = place(sketch.sequence("run", [there, back] * 5))
    assert len(executor.profile("run")) == 10
    assert executor.read("a")[0] == 10
