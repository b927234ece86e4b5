"""From groups to commands: slots by liveness, stores written in place, bindings, dispatches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scellis_core.errors import DeviceError
from scellis_core.ir import DTYPES, Graph, Value
from scellis_core.lower.emit import emit_group
from scellis_core.lower.group import Group
from scellis_core.lower.layout import align
from scellis_core.lower.program import Buffer, Limits, Range, StepProgram, Tensor
from scellis_core.lower.program import Sequence as Commands
from scellis_core.lower.wgsl import ScalarTable


@dataclass
class SlotPool:
    """Whole-buffer slots that all sequences share; a sequence's values never outlive it.

    Attributes:
        sizes: bytes of each slot, grown as needed while sequences are placed.
        activations: slots that held a value from the forward pass to the backward pass, in any sequence.
    """

    sizes: list[int] = field(default_factory=list[int])
    activations: set[int] = field(default_factory=set[int])
    free: set[int] = field(default_factory=set[int])

    def begin(self) -> None:
        """Start another sequence: every slot is free."""
        self.free = set(range(len(self.sizes)))

    def take(self, nbytes: int) -> int:
        """A free slot: the smallest that holds ``nbytes``, else the largest made larger, else a new one."""
        size = align(nbytes)
        fitting = [s for s in self.free if self.sizes[s] >= size]
        if fitting:
            slot = min(fitting, key=lambda s: (self.sizes[s], s))
        elif self.free:
            slot = max(self.free, key=lambda s: (self.sizes[s], -s))
            self.sizes[slot] = size
        else:
            slot = len(self.sizes)
            self.sizes.append(size)
        self.free.discard(slot)
        return slot

    def give(self, slot: int) -> None:
        """Return a slot."""
        self.free.add(slot)

    def create_buffers(self, program: StepProgram) -> None:
        """Add the slots' buffers at their final sizes.

        Raises:
            DeviceError: if one is larger than the device's largest buffer.
        """
        for slot, size in enumerate(self.sizes):
            if size > program.limits.max_buffer_size:
                raise DeviceError(
                    f"slot {slot}",
                    f"at most {program.limits.max_buffer_size} bytes (the device's max-buffer-size)",
                    str(size),
                    "a smaller batch_size with grad_accumulation",
                )
            program.buffers[slot_name(slot)] = Buffer(slot_name(slot), size, "slot")

    def summary(self) -> dict[str, int]:
        """Bytes of slots that hold activations, and of the others."""
        held = sum(self.sizes[s] for s in self.activations)
        return {"activations": held, "working": sum(self.sizes) - held}


def slot_name(slot: int) -> str:
    """Buffer name of a slot."""
    return f"slot.{slot}"


@dataclass
class _Placement:
    """Where each value of one sequence lies while it is placed."""

    ranges: dict[Value, Range] = field(default_factory=dict[Value, Range])
    slots: dict[Value, int] = field(default_factory=dict[Value, int])


def place_sequence(
    program: StepProgram,
    name: str,
    graph: Graph,
    groups: Sequence[Group],
    pool: SlotPool,
    scalars: ScalarTable,
    limits: Limits,
) -> None:
    """Give every value of a sequence a place and append the sequence to the program."""
    commands = Commands(name, draws=graph.draws)
    pool.begin()
    place = _Placement()
    for leaf, value in graph.leaves("load").items():
        tensor = _input_tensor(program, name, leaf, value)
        commands.inputs[leaf] = tensor.name
        place.ranges[value] = tensor.range
    for kind in ("param", "state"):
        for leaf, value in graph.leaves(kind).items():
            place.ranges[value] = program.tensors[leaf].range
    last = _last_use(groups, graph)
    backward = _first_backward(groups)
    born: dict[Value, int] = {}
    for index, group in enumerate(groups):
        targets = {value: program.tensors[tensor].range for value, tensor in group.stores}
        for value in group.outputs:
            if value in targets:
                place.ranges[value] = targets[value]
            elif value not in place.ranges:
                slot = pool.take(value.type.nbytes)
                place.slots[value] = slot
                place.ranges[value] = Range(slot_name(slot), 0, value.type.nbytes)
                born[value] = index
        _emit(program, commands, group, place, pool, scalars, limits)
        for value in dict.fromkeys([*group.inputs, *group.outputs]):
            if value in place.slots and last.get(value, -1) <= index and value not in graph.outputs.values():
                slot = place.slots.pop(value)
                if born[value] < backward <= last.get(value, -1):
                    pool.activations.add(slot)
                pool.give(slot)
    for key, value in graph.outputs.items():
        commands.outputs[key] = _output_tensor(program, name, key, value, place.ranges[value])
    program.sequences[name] = commands


def _emit(
    program: StepProgram,
    commands: Commands,
    group: Group,
    place: _Placement,
    pool: SlotPool,
    scalars: ScalarTable,
    limits: Limits,
) -> None:
    """Emit one group's kernels with their bindings."""
    ranges = {f"in{i}": place.ranges[v] for i, v in enumerate(group.inputs)}
    ranges |= {f"out{i}": place.ranges[v] for i, v in enumerate(group.outputs)}
    written = {r.buffer for k, r in ranges.items() if k.startswith("out")}
    alias = {
        o: i
        for o, i in group.aliases.items()
        if (ranges[o].buffer, ranges[o].offset) == (ranges[i].buffer, ranges[i].offset)
    }
    shared = frozenset(k for k, r in ranges.items() if k.startswith("in") and r.buffer in written)
    scratch: list[int] = []
    for call in emit_group(group, limits, scalars, alias=alias, read_write=shared):
        for key, dtype, numel in call.scratch:
            nbytes = numel * DTYPES[dtype]
            slot = pool.take(nbytes)
            scratch.append(slot)
            ranges[key] = Range(slot_name(slot), 0, nbytes)
        program.add_kernel(call.kernel)
        commands.commands.append(call.dispatch(ranges, limits, group.path))
    for slot in scratch:
        pool.give(slot)


def _last_use(groups: Sequence[Group], graph: Graph) -> Mapping[Value, int]:
    return {value: index for index, group in enumerate(groups) for value in group.inputs}


def _first_backward(groups: Sequence[Group]) -> int:
    """Index of the first group that belongs to the backward pass (groups after the loss is known)."""
    for index, group in enumerate(groups):
        if any(node.backward for node in group.nodes):
            return index
    return len(groups)


def _input_tensor(program: StepProgram, sequence: str, leaf: str, value: Value) -> Tensor:
    """The input's buffer, shared by all sequences and as large as the largest of them needs."""
    buffer = f"input.{leaf}"
    size = max(align(value.type.nbytes), program.buffers[buffer].size if buffer in program.buffers else 0)
    program.buffers[buffer] = Buffer(buffer, size, "input")
    tensor = Tensor(f"input:{leaf}@{sequence}", value.dtype, value.shape, Range(buffer, 0, value.type.nbytes))
    program.tensors[tensor.name] = tensor
    return tensor


def _output_tensor(program: StepProgram, sequence: str, key: str, value: Value, range: Range) -> str:
    name = f"out:{sequence}:{key}"
    program.tensors[name] = Tensor(name, value.dtype, value.shape, range)
    return name
