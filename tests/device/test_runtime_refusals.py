"""What the runtime refuses, with the whole text of each error."""

from __future__ import annotations

import dataclasses
import gc
import logging

import numpy as np
import pytest
from sketch import Sketch, doubled, plus, times

from scellis_core import runtime
from scellis_core.errors import DataError, DeviceError, ScellisError
from scellis_core.lower.program import Buffer, Clear, Copy, Dispatch, Kernel, Limits, Range, StepProgram, Tensor
from scellis_core.runtime.native import translate
from scellis_core.runtime.words import driver_words


def live() -> dict[str, int]:
    gc.collect()
    return runtime.live_objects()


def refused(kind: type[ScellisError], call, *args, **kwargs) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def one(limits: Limits, kernel: Kernel, *binds: Range, grid: tuple[int, int, int] = (1, 1, 1)) -> StepProgram:
    """A program with buffers a and b of 1,024 bytes and one dispatch."""
    program = StepProgram(limits)
    for name in "ab":
        program.buffers[name] = Buffer(name, 1024, "slot")
        program.tensors[name] = Tensor(name, "f32", (256,), Range(name, 0, 1024))
    sketch = Sketch(limits)
    sketch.program = program
    return sketch.sequence("run", [Dispatch(program.add_kernel(kernel), binds, grid, "matmul", "blocks.0.q")])


def good(limits: Limits) -> Kernel:
    sketch = Sketch(limits)
    sketch.tensor("a", (256,))
    sketch.tensor("b", (256,))
    sketch.map("double", "a", "b", times("2.0f"))
    return next(iter(sketch.program.kernels.values()))


A, B = Range("a", 0, 1024), Range("b", 0, 1024)


# -- devices --------------------------------------------------------------------------------------------------
def test_unknown_adapter() -> None:
    text = refused(DeviceError, runtime.open_device, "voodoo2")
    first = runtime.adapters()[0]
    assert text.startswith("--device: expected part of an adapter's name, auto or oracle, got 'voodoo2'; try one of: ")
    assert f"{first.name} ({first.backend})" in text


def test_no_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.device, "_enumerate", lambda power: [])
    assert refused(DeviceError, runtime.open_device) == (
        "GPU: expected a WebGPU adapter (Vulkan, Metal or DX12), got none; try a driver (Debian: apt-get install "
        "mesa-vulkan-drivers libvulkan1), or --device oracle"
    )


def test_device_with_more_than_the_adapter_has() -> None:
    info = runtime.adapters()[0]
    has = info.limits.max_storage_buffer_binding_size
    asked = Limits(max_storage_buffer_binding_size=has + 4, max_buffer_size=info.limits.max_buffer_size)
    assert refused(DeviceError, runtime.open_device, None, asked) == (
        f"device {info.name}: expected max-storage-buffer-binding-size of at least {has + 4}, got {has}; "
        f"try at most {has}"
    )


def test_device_without_f16(monkeypatch: pytest.MonkeyPatch) -> None:
    (info, adapter), *_ = runtime.device._enumerate("high-performance")
    bare = dataclasses.replace(info, features=())
    monkeypatch.setattr(runtime.device, "_enumerate", lambda power: [(bare, adapter)])
    assert refused(DeviceError, runtime.open_device, None, Limits(features=("shader-f16",))) == (
        f"device {info.name}: expected the feature shader-f16, got a device without it; "
        "try precision: { policy: f32 }"
    )


# -- programs -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("limit", "more"), [("max_storage_buffer_binding_size", 129 << 20), ("max_storage_buffers_per_shader_stage", 9)]
)
def test_program_for_larger_limits(device, limit: str, more: int) -> None:
    program = doubled(device.limits.with_(**{limit: more}))
    assert refused(DeviceError, runtime.GpuExecutor, program, device, keep_device=True) == (
        f"device {device.info.name}: expected {limit} of at least {more}, got {getattr(device.limits, limit)}; "
        "try compiling the run for this device"
    )


def test_program_with_f16_on_a_device_without(device) -> None:
    program = one(device.limits, Kernel("half", "enable f16;\n", (), (1, 1, 1)))
    bare = runtime.Device(device.info, device.limits.with_(features=()), (), device.native)
    key = next(iter(program.kernels))
    assert refused(DeviceError, runtime.GpuExecutor, program, bare, keep_device=True) == (
        f"device {device.info.name}: expected the feature shader-f16 (kernel {key}), got a device without it; "
        "try precision: { policy: f32 }"
    )


def test_buffer_larger_than_the_device_s_largest(device) -> None:
    program = doubled(device.limits)
    program.buffers["huge"] = Buffer("huge", (256 << 20) + 4, "slot")
    assert refused(DeviceError, runtime.GpuExecutor, program, device, keep_device=True) == (
        f"buffer huge: expected at most 268435456 bytes (max_buffer_size of {device.info.name}), got 268435460; "
        "try a smaller batch_size or model"
    )


def test_tensor_outside_its_buffer(device) -> None:
    program = doubled(device.limits, 10)
    program.tensors["y"] = dataclasses.replace(program.tensors["y"], range=Range("b.y", 256, 40))
    assert refused(DeviceError, runtime.GpuExecutor, program, device, keep_device=True) == (
        "tensor y: expected a range inside buffer b.y of 256 bytes, got 40 bytes at 256"
    )


@pytest.mark.parametrize(("kind", "words"), [("OutOfMemory", "Out of Memory"), ("Internal", "Not enough memory left.")])
def test_no_room_in_memory_frees_what_was_made(kind: str, words: str, device, monkeypatch: pytest.MonkeyPatch) -> None:
    before = live()
    native, calls = device.native, 0

    def buffer(label: str, size: int, usage: int):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise translate(kind, words, f"buffer {label} of {size} bytes")
        return type(native).buffer(native, label, size, usage)

    monkeypatch.setattr(native, "buffer", buffer)
    assert refused(DeviceError, runtime.GpuExecutor, doubled(device.limits, 10), device, keep_device=True) == (
        f"buffer b.y of 256 bytes: expected room in the device's memory, got {words}; "
        "try a smaller batch_size; `scellis plan` prices it"
    )
    assert live() == before


# -- kernels --------------------------------------------------------------------------------------------------
def test_wgsl_with_an_unknown_name(place, device) -> None:
    kernel = good(device.limits)
    bad = dataclasses.replace(kernel, wgsl=kernel.wgsl.replace("* 2.0f", "* factor"))
    executor = place(one(device.limits, bad, A, B))
    text = refused(DeviceError, executor.run, "run")
    assert text.startswith(
        f"kernel {bad.key}: expected WGSL that the driver compiles, got Shader '{bad.key}' parsing error: "
    )
    assert "no definition in scope for identifier: `factor` | ┌─ wgsl:" in text
    assert refused(DeviceError, executor.run, "run") == text


def test_wgsl_that_writes_what_it_declared_read(place, device) -> None:
    kernel = good(device.limits)
    bad = dataclasses.replace(kernel, wgsl=kernel.wgsl.replace("read_write", "read"))
    text = refused(DeviceError, place(one(device.limits, bad, A, B)).run, "run")
    assert text.startswith(f"kernel {bad.key}: expected WGSL that the driver compiles, got Shader validation error: ")
    assert "writing to this location is not permitted" in text


def test_bindings_declared_otherwise_than_in_the_text(place, device) -> None:
    kernel = good(device.limits)
    bad = dataclasses.replace(kernel, bindings=tuple(dataclasses.replace(b, access="read") for b in kernel.bindings))
    text = refused(DeviceError, place(one(device.limits, bad, A, B)).run, "run")
    assert text.startswith(f"kernel {bad.key}: expected WGSL that the driver compiles, got ")
    assert "binding: 1" in text


def test_a_bad_kernel_among_good_ones_is_the_one_named(place, device) -> None:
    sketch = Sketch(device.limits)
    sketch.tensor("a", (8,))
    sketch.tensor("b", (8,))
    commands = [sketch.map(f"k{n}", "a", "b", plus("1.0f" if n != 5 else "oops")) for n in range(8)]
    before = live()
    executor = runtime.GpuExecutor(sketch.sequence("run", commands), device, keep_device=True)
    assert refused(DeviceError, executor.prepare).startswith(f"kernel {commands[5].kernel}: expected WGSL")
    executor.close()
    assert live() == before


@pytest.mark.parametrize(
    ("binds", "grid", "text"),
    [
        ((A,), (1, 1, 1), "expected 2 bindings, got 1"),
        ((A, A), (1, 1, 1), "expected one kind of access to buffer a, got read and read_write in one dispatch"),
        ((A, Range("c", 0, 4)), (1, 1, 1), "expected a buffer of this program, got 'c'"),
        (
            (A, Range("b", 512, 1024)),
            (1, 1, 1),
            "expected a range inside buffer b of 1024 bytes, got 1024 bytes at 512",
        ),
        ((A, Range("b", 4, 256)), (1, 1, 1), "expected offsets that are multiples of 256, got y at 4"),
        ((A, B), (65_536, 1, 1), "expected a grid of 1 to 65535 workgroups a dimension, got [65536, 1, 1]"),
    ],
)
def test_wrong_dispatches(place, device, binds, grid, text: str) -> None:
    kernel = good(device.limits)
    assert (
        refused(DeviceError, place(one(device.limits, kernel, *binds, grid=grid)).run, "run")
        == f"kernel {kernel.key}: {text}"
    )


def test_binding_above_the_limit(place, small_device) -> None:
    sketch = Sketch(small_device.limits)
    sketch.tensor("a", (1 << 18,))
    sketch.tensor("b", (1 << 18,))
    wide = Sketch(small_device.limits.with_(max_storage_buffer_binding_size=2 << 20))
    wide.tensor("a", (1 << 19,))
    wide.tensor("b", (1 << 19,))
    dispatch = wide.map("double", "a", "b", times("2.0f"))
    wide.program.limits = small_device.limits
    executor = place(wide.sequence("run", [dispatch]), small_device)
    assert refused(DeviceError, executor.run, "run") == (
        f"kernel {dispatch.kernel}: expected bindings of at most 1048576 bytes, got x of 2097152"
    )


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (Copy(A, Range("a", 512, 512)), "expected two buffers in a copy, got a onto itself"),
        (Copy(A, Range("b", 0, 512)), "expected one size in a copy, got 1024 and 512"),
        (Clear(Range("a", 2, 4)), "expected offsets and sizes that are multiples of 4, got 2 and 4"),
    ],
)
def test_wrong_copies(place, device, command, text: str) -> None:
    program = one(device.limits, good(device.limits), A, B)
    program.sequences["run"].commands[:] = [command]
    assert refused(DeviceError, place(program).run, "run") == f"sequence run: {text}"


def test_what_only_the_driver_refuses_names_the_kernel(place, device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program past our own checks (here: a grid too large for the device) still fails at its kernel."""
    monkeypatch.setattr(
        runtime.executor, "check_dispatch", lambda program, command, limits: program.kernels[command.kernel]
    )
    kernel = good(device.limits)
    executor = place(one(device.limits, kernel, A, B, grid=(70_000, 1, 1)))
    text = refused(DeviceError, executor.run, "run")
    assert text.startswith(
        f"sequence run: kernel {kernel.key} (matmul at blocks.0.q): expected a call that the driver accepts, got "
    )
    assert "70000" in text


# -- runs -----------------------------------------------------------------------------------------------------
def test_missing_input(place, device) -> None:
    executor = place(doubled(device.limits, 10))
    assert refused(DataError, executor.run, "run", {"z": np.zeros(10)}) == (
        "sequence run: expected an input 'x', got inputs ['z']"
    )


def test_input_of_another_shape(place, device) -> None:
    executor = place(doubled(device.limits, 10))
    assert refused(DataError, executor.run, "run", {"x": np.zeros((10, 1))}) == (
        "input x: expected shape [10], got [10, 1]"
    )


def test_unknown_names(place, device) -> None:
    executor = place(doubled(device.limits, 10))
    assert refused(DeviceError, executor.run, "rum") == (
        "sequence: expected a sequence of this program, got 'rum'; try one of: run"
    )
    assert refused(DataError, executor.read, "q") == (
        "tensor: expected a tensor of this program, got 'q'; try one of: x, y"
    )
    assert refused(DataError, executor.write, "q", np.zeros(10)) == (
        "tensor: expected a tensor of this program, got 'q'; try one of: x, y"
    )


def test_scalars(place, device) -> None:
    sketch = Sketch(device.limits)
    sketch.tensor("x", (4,))
    sketch.tensor("y", (4,))

    def body(module, i, x, y) -> str:
        return y.store(i, f"{x.load(i)} * {module.scalar('lr')} + f32({module.scalar('n', 'u32')})")

    executor = place(sketch.sequence("run", [sketch.map("scaled", "x", "y", body)]))
    assert (
        refused(DataError, executor.run, "run", {}, {"lr": 1.0})
        == "sequence run: expected a scalar 'n', got scalars ['lr']"
    )
    assert refused(DataError, executor.run, "run", {}, {"rate": 1.0}) == (
        "scalars: expected a scalar of this program, got 'rate'; try one of: lr, n"
    )
    assert (
        refused(DataError, executor.run, "run", {}, {"n": -1}) == "scalar n: expected a number that u32 holds, got -1"
    )
    assert (
        refused(DataError, executor.run, "run", {}, {"n": 0.5}) == "scalar n: expected a number that u32 holds, got 0.5"
    )
    assert refused(DataError, executor.run, "run", {}, {"lr": 1e39}) == (
        "scalar lr: expected a number that f32 holds, got 1e+39"
    )


@pytest.mark.parametrize(
    ("dtype", "given", "text"),
    [
        ("i32", np.array([0, 2**31]), "expected numbers from -2147483648 to 2147483647 (i32), got 2147483648"),
        ("u32", np.array([-1, 5]), "expected numbers from 0 to 4294967295 (u32), got -1"),
        ("bool", np.array([0, 2]), "expected numbers from 0 to 1 (bool), got 2"),
        (
            "i32",
            np.array([0.0, 1.0]),
            "expected whole numbers for i32, got an array of float64; try array.astype('int64')",
        ),
        ("f32", np.array([1e39, 0.0]), "expected numbers up to 3.40282e+38 (f32), got 1e+39"),
        ("f16", np.float32([1.0, -70000.0]), "expected numbers up to 65504 (f16), got -70000.0"),
        ("f32", np.array(["a", "b"]), "expected numbers for f32, got an array of <U1"),
        ("f32", np.zeros(3), "expected shape [2], got [3]"),
    ],
)
def test_wrong_arrays(place, device, dtype: str, given: np.ndarray, text: str) -> None:
    sketch = Sketch(device.limits)
    sketch.tensor("t", (2,), dtype)
    assert refused(DataError, place(sketch.sequence("none", [])).write, "t", given) == f"tensor t: {text}"


def test_outputs_that_another_sequence_may_have_overwritten(place, device) -> None:
    program = doubled(device.limits, 10)
    program.sequences["other"] = dataclasses.replace(program.sequences["run"], name="other")
    executor = place(program)
    assert refused(DeviceError, executor.outputs, "run") == (
        "outputs: expected those of the sequence that ran last, got outputs of run, which has not run"
    )
    executor.run("run", {"x": np.zeros(10)})
    executor.run("other", {"x": np.zeros(10)})
    assert refused(DeviceError, executor.start_readback, "run") == (
        "outputs: expected those of the sequence that ran last, got outputs of run after other"
    )


def test_profile_without_timestamps(device) -> None:
    bare = runtime.Device(device.info, device.limits, (), device.native)
    executor = runtime.GpuExecutor(doubled(device.limits, 10), bare, keep_device=True)
    assert refused(DeviceError, executor.profile, "run", {"x": np.zeros(10)}) == (
        f"device {device.info.name}: expected the feature timestamp-query, got a device without it; "
        "try timing whole runs"
    )
    executor.close()


# -- loss and words -------------------------------------------------------------------------------------------
def test_a_lost_device() -> None:
    device = runtime.open_device(limits=Limits())
    executor = runtime.GpuExecutor(doubled(device.limits, 10), device)
    executor.run("run", {"x": np.zeros(10)})
    handle = executor.start_readback("run")
    device.native._owner.destroy()
    expected = "expected a device that is still there, got "
    assert expected in refused(DeviceError, executor.run, "run", {"x": np.ones(10)})
    assert expected in refused(DeviceError, executor._replays["run"].submit)
    assert expected in refused(DeviceError, executor.sync)
    assert expected in refused(DeviceError, executor.read, "y")
    assert expected in refused(DeviceError, executor.write, "x", np.zeros(10))
    assert refused(DeviceError, executor.outputs, "run").endswith(
        "; try `scellis resume`, after a look at the driver's log"
    )
    assert expected in refused(DeviceError, handle.result)
    executor.close()


def test_a_closed_device() -> None:
    device = runtime.open_device(limits=Limits())
    executor = runtime.GpuExecutor(doubled(device.limits, 10), device, keep_device=True)
    executor.run("run", {"x": np.zeros(10)})
    device.close()
    assert (
        refused(DeviceError, executor.write, "x", np.zeros(10))
        == "tensor x: expected an open device, got one that was closed"
    )
    assert "one that was closed" in refused(DeviceError, executor.sync)
    assert "one that was closed" in refused(DeviceError, executor.outputs, "run")
    executor.close()


def test_driver_words_are_few_and_telling() -> None:
    message = (
        "Validation Error\n\nCaused by:\n  In wgpuDeviceCreateShaderModule, label = 'k'\n\n"
        "Shader 'k' parsing error: no definition in scope for identifier: `q`\n  ┌─ wgsl:1:1\n  │\n1 │ let x = q;\n"
        "  │         ^ unknown identifier\n\n" + "more\n" * 50
    )
    assert driver_words(message) == (
        "Shader 'k' parsing error: no definition in scope for identifier: `q` | ┌─ wgsl:1:1 | 1 │ let x = q; | "
        "│         ^ unknown identifier"
    )
    assert driver_words("Validation Error") == "Validation Error"
    assert len(driver_words("x" * 1000)) == 160


def test_refusals_write_no_log(
    place, device, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    kernel = good(device.limits)
    bad = dataclasses.replace(kernel, wgsl=kernel.wgsl.replace("* 2.0f", "* factor"))
    with caplog.at_level(logging.DEBUG, "root"):
        refused(DeviceError, place(one(device.limits, bad, A, B)).run, "run")
    assert not caplog.records
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err == ""
