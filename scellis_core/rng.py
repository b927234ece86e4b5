"""Philox4x32-10 with named streams: in integers, in NumPy and in WGSL; the same bits everywhere.

A draw is a pure function of (seed, stream, counter). The key of a stream comes from the seed and the stream's name; a
block of four u32 words comes from the key and a 64-bit counter, whose words are ``(low, high, 0, 0)``. Element ``i``
of a draw at counter ``c`` is word ``i % 4`` of block ``c + i // 4``. In a step program ``c`` is the run's counter plus
the offset of the draw, and every micro step moves the run's counter by the same stride, so that one number is the
whole state. Counters wrap at 2^64.

Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
https://doi.org/10.1145/2063384.2063405.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALGORITHM = "philox4x32"
"""How checkpoints name it."""

ROUNDS = 10
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK, _MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

PHILOX_WGSL = """\
fn philox_mul(a: u32, b: u32) -> vec2<u32> {
  let al = a & 0xffffu;
  let ah = a >> 16u;
  let bl = b & 0xffffu;
  let bh = b >> 16u;
  let low = al * bl;
  let mid = ah * bl + (low >> 16u);
  let rest = al * bh + (mid & 0xffffu);
  return vec2<u32>(a * b, ah * bh + (mid >> 16u) + (rest >> 16u));
}
fn philox4x32(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
  var c = counter;
  var k = key;
  for (var i = 0u; i < 10u; i++) {
    let m0 = philox_mul(0xd2511f53u, c.x);
    let m1 = philox_mul(0xcd9e8d57u, c.z);
    c = vec4<u32>(m1.y ^ c.y ^ k.x, m1.x, m0.y ^ c.w ^ k.y, m0.x);
    k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}"""
"""The same function in WGSL, which has no 64-bit multiply: ``philox_mul`` is (low, high) of a product, by halves."""


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """One block in plain integers.

    Args:
        counter: four u32 words.
        key: two u32 words.

    Returns:
        Four u32 words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def philox_numpy(counter: NDArray[Any], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Many blocks at once: u32[n, 4] -> u32[n, 4]."""
    import numpy as np

    c0, c1, c2, c3 = (counter[:, i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    mask, shift = np.uint64(_MASK), np.uint64(32)
    for _ in range(ROUNDS):
        p0, p1 = c0 * np.uint64(_M0), c2 * np.uint64(_M1)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & mask, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & mask
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def stream_key(seed: int, stream: str) -> tuple[int, int]:
    """The key of a named stream: the first eight bytes of SHA-256 over ``scellis:<seed>:<stream>`` in UTF-8.

    Args:
        seed: of the run, at least 0.
        stream: ``init``, ``dropout``, ``shuffle``, ``augment`` or any name a block chose.

    Returns:
        Two u32 words, each little-endian.
    """
    raw = hashlib.sha256(f"scellis:{seed}:{stream}".encode()).digest()
    return int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:8], "little")


def words(key: tuple[int, int], counter: int, n: int) -> list[int]:
    """The first ``n`` words under a key from block ``counter`` on, in plain integers: what :func:`draw` gives."""
    found: list[int] = []
    for block in range(counter, counter + blocks_of(n)):
        found += philox4x32((block & _MASK, (block >> 32) & _MASK, 0, 0), key)
    return found[:n]


def blocks_of(n: int) -> int:
    """Blocks that ``n`` words take: by so much a draw moves the counter."""
    return -(-n // 4)


def draw(key: tuple[int, int], counter: int, n: int) -> NDArray[np.uint32]:
    """u32[n] random words under a key from block ``counter`` on."""
    import numpy as np

    blocks = np.arange(blocks_of(n), dtype=np.uint64) + np.uint64(counter & _MASK64)
    counters = np.zeros((len(blocks), 4), np.uint32)
    counters[:, 0] = blocks & np.uint64(_MASK)
    counters[:, 1] = blocks >> np.uint64(32)
    return philox_numpy(counters, key).reshape(-1)[:n]


def bits(seed: int, stream: str, counter: int, n: int) -> NDArray[np.uint32]:
    """u32[n] random words of a stream from block ``counter`` on."""
    return draw(stream_key(seed, stream), counter, n)


def uniform(seed: int, stream: str, counter: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """f32[shape] in [0, 1), 24 bits each: the same values that a kernel draws."""
    import numpy as np

    drawn = bits(seed, stream, counter, math.prod(shape)) >> np.uint32(8)
    return (drawn.astype(np.float32) * np.float32(2.0**-24)).reshape(shape)


def uniform64(seed: int, stream: str, counter: int, n: int) -> NDArray[np.float64]:
    """f64[n] in [0, 1), 53 bits each, from two words: 27 bits of the first above 26 of the second."""
    import numpy as np

    drawn = bits(seed, stream, counter, 2 * n).reshape(n, 2).astype(np.uint64)
    high, low = drawn[:, 0] >> np.uint64(5), drawn[:, 1] >> np.uint64(6)
    return ((high << np.uint64(26)) | low).astype(np.float64) * 2.0**-53


def normal(seed: int, stream: str, counter: int, n: int) -> NDArray[np.float64]:
    """f64[n] standard normal by Box-Muller: each block gives two uniforms, and those two numbers.

    The words are the same everywhere; the last bit of logarithm and cosine is the platform's.
    """
    import numpy as np

    pairs = uniform64(seed, stream, counter, 2 * ((n + 1) // 2)).reshape(-1, 2)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[:, 0]))
    angle = 2.0 * np.pi * pairs[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:n]


def permutation(seed: int, stream: str, counter: int, n: int) -> NDArray[np.int64]:
    """i64[n]: 0 .. n - 1 in the order of their 64-bit keys, equal keys by index.

    The key of ``i`` is ``words[2 i] << 32 | words[2 i + 1]``; so a permutation takes ``ceil(n / 2)`` blocks.
    """
    import numpy as np

    drawn = bits(seed, stream, counter, 2 * n).reshape(n, 2).astype(np.uint64)
    return np.argsort((drawn[:, 0] << np.uint64(32)) | drawn[:, 1], kind="stable")
