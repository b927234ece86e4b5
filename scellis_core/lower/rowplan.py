"""How a reduce group is carried out: its passes, and the kernels that share the work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TypedDict

from scellis_core.ir import Node, Value
from scellis_core.lower.accum import Accumulator
from scellis_core.lower.group import Group
from scellis_core.lower.pointwise import over_cap
from scellis_core.lower.program import Limits
from scellis_core.lower.views import cols_of, rows_of

WORKGROUPS = 1024
"""First-pass workgroups that a cut reduction aims at."""

STEP = 128
"""Elements between places where a binding may begin, for any dtype."""


@dataclass
class Plan:
    """A reduce group read for emission.

    Attributes:
        rows, cols: sizes.
        passes: for each pass its reductions and its element outputs.
        row_outputs: outputs of the kept axes, written last.
    """

    group: Group
    rows: int
    cols: int
    passes: list[tuple[list[Node], list[Value]]]
    row_outputs: list[Value]

    @property
    def reductions(self) -> list[Node]:
        """All reductions, in order of passes."""
        return [n for nodes, _ in self.passes for n in nodes]

    @property
    def single(self) -> bool:
        """Whether it has one pass and no element outputs."""
        return len(self.passes) == 1 and not self.passes[0][1]


def plan_of(group: Group, alias: set[Value]) -> Plan:
    """Order a group's work into passes; outputs in ``alias`` are written in the last one."""
    pattern = group.pattern
    ready: dict[Node, int] = {}
    found: dict[int, list[Node]] = {}
    reductions = {n for n in group.nodes if Accumulator.of(n).combine}
    for node in group.body:
        ready[node] = max([ready.get(v.node, 0) for v in node.inputs], default=0)
        if node in reductions:
            found.setdefault(ready[node], []).append(node)
            ready[node] += 1
    elements = [v for v in group.outputs if group.levels[v.node] == "element" and v.node not in reductions]
    count = max([p + 1 for p in found] + [ready[v.node] + 1 for v in elements], default=1)
    passes: list[tuple[list[Node], list[Value]]] = [(found.get(p, []), []) for p in range(count)]
    for value in elements:
        passes[count - 1 if value in alias else ready[value.node]][1].append(value)
    if not pattern:
        rows, cols = next(iter(reductions)).inputs[0].type.numel, 1
    else:
        rows, cols = rows_of(pattern), cols_of(pattern)
    return Plan(group, rows, cols, passes, [v for v in group.outputs if v not in elements])


@dataclass
class Job:
    """One kernel of a plan.

    Attributes:
        rows, cols: what it covers of the group's rows and columns.
        row0, col0: where that begins.
        length: elements of a piece; ``cols`` where rows are whole.
        partial: whether it writes accumulators to scratch, not results.
        merging: whether its elements are accumulators from scratch.
        piece0, pieces: for a partial job, where its pieces stand among all pieces of a row.
        part, parts: elements of the space that it binds, of which tensors; all of every tensor where empty.
        skip: elements of the part before its first.
    """

    rows: int
    cols: int
    row0: int = 0
    col0: int = 0
    length: int = 0
    partial: bool = False
    merging: bool = False
    piece0: int = 0
    pieces: int = 1
    part: tuple[int, int] = (0, 0)
    parts: frozenset[Value] = frozenset()
    skip: int = 0

    @property
    def here(self) -> int:
        """Pieces of a row that this job makes."""
        return -(-self.cols // self.length) if self.partial else 1


def jobs_of(plan: Plan, columns: bool, limits: Limits) -> list[Job]:
    """The kernels of a plan."""
    elements = [v for _, outs in plan.passes for v in outs]
    pieces, length = _cut(plan, columns) if plan.single else (1, plan.cols)
    over = over_cap(plan.group, elements, limits)
    parts = frozenset([*plan.group.aligned, *elements])
    room = limits.max_storage_buffer_binding_size // 4 // 1024 * 1024
    contiguous = len(plan.group.pattern) <= 2
    if over and not columns and contiguous and plan.cols + STEP <= room:
        unit = STEP // gcd(plan.cols, STEP)
        step = (room - STEP) // plan.cols
        step -= step % unit if step >= unit else 0
        return [
            Job(n, plan.cols, row0=row, parts=parts, **_part(row * plan.cols, n * plan.cols))
            for row in range(0, plan.rows, step)
            for n in [min(step, plan.rows - row)]
        ]
    if over and plan.single and contiguous and (columns or plan.rows == 1) and 4 * plan.rows + STEP <= room:
        step = (room - STEP) // plan.rows // 4 * 4
        length = min(length, step)
        made: list[Job] = []
        total = 0
        for col in range(0, plan.cols, step):
            n = min(step, plan.cols - col)
            job = Job(plan.rows, n, col0=col, length=length, partial=True, piece0=total, parts=parts)
            made.append(replace(job, **_part(col * plan.rows, n * plan.rows)))
            total += made[-1].here
        return [*(replace(job, pieces=total) for job in made), Job(plan.rows, total, merging=True)]
    if pieces == 1:
        return [Job(plan.rows, plan.cols)]
    first = Job(plan.rows, plan.cols, length=length, partial=True, pieces=pieces)
    return [first, Job(plan.rows, pieces, merging=True)]


class _Part(TypedDict):
    part: tuple[int, int]
    skip: int


def _part(start: int, count: int) -> _Part:
    """The binding of ``count`` elements from ``start``: from an aligned element on."""
    skip = start % STEP
    return {"part": (start - skip, count + skip), "skip": skip}


def _cut(plan: Plan, columns: bool) -> tuple[int, int]:
    """(pieces, elements of a piece) for a single-pass group."""
    if columns:
        tiles = -(-plan.rows // 32)
        pieces = min(-(-plan.cols // 64), max(1, WORKGROUPS // 2 // tiles)) if plan.cols > 128 else 1
    else:
        pieces = min(-(-plan.cols // 4096), max(1, WORKGROUPS // plan.rows)) if plan.cols > 8192 else 1
    length = -(-plan.cols // pieces)
    if not columns:
        length = -(-length // 4) * 4
    return -(-plan.cols // length), length
