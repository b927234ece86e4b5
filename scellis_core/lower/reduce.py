"""Reductions and row groups.

A group has a space of rows (the kept axes) and columns (the reduced ones). A team of threads takes a row. It works
in passes: pass ``p`` evaluates the elements that need at most the results of earlier passes, reduces them through
shared memory and writes the element outputs that are ready; row values live in variables. Rows that fit are held in
registers between passes; longer ones are read again. Where there are few rows, or the reduced axes come first, a
group that has a single pass and no element outputs is cut: a first kernel reduces pieces, a second one the pieces'
results, both in a fixed order.
"""

from __future__ import annotations

from scellis_core.lower.call import Call
from scellis_core.lower.group import Group
from scellis_core.lower.pointwise import Binding
from scellis_core.lower.program import Limits
from scellis_core.lower.rowplan import jobs_of, plan_of
from scellis_core.lower.rows import Columns, Rows
from scellis_core.lower.wgsl import ScalarTable


def reduce_calls(group: Group, limits: Limits, scalars: ScalarTable, binding: Binding) -> list[Call]:
    """The kernels of a reduce group: one, or where it is cut one for the pieces and one to merge them.

    Where its elements pass one binding there are more: each covers as many rows, or pieces, as a binding holds.
    """
    plan = plan_of(group, {group.outputs[int(o[3:])] for o in binding.alias})
    columns = bool(group.pattern) and plan.single and not group.pattern[-1][1]
    emit = Columns if columns else Rows
    return [emit(plan, job, limits, scalars, binding).call() for job in jobs_of(plan, columns, limits)]
