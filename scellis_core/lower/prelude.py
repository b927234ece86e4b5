"""WGSL helper functions that generated kernels call, by name.

Drivers differ in what ``tanh``, ``pow`` or a test for NaN does at the edges (NaN from ``tanh`` above 88, folded
``x != x``), and have no ``erf``, ``expm1`` or ``log1p`` at all. These are accurate to a few units in the last
place of f32, let NaN through where it comes in, and hold no NaN or infinity as a constant. They work in f32; f16
operands are widened around the call. ``philox`` is the random generator.
"""

from __future__ import annotations

from scellis_core.errors import IRError, nearest
from scellis_core.rng import PHILOX_WGSL

PRELUDE: dict[str, str] = {
    "isfinite": """\
fn sc_isfinite(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}""",
    # Taylor series to x^8 / 8! below 0.5 (remainder 1e-8 relative), else the difference, which loses no more
    # than two bits there.
    "expm1": """\
fn sc_expm1(x: f32) -> f32 {
  var p = 2.4801587e-5f;
  p = p * x + 1.9841270e-4f;
  p = p * x + 1.3888889e-3f;
  p = p * x + 8.3333333e-3f;
  p = p * x + 4.1666667e-2f;
  p = p * x + 1.6666667e-1f;
  p = p * x + 0.5f;
  let near = p * x * x + x;
  return select(exp(x) - 1.0f, near, abs(x) < 0.5f);
}""",
    # 2 atanh(s) with s = x / (2 + x) where 1 + x lies in [0.7, 1.42]; (1 + x) - 1 is not used, since compilers
    # fold it to x.
    "log1p": """\
fn sc_log1p(x: f32) -> f32 {
  let s = x / (2.0f + x);
  let q = s * s;
  var p = 9.0909091e-2f;
  p = p * q + 1.1111111e-1f;
  p = p * q + 1.4285714e-1f;
  p = p * q + 0.2f;
  p = p * q + 3.3333333e-1f;
  let near = 2.0f * s + 2.0f * s * q * p;
  return select(log(1.0f + x), near, x > -0.3f && x < 0.42f);
}""",
    # tanh |x| = -e / (2 + e) with e = expm1(-2 |x|) in [-1, 0]: nothing overflows.
    "tanh": """\
fn sc_tanh(x: f32) -> f32 {
  let e = sc_expm1(-2.0f * abs(x));
  let t = -e / (2.0f + e);
  return select(-t, t, x >= 0.0f);
}""",
    # exp of a number that is never positive.
    "sigmoid": """\
fn sc_sigmoid(x: f32) -> f32 {
  let e = exp(-abs(x));
  let r = 1.0f / (1.0f + e);
  return select(e * r, r, x >= 0.0f);
}""",
    # |x| < 1: x times a polynomial in x^2; else 1 - exp(polynomial), from Chebyshev fits of erf(x) / x and of
    # log(erfc(x)) on [1, 4] in float64 (1.2e-9 and 1.1e-9 absolute before rounding; 1.4e-7 in f32).
    "erf": """\
fn sc_erf(x: f32) -> f32 {
  let a = abs(x);
  let s = a * a;
  var p = 7.8824971e-5f;
  p = p * s - 8.01885499e-4f;
  p = p * s + 5.18931194e-3f;
  p = p * s - 2.68543288e-2f;
  p = p * s + 1.12835975e-1f;
  p = p * s - 3.76126269e-1f;
  p = p * s + 1.12837917f;
  let b = select(a, 4.0f, a > 4.0f);
  var q = 1.85597617e-4f;
  q = q * b - 2.939941e-3f;
  q = q * b + 2.18070242e-2f;
  q = q * b - 1.0304163e-1f;
  q = q * b - 6.38220053e-1f;
  q = q * b - 1.12704381f;
  q = q * b - 3.52708271e-4f;
  let r = select(1.0f - exp(q), p * a, a < 1.0f);
  return select(-r, r, x >= 0.0f);
}""",
    # The nearest multiple of pi / 2 is taken off in three parts, of which the first two are short enough that their
    # products are exact up to 2^16 quarter turns; then Taylor series on [-pi / 4, pi / 4] (remainders 2e-9).
    "quarter": """\
fn sc_quarter(x: f32, turn: u32) -> f32 {
  let k = round(x * 0.63661977f);
  let r = ((x - k * 1.5703125f) - k * 4.837513e-4f) - k * 7.54979e-8f;
  let s = r * r;
  var p = 2.7557319e-6f;
  p = p * s - 1.9841270e-4f;
  p = p * s + 8.3333333e-3f;
  p = p * s - 1.6666667e-1f;
  let sine = p * s * r + r;
  var q = -2.7557319e-7f;
  q = q * s + 2.4801587e-5f;
  q = q * s - 1.3888889e-3f;
  q = q * s + 4.1666667e-2f;
  q = q * s - 0.5f;
  let cosine = q * s + 1.0f;
  let place = (bitcast<u32>(i32(k)) + turn) & 3u;
  let y = select(sine, cosine, (place & 1u) == 1u);
  return select(y, -y, place >= 2u);
}""",
    "sin": """\
fn sc_sin(x: f32) -> f32 {
  return sc_quarter(x, 0u);
}""",
    "cos": """\
fn sc_cos(x: f32) -> f32 {
  return sc_quarter(x, 1u);
}""",
    # IEEE pow: x^0 = 1; 0^y = 0 or infinite; a negative base has a value at whole exponents only (else NaN, from
    # the square root of a negative number at run time).
    "pow": """\
fn sc_pow(x: f32, y: f32) -> f32 {
  let a = abs(x);
  let whole = floor(y) == y;
  let half = y * 0.5f;
  let odd = whole && floor(half) != half;
  let safe = select(a, 1.0f, a == 0.0f);
  let m = exp2(y * log2(safe));
  let signed = select(m, -m, odd && x < 0.0f);
  let valued = select(signed, sqrt(x), x < 0.0f && !whole);
  let zero = select(0.0f, 1.0f / a, y < 0.0f);
  let based = select(valued, zero, a == 0.0f);
  return select(based, 1.0f, y == 0.0f);
}""",
    "philox4x32": PHILOX_WGSL,
    # The block's counter is (hi, lo) + offset + block as 64 bits.
    "philox": """\
fn philox(block: u32, offset: u32, lo: u32, hi: u32, key0: u32, key1: u32) -> vec4<u32> {
  let first = lo + offset;
  let low = first + block;
  let carry = select(0u, 1u, first < lo) + select(0u, 1u, low < first);
  return philox4x32(vec4<u32>(low, hi + carry, 0u, 0u), vec2<u32>(key0, key1));
}""",
}
"""Helper name -> WGSL text. ``philox`` and ``philox4x32`` are called by those names, the others as ``sc_<name>``."""

CALLS: dict[str, tuple[str, ...]] = {
    "tanh": ("expm1",),
    "sin": ("quarter",),
    "cos": ("quarter",),
    "philox": ("philox4x32",),
}
"""The helpers that a helper calls."""


def prelude(name: str) -> tuple[str, ...]:
    """The WGSL of a helper, after that of the helpers it calls.

    Raises:
        IRError: if there is no helper of that name.
    """
    if name not in PRELUDE:
        raise IRError("prelude", "a helper function", repr(name), nearest(name, PRELUDE))
    return (*(text for other in CALLS.get(name, ()) for text in prelude(other)), PRELUDE[name])
