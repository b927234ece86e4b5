"""Times the heavy kernel families on whatever device is there, beside PyTorch where it has CUDA.

    python benchmarks/kernels.py                         # every case, the tile that the cost model chooses
    python benchmarks/kernels.py --only 'mm 4096'        # cases whose name matches
    python benchmarks/kernels.py --variants --only mm    # every tile shape and several splits, best first
    python benchmarks/kernels.py --trusted               # without the driver-side bounds checks

Times are of the GPU itself (timestamp queries over many runs in one pass) where the adapter has them, else wall
clock. PyTorch runs in f32 without TF32. ``ratio`` is PyTorch's time over ours: above 1 we are faster. ``err`` is
the largest difference from PyTorch (or NumPy) over the largest value.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import wgpu

from scellis_core.errors import ScellisError
from scellis_core.lower.call import Call
from scellis_core.lower.conv import ConvSpec, conv2d_calls, conv2d_grad_input_calls, conv2d_grad_weight_calls
from scellis_core.lower.matmul import MatmulSpec, Strided, gemm_of, matmul_calls
from scellis_core.lower.program import Limits, Range
from scellis_core.lower.scatter import ScatterSpec, scatter_add_calls
from scellis_core.lower.tiles import CPU_FEATURE, CPU_TILES, GPU, Choice, Tile, candidates, cost, cpu_cost, is_cpu

try:
    import torch

    CUDA = torch.cuda.is_available()
except ImportError:
    torch = None
    CUDA = False

Arrays = dict[str, np.ndarray]


@dataclass
class Case:
    """One measured computation.

    Attributes:
        name: shown, and matched by ``--only``.
        make: (limits, choice or None) -> calls.
        operands: key -> (dtype, shape); ``out`` is written.
        flops: per run; 0 where bytes are what counts.
        bytes: moved at least, per run.
        theirs: the same in PyTorch, given its tensors by key.
        spec: for matmuls, so that variants can be listed.
    """

    name: str
    make: Callable[[Limits, Choice | None], list[Call]]
    operands: dict[str, tuple[str, tuple[int, ...]]]
    flops: float
    bytes: float
    theirs: Callable[[Any], Any]
    spec: MatmulSpec | None = None
    fill: Arrays = field(default_factory=dict)


def matmul_case(
    name: str,
    m: int,
    n: int,
    k: int,
    batch: tuple[int, ...] = (),
    ta: bool = False,
    tb: bool = False,
    dtype: str = "f32",
) -> Case:
    spec = MatmulSpec.dense(m, n, k, batch, transpose_a=ta, transpose_b=tb, dtype=dtype, out_dtype="f32")
    count = int(np.prod(batch)) if batch else 1

    def theirs(t: Any) -> Any:
        a, b = t["a"], t["b"]
        return torch.matmul(a.mT if ta else a, b.mT if tb else b)

    size = {"f32": 4, "f16": 2}[dtype]
    kind = "".join("T" if flag else "N" for flag in (ta, tb))
    return Case(
        f"{name} {kind}" + ("" if dtype == "f32" else f" {dtype}"),
        lambda limits, choice: matmul_calls(spec, limits, choice=choice),
        {
            "a": (dtype, (*batch, k, m) if ta else (*batch, m, k)),
            "b": (dtype, (*batch, n, k) if tb else (*batch, k, n)),
            "out": ("f32", (*batch, m, n)),
        },
        2.0 * m * n * k * count,
        count * (size * (m * k + k * n) + 4.0 * m * n),
        theirs,
        spec,
    )


def heads_case(b: int, h: int, t: int, d: int, scores: bool) -> Case:
    """Attention's two products on slices of a fused [b, t, 3, h, d] projection, written as heads."""
    step = 3 * h * d
    size = b * t * step

    def part(i: int, rows: int, columns: int) -> Strided:
        return Strided("f32", size, (t * step, d, rows, columns), offset=i * h * d)

    square = MatmulSpec.dense(t, t, d, (b, h)).out
    back = Strided("f32", b * t * h * d, (t * h * d, d, h * d, 1))
    if scores:
        spec = MatmulSpec(t, t, d, part(0, step, 1), part(1, 1, step), square, (b, h))
        operands = {"a": ("f32", (b, t, 3, h, d)), "b": ("f32", (b, t, 3, h, d)), "out": ("f32", (b, h, t, t))}
    else:
        spec = MatmulSpec(t, d, t, square, part(2, step, 1), back, (b, h))
        operands = {"a": ("f32", (b, h, t, t)), "b": ("f32", (b, t, 3, h, d)), "out": ("f32", (b, t, h, d))}

    def theirs(x: Any) -> Any:
        def heads(y: Any, i: int) -> Any:
            return y[:, :, i].transpose(1, 2)

        if scores:
            return torch.matmul(heads(x["a"], 0), heads(x["b"], 1).mT)
        return torch.matmul(x["a"], heads(x["b"], 2)).transpose(1, 2).contiguous()

    name = f"attention {'scores' if scores else 'mix'} {b}x{h} {t}x{d} strided"
    moved = 4.0 * (b * h * t * t + 2 * b * h * t * d)
    return Case(
        name,
        lambda limits, choice: matmul_calls(spec, limits, choice=choice),
        operands,
        2.0 * b * h * t * t * d,
        moved,
        theirs,
        spec,
    )


def conv_cases(name: str, s: ConvSpec) -> Iterator[Case]:
    x, w = (s.n, s.c, s.h, s.w), (s.o, s.cg, s.kh, s.kw)
    y = (s.n, s.o, s.oh, s.ow)
    flops = 2.0 * s.n * s.o * s.oh * s.ow * s.cg * s.taps
    top, _, left, _ = s.padding
    options: dict[str, Any] = {"stride": s.stride, "padding": (top, left), "dilation": s.dilation, "groups": s.groups}
    moved = 4.0 * (np.prod(x) + np.prod(w) + np.prod(y))
    yield Case(
        f"conv {name} forward",
        lambda limits, choice: conv2d_calls(s, limits, choice=choice),
        {"a": ("f32", w), "b": ("f32", x), "out": ("f32", y)},
        flops,
        moved,
        lambda t: torch.nn.functional.conv2d(t["b"], t["a"], **options),
    )
    yield Case(
        f"conv {name} grad_input",
        lambda limits, choice: conv2d_grad_input_calls(s, limits, choice=choice),
        {"a": ("f32", w), "b": ("f32", y), "out": ("f32", x)},
        flops,
        moved,
        lambda t: torch.nn.grad.conv2d_input(x, t["a"], t["b"], **options),
    )
    yield Case(
        f"conv {name} grad_weight",
        lambda limits, choice: conv2d_grad_weight_calls(s, limits, choice=choice),
        {"a": ("f32", y), "b": ("f32", x), "out": ("f32", w)},
        flops,
        moved,
        lambda t: torch.nn.grad.conv2d_weight(t["b"], w, t["a"], **options),
    )


def scatter_case(n: int, width: int, rows: int, skewed: bool = False) -> Case:
    spec = ScatterSpec(n, width, rows)
    rng = np.random.default_rng(1)
    idx = rng.integers(0, rows, n) if not skewed else np.minimum(rng.geometric(0.1, n) - 1, rows - 1)
    return Case(
        f"scatter_add {n} of {rows}x{width}" + (" skewed" if skewed else ""),
        lambda limits, choice: scatter_add_calls(spec, limits),
        {"idx": ("i32", (n,)), "src": ("f32", (n, width)), "out": ("f32", (rows, width))},
        0.0,
        4.0 * (n + n * width + rows * width),
        lambda t: torch.zeros((rows, width), device="cuda").index_add_(0, t["idx"].long(), t["src"]),
        fill={"idx": idx.astype(np.int32)},
    )


def cases(small: bool) -> Iterator[Case]:
    """All of them; ``small`` scales them for a CPU adapter."""
    if small:
        for ta, tb in ((False, False), (False, True), (True, False)):
            yield matmul_case("mm 256", 256, 256, 256, ta=ta, tb=tb)
            yield matmul_case("mm 32x128x64", 32, 128, 64, ta=ta, tb=tb)
            yield matmul_case("mm 64x10x128", 64, 10, 128, ta=ta, tb=tb)
        yield matmul_case("attention 8*4 64x64x32", 64, 64, 32, (8, 4), tb=True)
        yield from conv_cases("16x8x8x8->16 3x3", ConvSpec(16, 8, 8, 8, 16, 3, 3, padding=(1, 1, 1, 1)))
        yield scatter_case(512, 64, 256)
        return
    for size in (4096, 2048, 1024, 512):
        yield matmul_case(f"mm {size}", size, size, size)
    yield matmul_case("mm 4096", 4096, 4096, 4096, tb=True)
    yield matmul_case("mm 4096", 4096, 4096, 4096, ta=True)
    yield matmul_case("mm 4096", 4096, 4096, 4096, dtype="f16")
    yield matmul_case("mm 512x1024x1024", 512, 1024, 1024)
    yield matmul_case("tiny mlp", 2048, 512, 128)
    yield matmul_case("tiny mlp dx", 2048, 128, 512, tb=True)
    yield matmul_case("tiny mlp dw", 128, 512, 2048, ta=True)
    yield matmul_case("tiny proj", 2048, 128, 128)
    yield matmul_case("small mlp", 4096, 2048, 512)
    yield matmul_case("small mlp dx", 4096, 512, 2048, tb=True)
    yield matmul_case("small mlp dw", 512, 2048, 4096, ta=True)
    yield matmul_case("small proj", 4096, 512, 512)
    yield matmul_case("gpt2s mlp", 2048, 3072, 768)
    yield matmul_case("gpt2s mlp down", 2048, 768, 3072)
    yield matmul_case("gpt2s mlp dx", 2048, 768, 3072, tb=True)
    yield matmul_case("gpt2s mlp dw", 768, 3072, 2048, ta=True)
    yield matmul_case("gpt2s qkv", 2048, 2304, 768)
    yield matmul_case("gpt2s head", 2048, 50304, 768, tb=True)
    yield matmul_case("gpt2s head dx", 2048, 768, 50304)
    yield matmul_case("gpt2s head dw", 50304, 768, 2048, ta=True)
    yield matmul_case("attention 16*8 256x256x64", 256, 256, 64, (16, 8), tb=True)
    yield matmul_case("attention 16*8 256x64x256", 256, 64, 256, (16, 8))
    yield matmul_case("attention 16*8 256x64x256", 256, 64, 256, (16, 8), ta=True)
    yield heads_case(16, 8, 256, 64, True)
    yield heads_case(16, 8, 256, 64, False)
    yield heads_case(32, 4, 64, 32, True)
    yield heads_case(32, 4, 64, 32, False)
    yield matmul_case("skinny 1x4096x4096", 1, 4096, 4096)
    yield matmul_case("skinny 16x4096x4096", 16, 4096, 4096)
    yield matmul_case("skinny 4096x16x4096", 4096, 16, 4096)
    yield from conv_cases("32x64x56x56->64 3x3", ConvSpec(32, 64, 56, 56, 64, 3, 3, padding=(1, 1, 1, 1)))
    yield from conv_cases("32x256x14x14->256 3x3", ConvSpec(32, 256, 14, 14, 256, 3, 3, padding=(1, 1, 1, 1)))
    yield from conv_cases("32x3x224x224->64 7x7/2", ConvSpec(32, 3, 224, 224, 64, 7, 7, (2, 2), (3, 3, 3, 3)))
    yield from conv_cases(
        "32x128x28x28 depthwise 3x3", ConvSpec(32, 128, 28, 28, 128, 3, 3, padding=(1, 1, 1, 1), groups=128)
    )
    yield scatter_case(2048, 768, 50304)
    yield scatter_case(2048, 128, 256)
    yield scatter_case(2048, 128, 256, skewed=True)
    yield scatter_case(16384, 512, 1024)


GPU_VARIANTS = (
    Tile(64, 128, 16, 8, 8, wx=8),
    Tile(64, 128, 16, 8, 8, wx=4),
    Tile(64, 128, 8, 8, 8),
    Tile(64, 128, 8, 8, 8, double=True),
    Tile(64, 128, 8, 8, 8, wx=8, double=True),
    Tile(128, 64, 16, 8, 8, wx=8),
    Tile(128, 64, 8, 8, 8, double=True),
    Tile(128, 128, 16, 8, 8),
    Tile(128, 128, 8, 8, 8),
    Tile(128, 128, 8, 8, 8, wx=8),
    Tile(128, 128, 8, 8, 8, double=True),
    Tile(64, 64, 16, 8, 8),
    Tile(64, 64, 32, 8, 8),
    Tile(64, 64, 16, 8, 4, wx=8),
    Tile(64, 64, 16, 4, 8),
    Tile(64, 64, 8, 8, 4, double=True),
    Tile(64, 64, 32, 4, 4),
    Tile(32, 128, 16, 4, 8),
    Tile(32, 128, 16, 8, 8),
    Tile(32, 64, 32, 4, 4),
    Tile(32, 64, 16, 4, 8),
    Tile(64, 32, 32, 4, 4),
    Tile(32, 32, 16, 4, 4),
    Tile(32, 32, 16, 2, 4),
    Tile(32, 32, 32, 2, 4),
    Tile(16, 128, 16, 2, 8),
    Tile(16, 64, 16, 2, 4),
    Tile(16, 32, 32, 2, 4),
    Tile(64, 128, 4, 8, 8, shared=False),
    Tile(32, 64, 8, 4, 8, shared=False),
)


class Device:
    """A wgpu device, its limits, and timing on it."""

    def __init__(self, webgpu: bool, trusted: bool) -> None:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        self.info = dict(adapter.info)
        features = {"shader-f16", "timestamp-query"} & set(adapter.features)
        names = {
            "max-storage-buffer-binding-size",
            "max-buffer-size",
            "max-storage-buffers-per-shader-stage",
            "max-compute-invocations-per-workgroup",
            "max-compute-workgroup-size-x",
            "max-compute-workgroup-storage-size",
        }
        sizes = {n: adapter.limits[n] for n in names if n in adapter.limits}
        self.device = adapter.request_device_sync(required_features=features, required_limits=sizes)
        asked = {n.replace("-", "_"): v for n, v in sizes.items()}
        asked["max_storage_buffer_binding_size"] = min(asked["max_storage_buffer_binding_size"], 2**32 - 256)
        shown = ["shader-f16"] if "shader-f16" in features else []
        if self.info.get("adapter_type") == "CPU":
            shown.append(CPU_FEATURE)
        self.limits = Limits(features=tuple(shown)) if webgpu else Limits(**asked, features=tuple(shown))
        self.trusted = trusted
        self.queries = None
        if "timestamp-query" in features:
            self.queries = self.device.create_query_set(type=wgpu.QueryType.timestamp, count=2)
            self.period = self._period()
            use = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
            self.resolved = self.device.create_buffer(size=256, usage=use)
        use = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.STORAGE
        self.probe = self.device.create_buffer(size=4, usage=use)
        self.usage = use

    def _period(self) -> float:
        try:
            from wgpu.backends.wgpu_native import lib

            return float(lib.wgpuQueueGetTimestampPeriod(self.device.queue._internal))
        except (ImportError, AttributeError):
            return 1.0

    def module(self, call: Call) -> Any:
        if not self.trusted:
            return self.device.create_shader_module(code=call.kernel.wgsl, label=call.kernel.key)
        from wgpu.backends.wgpu_native import _api, lib

        plain = _api.libf.wgpuDeviceCreateShaderModule
        try:
            _api.libf.wgpuDeviceCreateShaderModule = lambda d, s: lib.wgpuDeviceCreateShaderModuleTrusted(d, s, 0)
            return self.device.create_shader_module(code=call.kernel.wgsl, label=call.kernel.key)
        finally:
            _api.libf.wgpuDeviceCreateShaderModule = plain

    def upload(self, array: np.ndarray) -> Any:
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        size = -(-data.size // 4) * 4
        buffer = self.device.create_buffer(size=size, usage=self.usage)
        for start in range(0, data.size, 1 << 26):
            part = data[start : start + (1 << 26)].tobytes()
            self.device.queue.write_buffer(buffer, start, part + bytes(-len(part) % 4))
        return buffer

    def wait(self) -> None:
        self.device.queue.read_buffer(self.probe)

    def prepare(self, calls: list[Call], buffers: dict[str, Any]) -> list[tuple[Any, Any, tuple[int, int, int]]]:
        ranges = {key: Range(key, 0, b.size) for key, b in buffers.items()}
        out: list[tuple[Any, Any, tuple[int, int, int]]] = []
        for call in calls:
            compute = {"module": self.module(call), "entry_point": "main"}
            pipeline = self.device.create_compute_pipeline(layout="auto", compute=compute)
            entries = [
                {"binding": i, "resource": {"buffer": buffers[r.buffer], "offset": r.offset, "size": r.size}}
                for i, r in enumerate(call.binds(ranges, self.limits))
            ]
            layout = pipeline.get_bind_group_layout(0)
            out.append((pipeline, self.device.create_bind_group(layout=layout, entries=entries), call.grid))
        return out

    def once(self, steps: list[tuple[Any, Any, tuple[int, int, int]]], repeats: int) -> float:
        """Seconds a run, over ``repeats`` runs in one pass."""
        encoder = self.device.create_command_encoder()
        writes = None
        if self.queries is not None:
            writes = {"query_set": self.queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
        run = encoder.begin_compute_pass(timestamp_writes=writes) if writes else encoder.begin_compute_pass()
        for _ in range(repeats):
            for pipeline, group, grid in steps:
                run.set_pipeline(pipeline)
                run.set_bind_group(0, group)
                run.dispatch_workgroups(*grid)
        run.end()
        if self.queries is not None:
            encoder.resolve_query_set(self.queries, 0, 2, self.resolved, 0)
        commands = encoder.finish()
        start = time.perf_counter()
        self.device.queue.submit([commands])
        self.wait()
        wall = (time.perf_counter() - start) / repeats
        if self.queries is not None:
            begin, end = struct.unpack("2Q", bytes(self.device.queue.read_buffer(self.resolved, 0, 16)))
            seconds = (end - begin) * self.period * 1e-9 / repeats
            if 0 < seconds <= wall * 1.05:
                return seconds
        return wall

    def measure(self, steps: list[tuple[Any, Any, tuple[int, int, int]]], budget: float) -> float:
        """Best of three timings of about ``budget`` seconds each, after a warm-up."""
        first = self.once(steps, 1)
        repeats = int(min(max(budget / max(first, 1e-6), 1), 400))
        return min(self.once(steps, repeats) for _ in range(3))


def make_arrays(case: Case) -> Arrays:
    rng = np.random.default_rng(0)
    block = rng.standard_normal(1 << 20).astype(np.float32)
    out: Arrays = {}
    for key, (dtype, shape) in case.operands.items():
        if key in case.fill:
            out[key] = case.fill[key]
        elif key != "out":
            kind = {"f32": np.float32, "f16": np.float16}[dtype]
            shift = rng.integers(0, block.size)
            out[key] = np.resize(np.roll(block, shift).astype(kind), shape)
    return out


def theirs(case: Case, arrays: Arrays, budget: float) -> tuple[float, Any]:
    """(seconds a run, result) of PyTorch."""
    tensors = {k: torch.from_numpy(a).cuda() for k, a in arrays.items()}
    if any(a.dtype == np.float16 for a in arrays.values()):
        tensors = {k: t.float() for k, t in tensors.items()}
    result = case.theirs(tensors)
    for _ in range(3):
        case.theirs(tensors)
    torch.cuda.synchronize()
    start = time.perf_counter()
    case.theirs(tensors)
    torch.cuda.synchronize()
    repeats = int(min(max(budget / max(time.perf_counter() - start, 1e-6), 3), 400))
    best = float("inf")
    for _ in range(3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeats):
            case.theirs(tensors)
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e-3 / repeats)
    return best, result


def error(got: np.ndarray, case: Case, arrays: Arrays, reference: Any) -> float | None:
    """Largest difference from the reference over its largest value."""
    if reference is not None:
        want = reference.float().reshape(-1)
        mine = torch.from_numpy(got).cuda().reshape(-1)
        return float((mine - want).abs().max() / want.abs().max())
    if case.spec is None or case.flops > 3e9 or case.spec.a.offset or case.spec.b.offset or "strided" in case.name:
        return None
    name = case.name.split(" f16")[0]
    a, b = (arrays[k].astype(np.float64) for k in "ab")
    want = (a.swapaxes(-1, -2) if name[-2] == "T" else a) @ (b.swapaxes(-1, -2) if name[-1] == "T" else b)
    return float(np.abs(got - want).max() / np.abs(want).max())


def rate(case: Case, seconds: float) -> str:
    if case.flops:
        return (
            f"{case.flops / seconds * 1e-12:7.2f} TFLOP/s"
            if case.flops / seconds > 1e11
            else (f"{case.flops / seconds * 1e-9:7.2f} GFLOP/s")
        )
    return f"{case.bytes / seconds * 1e-9:7.0f} GB/s   "


def variants(case: Case, limits: Limits, most: int) -> list[Choice | None]:
    """What to try for a case: the model's choice, then the tiles and splits that the model thinks best of."""
    if case.spec is None:
        return [None]
    g = gemm_of(case.spec)
    size = (g.m, g.n, g.k, g.batch)
    cpu = is_cpu(limits)
    shares: dict[Tile, float] = dict.fromkeys(CPU_TILES, 1.0) if cpu else dict(GPU.tiles)
    if not cpu:
        guess = {64: 0.74, 32: 0.6, 16: 0.48, 8: 0.36}
        shares |= {t: guess[t.tm * t.tn] for t in GPU_VARIANTS if t not in shares}
    priced: list[tuple[float, Choice]] = []
    for tile in candidates(limits, g.a.layout, g.b.layout, shares):
        for splits in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
            if splits > 1 and splits * tile.bk * 4 > g.k:
                break
            price = cpu_cost(tile, *size, splits) if cpu else cost(GPU, tile, shares[tile], *size, splits)
            priced.append((price, Choice(tile, splits)))
    priced.sort(key=lambda p: p[0])
    first: dict[Tile, Choice] = {}
    for _, choice in priced:
        first.setdefault(choice.tile, choice)
    ranked = [*first.values(), *(c for _, c in priced if c not in first.values())]
    return [None, *ranked[:most]]


def label(calls: list[Call]) -> str:
    name = calls[0].kernel.name
    return re.sub(r"^(matmul|conv2d(_grad_\w+?)?)_(?=\d)", "", name)


def run_case(device: Device, case: Case, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    arrays = make_arrays(case)
    buffers = {key: device.upload(a) for key, a in arrays.items()}
    _, shape = case.operands["out"]
    buffers["out"] = device.device.create_buffer(size=4 * int(np.prod(shape)), usage=device.usage)
    other, reference = None, None
    if CUDA and not args.no_torch:
        try:
            other, reference = theirs(case, arrays, args.budget)
        except Exception as problem:  # noqa: BLE001  (a benchmark goes on without its neighbour)
            print(f"  PyTorch failed on {case.name}: {problem}", flush=True)
    made: dict[str, Any] = {}
    for choice in variants(case, device.limits, args.most) if args.variants else [None]:
        if choice and time.perf_counter() > args.deadline:
            print(f"  out of time in {case.name}", flush=True)
            break
        if choice and args.tiles and not re.search(args.tiles, str(choice.tile)):
            continue
        try:
            calls = case.make(device.limits, choice)
            for key, _, numel in (s for c in calls for s in c.scratch):
                if key not in made or made[key].size < 4 * numel:
                    made[key] = device.device.create_buffer(size=4 * numel, usage=device.usage)
            start = time.perf_counter()
            exact = dict(made)
            steps = device.prepare(calls, {**buffers, **exact})
            compile_time = time.perf_counter() - start
            seconds = device.measure(steps, args.budget)
            err = None
            if not args.no_check:
                raw = device.device.queue.read_buffer(buffers["out"])
                err = error(np.frombuffer(raw, np.float32).reshape(shape).copy(), case, arrays, reference)
        except (ScellisError, wgpu.GPUError) as problem:
            print(f"  {case.name} {choice}: {str(problem)[:200]}", flush=True)
            continue
        yield {
            "case": case.name,
            "kernel": label(calls),
            "chosen": choice is None,
            "ms": seconds * 1e3,
            "rate": rate(case, seconds),
            "torch_ms": None if other is None else other * 1e3,
            "ratio": None if other is None else other / seconds,
            "err": err,
            "compile_s": compile_time,
        }


def row(r: dict[str, Any]) -> str:
    other = "" if r["torch_ms"] is None else f"{r['torch_ms']:9.4f} {r['ratio']:6.2f}"
    err = "" if r["err"] is None else f"{r['err']:8.1e}" + ("  WRONG" if not r["err"] < 1e-3 else "")
    mark = "*" if r["chosen"] else " "
    return f"{mark}{r['case']:<38} {r['kernel']:<26} {r['ms']:9.4f} {r['rate']} {other:>16} {r['compile_s']:6.2f} {err}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression over case names")
    parser.add_argument("--variants", action="store_true", help="try every tile shape")
    parser.add_argument("--tiles", default="", help="with --variants: regular expression over tile names")
    parser.add_argument("--most", type=int, default=28, help="with --variants: how many are tried a case")
    parser.add_argument("--top", type=int, default=6, help="with --variants: rows shown a case, best first")
    parser.add_argument("--budget", type=float, default=0.03, help="seconds a timing (three each)")
    parser.add_argument("--limit", type=float, default=540.0, help="stop starting cases after so many seconds")
    parser.add_argument("--webgpu", action="store_true", help="generate for WebGPU's default limits")
    parser.add_argument("--trusted", action="store_true", help="compile without run-time bounds checks (wgpu-native)")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--json", default="", help="write all rows there")
    args = parser.parse_args()
    started = time.perf_counter()
    args.deadline = started + args.limit
    device = Device(args.webgpu, args.trusted)
    if CUDA:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    clock = "timestamps" if device.queries is not None else "wall clock"
    beside = f"PyTorch {torch.__version__} f32" if CUDA and not args.no_torch else "no PyTorch with CUDA"
    print(f"{device.info.get('device')} ({device.info.get('description')}); {clock}; {beside}")
    print(f" {'case':<38} {'tile':<26} {'ms':>9} {'rate':>15} {'torch ms  ratio':>16} {'comp s':>6} err")
    rows: list[dict[str, Any]] = []
    for case in cases(is_cpu(device.limits)):
        if not re.search(args.only, case.name):
            continue
        if time.perf_counter() - started > args.limit:
            print(f"stopped at {args.limit:.0f} s before {case.name}")
            break
        try:
            here = list(run_case(device, case, args))
        except Exception as problem:  # noqa: BLE001  (one case must not end the table)
            print(f"  {case.name}: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
            continue
        rows += here
        best = sorted(here, key=lambda r: r["ms"])[: args.top] if args.variants else here
        shown = best + [r for r in here if r["chosen"] and r not in best]
        for r in shown:
            print(row(r), flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"device": {k: str(v) for k, v in device.info.items()}, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
