"""From a kernel group to the calls that compute it; groups of one structure share their kernels' text."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from weakref import WeakKeyDictionary

from scellis_core.ir import Value
from scellis_core.lower.call import Call
from scellis_core.lower.family import family_calls
from scellis_core.lower.group import Group
from scellis_core.lower.pointwise import Binding, pointwise_calls
from scellis_core.lower.program import Limits
from scellis_core.lower.reduce import reduce_calls
from scellis_core.lower.wgsl import ScalarTable

_MADE: WeakKeyDictionary[ScalarTable, dict[Hashable, list[Call]]] = WeakKeyDictionary()


def emit_group(
    group: Group,
    limits: Limits,
    scalars: ScalarTable,
    *,
    alias: Mapping[str, str] | None = None,
    read_write: frozenset[str] = frozenset(),
    quad: bool | None = None,
) -> list[Call]:
    """The dispatches of a group, in order.

    Args:
        group: as :func:`scellis_core.lower.group.group_graph` made it.
        limits: of the device.
        scalars: the step program's scalars; kernels of equal structure are made once for each table.
        alias: out keys that are bound to the same memory as an in key (a subset of ``group.aliases``; those that
            the group stores to a tensor that it reads are always part of it).
        read_write: in keys whose buffer is written elsewhere in the dispatch, so that they are bound read_write.
        quad: None to choose; else whether threads work on four elements where they can.

    Returns:
        Calls whose operand keys are ``in<k>``, ``out<k>`` and scratch keys.

    Raises:
        DeviceError: if a kernel cannot be made within the limits.
        IRError: if an op has no kernel.
    """
    stored = dict(group.stores)
    forced = {o: i for o, i in group.aliases.items() if group.outputs[int(o[3:])] in stored}
    binding = Binding({**forced, **(alias or {})}, read_write, quad)
    made = _MADE.setdefault(scalars, {})
    key = structure(group, limits, binding)
    calls = made.get(key)
    if calls is None:
        if group.kind == "family":
            calls = family_calls(group, limits, scalars)
        elif group.kind == "reduce":
            calls = reduce_calls(group, limits, scalars, binding)
        else:
            calls = pointwise_calls(group, limits, scalars, binding)
        made[key] = calls
    return calls


def structure(group: Group, limits: Limits, binding: Binding) -> Hashable:
    """What the text of a group's kernels depends on; values and paths by number only."""
    number: dict[Value, int] = {}
    rows: list[Hashable] = [group.kind, group.pattern, limits, binding.quad, binding.read_write]
    rows.append(tuple(sorted(binding.alias.items())))
    for value in group.inputs:
        number[value] = len(number)
        rows.append(value.type)
    for node in group.body:
        inputs = node.inputs if group.family is not node else []
        rows.append((node.op, repr(node.attrs), tuple([number[v] for v in inputs]), group.levels.get(node)))
        for value in node.outputs:
            number[value] = len(number)
            rows.append(value.type)
    rows += [(number[o.base], o.offset, o.strides) for o in group.operands]
    rows += [number[v] for v in group.outputs]
    return tuple(rows)
