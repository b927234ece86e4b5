"""Philox in WGSL gives the bits of the NumPy form: known answers, random vectors, counters that carry."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from scellis_core import rng
from scellis_core.lower.prelude import prelude

PI = "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1"
KNOWN = np.array(
    [
        [0, 0, 0, 0, 0, 0, 0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        [*[0xFFFFFFFF] * 6, 0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        [int(word, 16) for word in PI.split()],
    ],
    np.uint32,
)
"""Random123's vectors: counter, key, result."""

MAIN = """
@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4<u32>>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= arrayLength(&output)) { return; }
  let i = id.x * 6u;
  output[id.x] = CALL;
}
"""


@functools.cache
def device():
    wgpu = pytest.importorskip("wgpu")
    try:
        return wgpu.gpu.request_adapter_sync(power_preference="high-performance").request_device_sync()
    except RuntimeError as error:
        pytest.skip(f"no adapter: {error}")


def run(functions: str, call: str, rows: np.ndarray) -> np.ndarray:
    """Call a function with the six words of each row: u32[n, 6] -> u32[n, 4]."""
    dev = device()
    import wgpu

    module = dev.create_shader_module(code=functions + MAIN.replace("CALL", call), label="philox")
    pipeline = dev.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    source = dev.create_buffer_with_data(data=np.ascontiguousarray(rows), usage=wgpu.BufferUsage.STORAGE)
    target = dev.create_buffer(size=16 * len(rows), usage=wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC)
    group = dev.create_bind_group(
        layout=pipeline.get_bind_group_layout(0),
        entries=[{"binding": i, "resource": {"buffer": b}} for i, b in enumerate((source, target))],
    )
    encoder = dev.create_command_encoder()
    work = encoder.begin_compute_pass()
    work.set_pipeline(pipeline)
    work.set_bind_group(0, group)
    work.dispatch_workgroups(-(-len(rows) // 64))
    work.end()
    dev.queue.submit([encoder.finish()])
    return np.frombuffer(dev.queue.read_buffer(target), np.uint32).reshape(-1, 4)


@pytest.mark.device
def test_known_answers_and_random_vectors() -> None:
    drawn = np.random.default_rng(1).integers(0, 2**32, (4000, 6), dtype=np.uint32)
    rows = np.concatenate([KNOWN[:, :6], drawn])
    call = "philox4x32(vec4<u32>(input[i], input[i + 1u], input[i + 2u], input[i + 3u]),"
    call += " vec2<u32>(input[i + 4u], input[i + 5u]))"
    found = run(rng.PHILOX_WGSL, call, rows)
    np.testing.assert_array_equal(found[:3], KNOWN[:, 6:])
    expected = [rng.philox4x32(tuple(r[:4]), tuple(r[4:])) for r in drawn.tolist()]
    np.testing.assert_array_equal(found[3:], np.array(expected, np.uint32))


@pytest.mark.device
def test_blocks_of_a_kernel_carry_into_the_high_word() -> None:
    generator = np.random.default_rng(2)
    near = 2**32 - 1 - generator.integers(0, 6, (512, 3))
    high = generator.choice([0, 7, 2**32 - 1], (512, 1))
    rows = np.concatenate([near, high, generator.integers(0, 2**32, (512, 2))], axis=1).astype(np.uint32)
    rows[:64, 0], rows[64:128, 1] = np.arange(64), 0
    names = ("block", "offset", "lo", "hi", "key0", "key1")
    call = f"philox({', '.join(f'input[i + {k}u]' for k in range(len(names)))})"
    found = run("\n".join(prelude("philox")), call, rows)
    expected = [
        rng.words((k0, k1), (hi << 32 | lo) + offset + block, 4) for block, offset, lo, hi, k0, k1 in rows.tolist()
    ]
    np.testing.assert_array_equal(found, np.array(expected, np.uint32))
