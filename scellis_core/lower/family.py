"""Nodes with a kernel family of their own: from op attributes and operands to the family's spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from scellis_core.errors import IRError
from scellis_core.ir import Node, Value
from scellis_core.lower.analysis import Operand
from scellis_core.lower.call import Call, Epilogue
from scellis_core.lower.conv import ConvSpec, conv2d_calls, conv2d_grad_input_calls, conv2d_grad_weight_calls
from scellis_core.lower.epilogue import Applied, Place, dense, image, main_output
from scellis_core.lower.group import Group
from scellis_core.lower.index import Shape
from scellis_core.lower.matmul import MatmulSpec, Strided, matmul_calls
from scellis_core.lower.pool import (
    PoolSpec,
    avg_pool2d_calls,
    avg_pool2d_grad_calls,
    max_pool2d_calls,
    max_pool2d_grad_calls,
)
from scellis_core.lower.program import Limits
from scellis_core.lower.scatter import ScatterSpec, scatter_add_calls
from scellis_core.lower.views import contiguous, restride
from scellis_core.lower.wgsl import ScalarTable


@dataclass(frozen=True)
class Job:
    """A family node to make kernels for.

    Attributes:
        node: the node.
        group: its group: operands, epilogue, outputs.
        limits: of the device.
        scalars: of the step program.
    """

    node: Node
    group: Group
    limits: Limits
    scalars: ScalarTable

    @property
    def out(self) -> Value:
        """What the kernel itself stores."""
        return self.group.outputs[main_output(self.group)]

    @property
    def accumulates(self) -> bool:
        """Whether the result is added to the tensor that it is stored to."""
        written = {name for _, name in self.group.stores}
        leaves = [v for v in self.group.inputs if v.node.op in ("param", "state")]
        return any(str(v.node.attrs["name"]) in written for v in leaves)

    @property
    def moved(self) -> Node | None:
        """The permutation that the kernel stores through."""
        last = self.group.nodes[-1]
        return last if last.op == "permute" and len(self.group.nodes) == 2 else None

    def epilogue(self, place: Place, sizes: tuple[int, int, int]) -> Epilogue | None:
        """The group's further nodes."""
        if len(self.group.nodes) == 1 or self.accumulates or self.moved is not None:
            return None
        return Applied(self.group, place, sizes).epilogue()


def family_calls(group: Group, limits: Limits, scalars: ScalarTable) -> list[Call]:
    """The kernels of a family node and its epilogue, with the group's operand keys.

    Raises:
        IRError: if no generator is known for the op.
    """
    node = group.family
    build = _FAMILIES.get(node.op) if node is not None else None
    if node is None or build is None:
        raise IRError(f"{group.path}: {group.title}", "an op with a kernel family", "none")
    calls, names = build(Job(node, group, limits, scalars))
    number = {value: f"in{k}" for k, value in enumerate(group.inputs)}
    keys = {name: number[group.operands[k].base] for name, k in names.items()}
    keys["out"] = f"out{main_output(group)}"
    return [rekey(call, keys) for call in calls]


def rekey(call: Call, keys: Mapping[str, str]) -> Call:
    """A call with operand keys renamed."""
    return replace(
        call,
        operands=tuple([keys.get(k, k) for k in call.operands]),
        writes=tuple([keys.get(k, k) for k in call.writes]),
    )


Built = tuple[list[Call], dict[str, int]]


def matmul_spec(node: Node, operands: tuple[Operand, ...], *, fold: bool = True) -> MatmulSpec:
    """A product over strided operands; a batch whose second operand is one matrix becomes rows where it can."""
    a, out = node.inputs[0], node.outputs[0]
    ta, tb = bool(node.attrs.get("transpose_a", False)), bool(node.attrs.get("transpose_b", False))
    m, n = out.shape[-2], out.shape[-1]
    k = a.shape[-2] if ta else a.shape[-1]
    batch = out.shape[:-2]
    sa, sb = operands[0].strides, operands[1].strides
    a_rows, a_cols = (sa[-1], sa[-2]) if ta else (sa[-2], sa[-1])
    b_rows, b_cols = (sb[-1], sb[-2]) if tb else (sb[-2], sb[-1])
    a_batch, b_batch = sa[:-2], sb[:-2]
    if batch and not b_batch:
        folded = restride((*batch, m), (*a_batch, a_rows), (m * _product(batch),)) if fold else None
        if folded is not None:
            m, batch, a_batch, a_rows = m * _product(batch), (), (), folded[0]
        else:
            b_batch = (0,) * len(batch)
    steps = contiguous((*batch, m, n))
    return MatmulSpec(
        m,
        n,
        k,
        Strided(operands[0].base.dtype, operands[0].base.type.numel, (*a_batch, a_rows, a_cols), operands[0].offset),
        Strided(operands[1].base.dtype, operands[1].base.type.numel, (*b_batch, b_rows, b_cols), operands[1].offset),
        Strided(out.dtype, out.type.numel, steps),
        batch,
    )


def _product(shape: Shape) -> int:
    out = 1
    for size in shape:
        out *= size
    return out


def _matmul(job: Job) -> Built:
    spec = matmul_spec(job.node, job.group.operands)
    out = job.out
    strides = spec.out.strides
    if job.moved is not None:
        # The result's axes as they lie in the permuted tensor; one matrix for a whole batch keeps its batch axes.
        spec = matmul_spec(job.node, job.group.operands, fold=False)
        perm = _ints(job.moved, "perm")
        steps = contiguous(out.shape)
        strides = tuple([steps[perm.index(axis)] for axis in range(len(perm))])
    spec = replace(spec, out=Strided(out.dtype, out.type.numel, strides), accumulate=job.accumulates)
    sizes = (_product(spec.batch), spec.m, spec.n)
    return matmul_calls(spec, job.limits, job.scalars, job.epilogue(dense(*sizes), sizes)), {"a": 0, "b": 1}


def _pair(node: Node, key: str) -> tuple[int, int]:
    first, second = _ints(node, key)
    return first, second


def _four(node: Node, key: str) -> tuple[int, int, int, int]:
    top, bottom, left, right = _ints(node, key)
    return top, bottom, left, right


def _ints(node: Node, key: str) -> Shape:
    item = node.attrs[key]
    if not isinstance(item, tuple):
        raise IRError(f"{node.path}: {node.op}", f"{key} as a tuple", repr(item))
    return tuple([int(i) for i in item])


def _conv_spec(node: Node, x: Shape, w: Shape, dtypes: tuple[str, str, str]) -> ConvSpec:
    n, c, h, width = x
    o, _, kh, kw = w
    groups = node.attrs["groups"]
    return ConvSpec(
        n, c, h, width, o, kh, kw, _pair(node, "stride"), _four(node, "padding"), _pair(node, "dilation"),
        groups if isinstance(groups, int) else 1, *dtypes,
    )  # fmt: skip


def _images(spec: ConvSpec, channels: int, pixels: int) -> tuple[Place, tuple[int, int, int]]:
    return image(spec.groups, channels, pixels, spec.n), (spec.groups, channels, spec.n * pixels)


def _conv2d(job: Job) -> Built:
    x, w = job.node.inputs
    spec = _conv_spec(job.node, x.shape, w.shape, (x.dtype, w.dtype, job.out.dtype))
    epilogue = job.epilogue(*_images(spec, spec.og, spec.oh * spec.ow))
    return conv2d_calls(spec, job.limits, job.scalars, epilogue), {"b": 0, "a": 1}


def _conv2d_grad_input(job: Job) -> Built:
    g, w = job.node.inputs
    spec = _conv_spec(job.node, job.node.outputs[0].shape, w.shape, (job.out.dtype, w.dtype, g.dtype))
    epilogue = job.epilogue(*_images(spec, spec.cg, spec.h * spec.w))
    return conv2d_grad_input_calls(spec, job.limits, job.scalars, epilogue), {"b": 0, "a": 1}


def _conv2d_grad_weight(job: Job) -> Built:
    x, g = job.node.inputs
    spec = _conv_spec(job.node, x.shape, job.node.outputs[0].shape, (x.dtype, job.out.dtype, g.dtype))
    sizes = (spec.groups, spec.og, spec.cg * spec.taps)
    epilogue = job.epilogue(dense(*sizes), sizes)
    calls = conv2d_grad_weight_calls(spec, job.limits, job.scalars, epilogue, accumulate=job.accumulates)
    return calls, {"b": 0, "a": 1}


def _pool_spec(node: Node, x: Shape, dtypes: tuple[str, str]) -> PoolSpec:
    return PoolSpec(
        x[0] * x[1], x[2], x[3], _pair(node, "window"), _pair(node, "stride"), _four(node, "padding"),
        bool(node.attrs.get("count_include_pad", True)), *dtypes,
    )  # fmt: skip


def _max_pool2d(job: Job) -> Built:
    node, limits = job.node, job.limits
    x = node.inputs[0]
    return max_pool2d_calls(_pool_spec(node, x.shape, (x.dtype, node.outputs[0].dtype)), limits), {"x": 0}


def _max_pool2d_grad(job: Job) -> Built:
    node, limits = job.node, job.limits
    x, g = node.inputs[0], node.inputs[-1]
    spec = _pool_spec(node, x.shape, (x.dtype, g.dtype))
    return max_pool2d_grad_calls(spec, limits), {"x": 0, "g": len(node.inputs) - 1}


def _avg_pool2d(job: Job) -> Built:
    node, limits = job.node, job.limits
    x = node.inputs[0]
    return avg_pool2d_calls(_pool_spec(node, x.shape, (x.dtype, node.outputs[0].dtype)), limits), {"x": 0}


def _avg_pool2d_grad(job: Job) -> Built:
    node, limits = job.node, job.limits
    g, x = node.inputs[-1], node.outputs[0]
    spec = _pool_spec(node, x.shape, (x.dtype, g.dtype))
    return avg_pool2d_grad_calls(spec, limits), {"g": len(node.inputs) - 1}


def _scatter_add(job: Job) -> Built:
    node, limits = job.node, job.limits
    index, source = node.inputs
    out = node.outputs[0]
    rows = out.shape[0]
    spec = ScatterSpec(index.type.numel, out.type.numel // rows, rows, index.dtype, source.dtype, out.dtype)
    return scatter_add_calls(spec, limits), {"idx": 0, "src": 1}


_FAMILIES: dict[str, Callable[[Job], Built]] = {
    "matmul": _matmul,
    "conv2d": _conv2d,
    "conv2d_grad_input": _conv2d_grad_input,
    "conv2d_grad_weight": _conv2d_grad_weight,
    "max_pool2d": _max_pool2d,
    "max_pool2d_grad": _max_pool2d_grad,
    "avg_pool2d": _avg_pool2d,
    "avg_pool2d_grad": _avg_pool2d_grad,
    "scatter_add": _scatter_add,
}
