"""scatter_add without float atomics: sources are sorted by row, then each row sums its own in source order.

Two dispatches. The first gives every source its rank by (row, position): the count of sources that come before it.
That is quadratic in the number of sources, yet far below the cost of the model that made them (2,048 tokens: four
million comparisons). The second finds each row's run by bisection, sums it in f32 in ascending source position and
writes zeros where the run is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from scellis_core.lower.call import Call, finish
from scellis_core.lower.program import Limits
from scellis_core.lower.wgsl import Module

RANKED = 16
"""Sources ranked by one workgroup."""
PARTS = 16
"""Threads that share the counting for one source."""
RUN = 8
"""Sources loaded at a time before they are added in order."""


@dataclass(frozen=True)
class ScatterSpec:
    """out[r, :] = sum of src[i, :] over the i with idx[i] == r, in ascending i.

    Attributes:
        n: sources; an index outside [0, rows) is left out.
        width: elements of a row.
        rows: of the result.
        idx_dtype: i32 or u32.
        src_dtype, out_dtype: f32 or f16; sums are f32.
        accumulate: add to what ``out`` holds, touching only rows that have sources.
    """

    n: int
    width: int
    rows: int
    idx_dtype: str = "i32"
    src_dtype: str = "f32"
    out_dtype: str = "f32"
    accumulate: bool = False


def scatter_add_calls(spec: ScatterSpec, limits: Limits) -> list[Call]:
    """Both dispatches. Operand keys: ``idx``, ``src``, ``out``; scratch ``ws_keys`` and ``ws_order``.

    Raises:
        DeviceError: if too many bindings are needed.
    """
    return [_rank(spec, limits), _sum(spec, limits)]


def _rank(spec: ScatterSpec, limits: Limits) -> Call:
    n = spec.n
    m = Module("scatter_rank", limits)
    idx = m.tensor("idx", spec.idx_dtype, n, "read")
    keys = m.tensor("ws_keys", "u32", n, "read_write")
    order = m.tensor("ws_order", "u32", n, "read_write")
    m.workgroup = (RANKED * PARTS, 1, 1)
    flat, grid = m.groups(-(-n // RANKED))
    m.add_function(f"fn key_of(i: u32) -> u32 {{ return min(u32({idx.load('i')}), {spec.rows}u); }}")
    per = -(-n // PARTS)
    body = f"""  let mine = li % {RANKED}u;
  let part = li / {RANKED}u;
  let i = {flat} * {RANKED}u + mine;
  let key = key_of(min(i, {n - 1}u));
  var before = 0u;
  for (var s = 0u; s < {per}u; s++) {{
    let j = s * {PARTS}u + part;
    if (j < {n}u) {{
      let other = key_of(j);
      let comes = other < key || (other == key && j < i);
      before += select(0u, 1u, comes);
    }}
  }}
  counts[li] = before;
  workgroupBarrier();
  if (part == 0u && i < {n}u) {{
    var rank = 0u;
    for (var p = 0u; p < {PARTS}u; p++) {{ rank += counts[p * {RANKED}u + mine]; }}
    {keys.store("rank", "key")}
    {order.store("rank", "i")}
  }}"""
    return finish(
        m,
        body,
        grid,
        shared=f"var<workgroup> counts: array<u32, {RANKED * PARTS}>;",
        scratch=(("ws_keys", "u32", n), ("ws_order", "u32", n)),
        op="scatter_add",
    )


def _sum(spec: ScatterSpec, limits: Limits) -> Call:
    n = spec.n
    vec = 4 if spec.width % 4 == 0 else 1
    m = Module(f"scatter_sum{vec}", limits)
    src = m.tensor("src", spec.src_dtype, n * spec.width, "read", vec)
    keys = m.tensor("ws_keys", "u32", n, "read")
    order = m.tensor("ws_order", "u32", n, "read")
    out = m.tensor("out", spec.out_dtype, spec.rows * spec.width, "read_write", vec)
    columns = spec.width // vec
    count = spec.rows * columns
    kind = "vec4<f32>" if vec == 4 else "f32"

    def loaded(index: str, mem: str) -> str:
        tensor = src if mem == "src" else out
        value = tensor.load4(index) if vec == 4 else tensor.load(index)
        return value if tensor.dtype == "f32" else f"{kind}({value})"

    halves = n.bit_length()
    m.add_function(
        f"""fn first_at(row: u32) -> u32 {{
  var low = 0u;
  var high = {n}u;
  for (var s = 0u; s < {halves}u; s++) {{
    let mid = (low + high) / 2u;
    if (low < high) {{
      if ({keys.load("mid")} < row) {{ low = mid + 1u; }} else {{ high = mid; }}
    }}
  }}
  return low;
}}"""
    )
    start = loaded("i", "out") if spec.accumulate else f"{kind}()"
    value = "acc" if spec.out_dtype == "f32" else ("vec4<f16>(acc)" if vec == 4 else "f16(acc)")
    store = out.store4("i", value) if vec == 4 else out.store("i", value)
    lines = [
        f"let row = i / {columns}u;",
        f"let col = i % {columns}u;",
        "let first = first_at(row);",
        "var last = first;",
        f"if (first < {n}u) {{",
        f"  if ({keys.load('first')} == row) {{ last = first_at(row + 1u); }}",
        "}",
    ]
    body = [f"var acc: {kind} = {start};", "var p = first;", f"for (; p + {RUN - 1}u < last; p += {RUN}u) {{"]
    body += [f"  let o{q} = {order.load(f'p + {q}u')};" for q in range(RUN)]
    body += [f"  let v{q} = {loaded(f'o{q} * {columns}u + col', 'src')};" for q in range(RUN)]
    body += [f"  acc += v{q};" for q in range(RUN)]
    body += [
        "}",
        "for (; p < last; p++) {",
        f"  let o = {order.load('p')};",
        f"  acc += {loaded(f'o * {columns}u + col', 'src')};",
        "}",
        store,
    ]
    lines += ["if (last > first) {", *(f"  {x}" for x in body), "}"] if spec.accumulate else body
    gi, grid = m.linear(count)
    text = "\n".join([f"  let i = {gi};", f"  if (i < {count}u) {{", *(f"    {x}" for x in lines), "  }"])
    return finish(m, text, grid, op="scatter_add")
