"""Bytes by class before the first step: what the step program lists is what a device allocates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scellis_core.compile import Compiled
from scellis_core.lower.program import StepProgram

CLASSES = {
    "param": "parameters",
    "grad": "gradients",
    "optimizer": "optimizer state",
    "state": "running statistics and counters",
    "input": "batch inputs",
    "scalars": "scalars",
    "table": "tables",
    "staging": "staging for readback",
}
"""Buffer kinds and what people call them; slots are split into activations and working memory."""


@dataclass(frozen=True)
class Plan:
    """The memory of a run.

    Attributes:
        classes: bytes by class; their sum is what the runtime allocates.
        parameters, trainable: numbers of elements.
        dispatches: by sequence.
        largest_binding: bytes of the largest range that one binding holds.
    """

    classes: Mapping[str, int]
    parameters: int
    trainable: int
    dispatches: Mapping[str, int]
    largest_binding: int

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(self.classes.values())

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "classes": dict(self.classes),
            "total": self.total,
            "parameters": self.parameters,
            "trainable": self.trainable,
            "dispatches": dict(self.dispatches),
            "largest_binding": self.largest_binding,
        }


def plan(compiled: Compiled) -> Plan:
    """Price a compiled run."""
    program = compiled.program
    sizes = {p: _count(program, p) for p in compiled.params}
    return Plan(
        _classes(program),
        sum(sizes.values()),
        sum(n for p, n in sizes.items() if compiled.params[p].trainable),
        {name: len(s.commands) for name, s in program.sequences.items()},
        max(
            (r.size for s in program.sequences.values() for c in s.commands for r in getattr(c, "binds", ())), default=0
        ),
    )


def _classes(program: StepProgram) -> dict[str, int]:
    found = program.bytes_by_kind()
    slots = program.meta["slots"]
    rows = {name: found.get(kind, 0) for kind, name in CLASSES.items()}
    out = {k: rows.pop(k) for k in ("parameters", "gradients", "optimizer state")}
    out |= {"activations": slots["activations"], "working memory": slots["working"]}
    return out | {k: n for k, n in rows.items() if n}


def _count(program: StepProgram, name: str) -> int:
    count = 1
    for size in program.tensors[name].shape:
        count *= size
    return count
