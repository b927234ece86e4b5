"""The step program (L0): WGSL kernels, buffers and dispatch lists as plain data, for wgpu and for a browser.

Everything here is JSON-able. One :class:`StepProgram` holds every *sequence* a run needs (``micro@32``,
``apply``, ``eval@32`` ...); a host replays a sequence by walking its commands. Buffers are shared by all
sequences; contents of slots do not survive a sequence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from scellis_core.errors import IRError

Access = Literal["read", "read_write"]
BufferKind = Literal["param", "grad", "optimizer", "state", "slot", "input", "scalars", "table", "staging"]

VERSION = 1
ALIGN = 256
"""Every tensor range in a buffer starts at a multiple of this many bytes."""


@dataclass(frozen=True)
class Limits:
    """What a device allows; the defaults are WebGPU's own, which a browser tab may count on.

    Sizes are in bytes.
    """

    max_storage_buffer_binding_size: int = 128 * 1024 * 1024
    max_buffer_size: int = 256 * 1024 * 1024
    max_storage_buffers_per_shader_stage: int = 8
    max_compute_invocations_per_workgroup: int = 256
    max_compute_workgroup_size_x: int = 256
    max_compute_workgroup_storage_size: int = 16 * 1024
    max_compute_workgroups_per_dimension: int = 65535
    min_storage_buffer_offset_alignment: int = 256
    features: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Portable form, which :meth:`from_json` reads."""
        return asdict(self) | {"features": list(self.features)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Limits:
        """Limits from their portable form; a limit that is not named keeps WebGPU's default."""
        return cls(**{**data, "features": tuple(data.get("features", ()))})

    def with_(self, **changes: Any) -> Limits:
        """A copy with these limits changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Binding:
    """One storage binding of a kernel: ``@group(0) @binding(i) var<storage, access> name: array<elem>``."""

    name: str
    elem: str
    access: Access


@dataclass(frozen=True)
class Kernel:
    """A compute pipeline as text.

    Binding numbers are positions in ``bindings``; the scalars block, where ``uses_scalars``, is the uniform
    binding after the last of them.
    """

    name: str
    wgsl: str
    bindings: tuple[Binding, ...]
    workgroup: tuple[int, int, int]
    uses_scalars: bool = False

    @property
    def key(self) -> str:
        """``name#digest``: the label of the shader and pipeline, and the cache key."""
        return f"{self.name}#{hashlib.sha256(self.wgsl.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Range:
    """A byte range of a buffer."""

    buffer: str
    offset: int
    size: int


@dataclass(frozen=True)
class Dispatch:
    """Run a kernel: ``binds[i]`` goes to binding i. ``op`` and ``path`` say what it computes, for people."""

    kernel: str
    binds: tuple[Range, ...]
    grid: tuple[int, int, int]
    op: str = ""
    path: str = ""


@dataclass(frozen=True)
class Copy:
    """Copy bytes between two buffers (or within none: WebGPU forbids one buffer copying onto itself)."""

    src: Range
    dst: Range


@dataclass(frozen=True)
class Clear:
    """Fill a range with zeros."""

    dst: Range


Command = Dispatch | Copy | Clear


@dataclass(frozen=True)
class Buffer:
    """A buffer to create, ``size`` bytes (a multiple of 4)."""

    name: str
    size: int
    kind: BufferKind


@dataclass(frozen=True)
class Tensor:
    """A tensor that the host may write or read by name.

    Attributes:
        name: a parameter path, ``grad:<path>``, ``opt:<slot>:<path>``, ``state:<path>``, ``input:<name>``,
            ``out:<sequence>:<name>`` ...
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    range: Range


@dataclass
class Sequence:
    """A named list of commands.

    Attributes:
        name: for example ``micro@32``.
        commands: in order.
        inputs: batch input name -> tensor name.
        outputs: output name -> tensor name; readable until the next sequence runs.
        draws: random blocks of four that one run of it consumes (0 for sequences that draw nothing).
    """

    name: str
    commands: list[Command] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    draws: int = 0


@dataclass
class StepProgram:
    """All that a host needs to train, evaluate or predict.

    Attributes:
        buffers, kernels, tensors, sequences: by name (kernels by :attr:`Kernel.key`).
        scalars: name -> (dtype, byte offset) in the scalars block, buffer ``scalars``.
        limits: what it was made for.
        meta: digest of record and L1, tier, version: data for people and caches.
    """

    limits: Limits
    buffers: dict[str, Buffer] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    sequences: dict[str, Sequence] = field(default_factory=dict)
    scalars: dict[str, tuple[str, int]] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def add_kernel(self, kernel: Kernel) -> str:
        """Add a kernel once; returns its key."""
        self.kernels.setdefault(kernel.key, kernel)
        return kernel.key

    def bytes_by_kind(self) -> dict[str, int]:
        """Sum of buffer sizes for each kind."""
        total: dict[str, int] = {}
        for buffer in self.buffers.values():
            total[buffer.kind] = total.get(buffer.kind, 0) + buffer.size
        return total

    def to_json(self) -> dict[str, Any]:
        """Plain data: lists, dicts, numbers and text (no weights)."""

        def command(c: Command) -> list[Any]:
            if isinstance(c, Dispatch):
                return ["dispatch", c.kernel, [_row(r) for r in c.binds], list(c.grid), c.op, c.path]
            if isinstance(c, Copy):
                return ["copy", _row(c.src), _row(c.dst)]
            return ["clear", _row(c.dst)]

        return {
            "version": VERSION,
            "limits": self.limits.to_json(),
            "buffers": [[b.name, b.size, b.kind] for b in self.buffers.values()],
            "kernels": {
                key: {
                    "name": k.name,
                    "wgsl": k.wgsl,
                    "bindings": [[b.name, b.elem, b.access] for b in k.bindings],
                    "workgroup": list(k.workgroup),
                    "uses_scalars": k.uses_scalars,
                }
                for key, k in self.kernels.items()
            },
            "tensors": {n: [t.dtype, list(t.shape), _row(t.range)] for n, t in self.tensors.items()},
            "sequences": {
                n: {
                    "commands": [command(c) for c in s.commands],
                    "inputs": s.inputs,
                    "outputs": s.outputs,
                    "draws": s.draws,
                }
                for n, s in self.sequences.items()
            },
            "scalars": {n: list(v) for n, v in self.scalars.items()},
            "meta": self.meta,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StepProgram:
        """The inverse of :meth:`to_json`.

        Raises:
            IRError: if the version is another.
        """
        if data.get("version") != VERSION:
            raise IRError("step program", f"version {VERSION}", str(data.get("version")), "compile it again")

        def command(row: list[Any]) -> Command:
            if row[0] == "dispatch":
                return Dispatch(row[1], tuple(Range(*r) for r in row[2]), _triple(row[3]), row[4], row[5])
            if row[0] == "copy":
                return Copy(Range(*row[1]), Range(*row[2]))
            return Clear(Range(*row[1]))

        program = cls(Limits.from_json(data["limits"]))
        program.buffers = {b[0]: Buffer(*b) for b in data["buffers"]}
        for k in data["kernels"].values():
            bindings = tuple(Binding(*b) for b in k["bindings"])
            program.add_kernel(Kernel(k["name"], k["wgsl"], bindings, _triple(k["workgroup"]), k["uses_scalars"]))
        program.tensors = {n: Tensor(n, t[0], tuple(t[1]), Range(*t[2])) for n, t in data["tensors"].items()}
        for n, s in data["sequences"].items():
            program.sequences[n] = Sequence(
                n, [command(c) for c in s["commands"]], s["inputs"], s["outputs"], s["draws"]
            )
        program.scalars = {n: (v[0], v[1]) for n, v in data["scalars"].items()}
        program.meta = data["meta"]
        return program

    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _row(r: Range) -> list[Any]:
    return [r.buffer, r.offset, r.size]


def _triple(items: Iterable[int]) -> tuple[int, int, int]:
    x, y, z = items
    return (x, y, z)
