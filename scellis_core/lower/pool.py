"""Pooling over NCHW images, and its gradients.

Gradients are in gather form: each pixel looks at the windows that cover it, in order, so the sums are the same on
every run and no atomics are needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from scellis_core.errors import DeviceError
from scellis_core.lower.call import Call, finish
from scellis_core.lower.program import Limits
from scellis_core.lower.wgsl import Mem, Module

NAN_TEST = "fn is_nan_f32(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }"


@dataclass(frozen=True)
class PoolSpec:
    """Pooling of n * c planes.

    Attributes:
        planes: n * c.
        h, w: of a plane.
        window, stride: (rows, columns).
        padding: (top, bottom, left, right). Padding never wins a maximum; in an average it counts as zeros where
            ``count_include_pad``, else not at all.
        count_include_pad: averages only.
        x_dtype, y_dtype: of image and result (or of their gradients).
        accumulate: a gradient is added to what ``out`` holds.
    """

    planes: int
    h: int
    w: int
    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    count_include_pad: bool = True
    x_dtype: str = "f32"
    y_dtype: str = "f32"
    accumulate: bool = False

    @property
    def oh(self) -> int:
        """Rows of the result."""
        return (self.h + self.padding[0] + self.padding[1] - self.window[0]) // self.stride[0] + 1

    @property
    def ow(self) -> int:
        """Columns of the result."""
        return (self.w + self.padding[2] + self.padding[3] - self.window[1]) // self.stride[1] + 1

    def check(self) -> None:
        """Check the spec.

        Raises:
            DeviceError: if a window would lie in the padding alone, or the result is empty.
        """
        top, bottom, left, right = self.padding
        if max(top, bottom) >= self.window[0] or max(left, right) >= self.window[1]:
            raise DeviceError("pool2d", "padding smaller than the window", f"{self.padding} and {self.window}")
        if min(self.oh, self.ow) < 1:
            raise DeviceError("pool2d", "a window that fits the padded image", f"{self.oh} x {self.ow} results")


def _f32(mem: Mem, index: str) -> str:
    value = mem.load(index)
    return value if mem.dtype == "f32" else f"f32({value})"


def _cast(dtype: str, value: str) -> str:
    return value if dtype == "f32" else f"f16({value})"


def _wrapped(value: int) -> str:
    return f"{value % (1 << 32)}u"


def _position(spec: PoolSpec, size: tuple[int, int]) -> list[str]:
    """Statements: plane, row and column of flat index ``i`` in planes of that size."""
    h, w = size
    return [
        f"let plane = i / {h * w}u;",
        f"let row = (i / {w}u) % {h}u;",
        f"let col = i % {w}u;",
        f"let base = plane * {spec.h * spec.w}u;",
    ]


def _best(spec: PoolSpec, x: Mem) -> str:
    """WGSL function: place of the first maximum of a window, as an offset into its plane; NaN counts as largest."""
    return f"""fn best_place(base: u32, oh: u32, ow: u32) -> u32 {{
  var place = 0u;
  var best = 0.0f;
  var any = false;
  for (var i = 0u; i < {spec.window[0]}u; i++) {{
    for (var j = 0u; j < {spec.window[1]}u; j++) {{
      let h = oh * {spec.stride[0]}u + i + {_wrapped(-spec.padding[0])};
      let w = ow * {spec.stride[1]}u + j + {_wrapped(-spec.padding[2])};
      if (h < {spec.h}u && w < {spec.w}u) {{
        let v = {_f32(x, f"base + h * {spec.w}u + w")};
        let wins = is_nan_f32(v) || (!is_nan_f32(best) && v > best);
        if (!any || wins) {{
          best = v;
          place = h * {spec.w}u + w;
          any = true;
        }}
      }}
    }}
  }}
  return place;
}}"""


def _each(module: Module, count: int, lines: list[str], op: str) -> Call:
    gi, grid = module.linear(count)
    body = [f"  let i = {gi};", f"  if (i < {count}u) {{", *(f"    {x}" for x in lines), "  }"]
    return finish(module, "\n".join(body), grid, op=op)


def max_pool2d_calls(spec: PoolSpec, limits: Limits) -> list[Call]:
    """The largest element of each window. Operand keys: ``x``, ``out``.

    Raises:
        DeviceError: if the spec is not legal or too many bindings are needed.
    """
    spec.check()
    m = Module("max_pool2d", limits)
    x = m.tensor("x", spec.x_dtype, spec.planes * spec.h * spec.w, "read")
    count = spec.planes * spec.oh * spec.ow
    out = m.tensor("out", spec.y_dtype, count, "read_write")
    m.add_function(NAN_TEST)
    m.add_function(_best(spec, x))
    lines = _position(spec, (spec.oh, spec.ow))
    lines += ["let place = best_place(base, row, col);", f"let v = {_f32(x, 'base + place')};"]
    return [_each(m, count, [*lines, out.store("i", _cast(spec.y_dtype, "v"))], "max_pool2d")]


def _covering(spec: PoolSpec, inner: list[str]) -> list[str]:
    """Statements: run ``inner`` for each window (``oh``, ``ow``) over the pixel (``row``, ``col``), in order."""
    out: list[str] = []
    for axis, at, k, s, low, size in (
        ("h", "row", spec.window[0], spec.stride[0], spec.padding[0], spec.oh),
        ("w", "col", spec.window[1], spec.stride[1], spec.padding[2], spec.ow),
    ):
        out += [
            f"let at_{axis} = {at} + {low}u;",
            f"let first_{axis} = select(0u, (at_{axis} - {k}u) / {s}u + 1u, at_{axis} >= {k}u);",
            f"let last_{axis} = min(at_{axis} / {s}u + 1u, {size}u);",
        ]
    return [
        *out,
        "var acc = 0.0f;",
        "for (var oh = first_h; oh < last_h; oh++) {",
        "  for (var ow = first_w; ow < last_w; ow++) {",
        *(f"    {x}" for x in inner),
        "  }",
        "}",
    ]


def _gradient(spec: PoolSpec, m: Module, out: Mem, inner: list[str], op: str) -> Call:
    lines = [*_position(spec, (spec.h, spec.w)), *_covering(spec, inner)]
    if spec.accumulate:
        lines.append(f"acc += {_f32(out, 'i')};")
    count = spec.planes * spec.h * spec.w
    return _each(m, count, [*lines, out.store("i", _cast(spec.x_dtype, "acc"))], op)


def max_pool2d_grad_calls(spec: PoolSpec, limits: Limits) -> list[Call]:
    """The first maximum of each window, in window order, takes its gradient. Operand keys: ``x``, ``g``, ``out``.

    Raises:
        DeviceError: if the spec is not legal or too many bindings are needed.
    """
    spec.check()
    m = Module("max_pool2d_grad", limits)
    x = m.tensor("x", spec.x_dtype, spec.planes * spec.h * spec.w, "read")
    g = m.tensor("g", spec.y_dtype, spec.planes * spec.oh * spec.ow, "read")
    out = m.tensor("out", spec.x_dtype, spec.planes * spec.h * spec.w, "read_write")
    m.add_function(NAN_TEST)
    m.add_function(_best(spec, x))
    at = f"plane * {spec.oh * spec.ow}u + oh * {spec.ow}u + ow"
    inner = [
        "let place = best_place(base, oh, ow);",
        f"if (place == row * {spec.w}u + col) {{ acc += {_f32(g, at)}; }}",
    ]
    return [_gradient(spec, m, out, inner, "max_pool2d_grad")]


def _divisor(spec: PoolSpec) -> list[str]:
    """Statements: ``weight`` = 1 / elements that the window (``oh``, ``ow``) averages."""
    kh, kw = spec.window
    if spec.count_include_pad or not any(spec.padding):
        return [f"let weight = {1.0 / (kh * kw)!r}f;"]
    top, _, left, _ = spec.padding
    return [
        f"let low_h = max(oh * {spec.stride[0]}u, {top}u);",
        f"let high_h = min(oh * {spec.stride[0]}u + {kh}u, {top + spec.h}u);",
        f"let low_w = max(ow * {spec.stride[1]}u, {left}u);",
        f"let high_w = min(ow * {spec.stride[1]}u + {kw}u, {left + spec.w}u);",
        "let weight = 1.0f / f32((high_h - low_h) * (high_w - low_w));",
    ]


def avg_pool2d_calls(spec: PoolSpec, limits: Limits) -> list[Call]:
    """The mean of each window. Operand keys: ``x``, ``out``.

    Raises:
        DeviceError: if the spec is not legal or too many bindings are needed.
    """
    spec.check()
    m = Module("avg_pool2d", limits)
    x = m.tensor("x", spec.x_dtype, spec.planes * spec.h * spec.w, "read")
    count = spec.planes * spec.oh * spec.ow
    out = m.tensor("out", spec.y_dtype, count, "read_write")
    lines = [
        *_position(spec, (spec.oh, spec.ow)),
        "let oh = row;",
        "let ow = col;",
        "var acc = 0.0f;",
        f"for (var a = 0u; a < {spec.window[0]}u; a++) {{",
        f"  let h = oh * {spec.stride[0]}u + a + {_wrapped(-spec.padding[0])};",
        f"  for (var b = 0u; b < {spec.window[1]}u; b++) {{",
        f"    let w = ow * {spec.stride[1]}u + b + {_wrapped(-spec.padding[2])};",
        f"    if (h < {spec.h}u && w < {spec.w}u) {{ acc += {_f32(x, f'base + h * {spec.w}u + w')}; }}",
        "  }",
        "}",
        *_divisor(spec),
        out.store("i", _cast(spec.y_dtype, "(acc * weight)")),
    ]
    return [_each(m, count, lines, "avg_pool2d")]


def avg_pool2d_grad_calls(spec: PoolSpec, limits: Limits) -> list[Call]:
    """Each window spreads its gradient evenly. Operand keys: ``g``, ``out``.

    Raises:
        DeviceError: if the spec is not legal or too many bindings are needed.
    """
    spec.check()
    m = Module("avg_pool2d_grad", limits)
    g = m.tensor("g", spec.y_dtype, spec.planes * spec.oh * spec.ow, "read")
    out = m.tensor("out", spec.x_dtype, spec.planes * spec.h * spec.w, "read_write")
    at = f"plane * {spec.oh * spec.ow}u + oh * {spec.ow}u + ow"
    return [_gradient(spec, m, out, [*_divisor(spec), f"acc += {_f32(g, at)} * weight;"], "avg_pool2d_grad")]
