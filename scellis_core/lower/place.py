"""From groups to commands: slots by liveness, stores written in place, bindings, dispatches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from scellis_core.errors import DeviceError
from scellis_core.ir import DTYPES, Graph, Node, Value
from scellis_core.lower.emit import emit_group
from scellis_core.lower.group import Group
from scellis_core.lower.layout import align
from scellis_core.lower.program import Buffer, Copy, Limits, Range, StepProgram, Tensor
from scellis_core.lower.program import Sequence as Commands
from scellis_core.lower.views import base_of
from scellis_core.lower.wgsl import ScalarTable


@dataclass
class SlotPool:
    """Whole-buffer slots that all sequences share; a sequence's values never outlive it.

    Attributes:
        sizes: bytes of each slot, grown as needed while sequences are placed.
        activations: slots that held a value from the forward pass to the backward pass, in any sequence.
        owners: block path whose value gave each slot its size.
    """

    sizes: list[int] = field(default_factory=list[int])
    activations: set[int] = field(default_factory=set[int])
    owners: dict[int, str] = field(default_factory=dict[int, str])
    free: set[int] = field(default_factory=set[int])

    def begin(self) -> None:
        """Start another sequence: every slot is free."""
        self.free = set(range(len(self.sizes)))

    def take(self, nbytes: int, owner: str = "") -> int:
        """A free slot: the smallest that holds ``nbytes``, else the largest made larger, else a new one.

        Args:
            nbytes: of the value.
            owner: block path that the value belongs to, for errors.
        """
        size = align(nbytes)
        fitting = [s for s in self.free if self.sizes[s] >= size]
        if fitting:
            slot = min(fitting, key=lambda s: (self.sizes[s], s))
        else:
            slot = max(self.free, key=lambda s: (self.sizes[s], -s)) if self.free else len(self.sizes)
            self.sizes[slot : slot + 1] = [size]
            self.owners[slot] = owner
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
                owner = self.owners.get(slot, "")
                raise DeviceError(
                    f"block {owner}: its output" if owner else f"slot {slot}",
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


def place_sequence(
    program: StepProgram,
    name: str,
    graph: Graph,
    groups: Sequence[Group],
    pool: SlotPool,
    scalars: ScalarTable,
    limits: Limits,
    forward: Collection[Node] = (),
) -> None:
    """Give every value of a sequence a place and append the sequence to the program.

    Args:
        program: gets kernels, buffers, tensors and the sequence; persistent tensors are in it already.
        name: of the sequence.
        graph: what the groups compute.
        groups: kernels to be, in the order of their dispatches.
        pool: slots, shared with the program's other sequences.
        scalars: places in the scalars block.
        limits: of the device.
        forward: the nodes of the forward pass, for telling activations from working memory.
    """
    place = _Placement(program, pool, last={v: i for i, g in enumerate(groups) for v in g.inputs})
    place.kept = {base_of(v) for v in graph.outputs.values()}
    commands = Commands(name, draws=graph.draws)
    pool.begin()
    for leaf, value in graph.leaves("load").items():
        tensor = _input_tensor(program, name, leaf, value)
        commands.inputs[leaf] = tensor.name
        place.ranges[value] = tensor.range
    for kind in ("param", "state"):
        for leaf, value in graph.leaves(kind).items():
            place.ranges[value] = program.tensors[leaf].range
    place.backward = next((i for i, g in enumerate(groups) if any(n not in forward for n in g.nodes)), len(groups))
    for index, group in enumerate(groups):
        place.outputs(index, group)
        if group.kind == "copy" and (command := place.copy(group)) is not None:
            commands.commands.append(command)
        else:
            _emit(program, commands, group, place, scalars, limits)
        place.release(index, group)
    for key, value in graph.outputs.items():
        commands.outputs[key] = _output_tensor(program, name, key, value, place.ranges[base_of(value)])
    program.sequences[name] = commands


@dataclass
class _Placement:
    """Where each value of one sequence lies while it is placed."""

    program: StepProgram
    pool: SlotPool
    last: Mapping[Value, int]
    kept: set[Value] = field(default_factory=set[Value])
    backward: int = 0
    ranges: dict[Value, Range] = field(default_factory=dict[Value, Range])
    slots: dict[Value, int] = field(default_factory=dict[Value, int])
    born: dict[Value, int] = field(default_factory=dict[Value, int])

    def outputs(self, index: int, group: Group) -> None:
        """Place a group's outputs: where they are stored to, in the memory of an operand that dies here, or a slot."""
        targets = dict(group.stores)
        for k, value in enumerate(group.outputs):
            operand = group.aliases.get(f"out{k}")
            read = group.inputs[int(operand[2:])] if operand else None
            if value in targets:
                self.ranges[value] = self.program.tensors[targets[value]].range
            elif read in self.slots and self._dies(read, index) and value.type.nbytes == read.type.nbytes:
                self.slots[value] = self._leave(read, index)
                self.ranges[value] = self.ranges[read]
                self.born[value] = index
            else:
                slot = self.slots[value] = self.pool.take(value.type.nbytes, group.path)
                self.ranges[value] = Range(slot_name(slot), 0, value.type.nbytes)
                self.born[value] = index

    def copy(self, group: Group) -> Copy | None:
        """A copy command, where the two ranges lie in different buffers."""
        value, tensor = group.stores[0]
        source, target = self.ranges[value], self.program.tensors[tensor].range
        return Copy(source, target) if source.buffer != target.buffer else None

    def release(self, index: int, group: Group) -> None:
        """Give back the slots of values that nothing reads any more."""
        for value in dict.fromkeys([*group.inputs, *group.outputs]):
            if value in self.slots and self._dies(value, index):
                self.pool.give(self._leave(value, index))

    def _dies(self, value: Value, index: int) -> bool:
        return value not in self.kept and self.last.get(value, -1) <= index

    def _leave(self, value: Value, index: int) -> int:
        slot = self.slots.pop(value)
        if self.born[value] < self.backward <= index:
            self.pool.activations.add(slot)
        return slot


def _emit(
    program: StepProgram, commands: Commands, group: Group, place: _Placement, scalars: ScalarTable, limits: Limits
) -> None:
    """Emit one group's kernels with their bindings.

    Raises:
        DeviceError: if a kernel cannot be made within the limits; it names the group's block.
    """
    ranges = {f"in{i}": place.ranges[v] for i, v in enumerate(group.inputs)}
    ranges |= {f"out{i}": place.ranges[v] for i, v in enumerate(group.outputs)}
    if group.kind == "copy":
        ranges["out0"] = program.tensors[group.stores[0][1]].range
    written = {r.buffer for k, r in ranges.items() if k.startswith("out")}
    alias = {o: i for o, i in group.aliases.items() if ranges[o] == ranges[i]}
    shared = frozenset(k for k, r in ranges.items() if k.startswith("in") and r.buffer in written)
    scratch: list[int] = []
    try:
        calls = emit_group(group, limits, scalars, alias=alias, read_write=shared)
    except DeviceError as error:
        path = group.family.path if group.family is not None else group.path
        where = f"block {path}: {error.where}" if path else error.where
        raise DeviceError(where, error.expected, error.got, error.hint) from error
    for call in calls:
        for key, dtype, numel in call.scratch:
            slot = place.pool.take(numel * DTYPES[dtype], group.path)
            scratch.append(slot)
            ranges[key] = Range(slot_name(slot), 0, numel * DTYPES[dtype])
        program.add_kernel(call.kernel)
        commands.commands.append(call.dispatch(ranges, limits, group.path))
    for slot in scratch:
        place.pool.give(slot)


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
