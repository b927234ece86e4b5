"""The L3 block graph: instances of layer blocks, their ports, parameters by path; its builder and rewrites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scellis_core.blocks.contracts import Block, InputSpec, Layer
from scellis_core.blocks.patterns import match_path
from scellis_core.errors import ContractError, nearest


def place(where: str, path: str, block_id: str) -> str:
    """Where a block stands, for errors: ``run.sml:5:8 graph.h: block h (layer/linear@1)``."""
    inner = f"block {path} ({block_id})"
    return f"{where}: {inner}" if where else inner


@dataclass(frozen=True)
class Ref:
    """An output ``port`` of the instance at ``path``; a graph input has path ``""`` and its name as port."""

    path: str
    port: str = "y"

    def __str__(self) -> str:
        return f"{self.path}.{self.port}" if self.path else self.port


@dataclass
class Instance:
    """One use of a layer block.

    Attributes:
        path: ``blocks.0.attn.q``; its parameters are ``<path>.<name>``.
        layer: the resolved block.
        params: the validated parameters.
        inputs: refs by port (several where the port is variadic).
        where: place in the record, for errors.
    """

    path: str
    layer: Layer
    params: Any
    inputs: dict[str, tuple[Ref, ...]]
    where: str = ""


@dataclass
class BlockGraph:
    """Instances in execution order.

    Attributes:
        resolve: block id and raw parameters -> (block, validated parameters).
        inputs: graph inputs.
        instances: by path, in order.
        outputs: by name.
        groups: path of each composite -> its block id (for printing as a tree).
        ties: parameter path -> the path whose tensor it shares.
        frozen: patterns of parameters that are not trained; later entries win (``True`` freezes).
    """

    resolve: Callable[[str, Mapping[str, Any], str], tuple[Block, Any]]
    inputs: dict[str, InputSpec] = field(default_factory=dict[str, InputSpec])
    instances: dict[str, Instance] = field(default_factory=dict[str, Instance])
    outputs: dict[str, Ref] = field(default_factory=dict[str, Ref])
    groups: dict[str, str] = field(default_factory=dict[str, str])
    ties: dict[str, str] = field(default_factory=dict[str, str])
    frozen: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])

    def is_frozen(self, path: str) -> bool:
        """Whether a parameter is kept as it is."""
        state = False
        for pattern, value in self.frozen:
            if match_path(pattern, path):
                state = value
        return state

    def freeze(self, pattern: str, value: bool = True) -> None:
        """Freeze (or with ``value=False`` thaw) the parameters that match."""
        self.frozen.append((pattern, value))

    def tie(self, path: str, to: str) -> None:
        """Let parameter ``path`` be the same tensor as parameter ``to``."""
        self.ties[path] = to

    def match(self, pattern: str) -> list[str]:
        """Paths of instances that match, in order."""
        return [p for p in self.instances if match_path(pattern, p)]

    def add(
        self,
        path: str,
        block_id: str,
        params: Mapping[str, Any],
        inputs: Mapping[str, Sequence[Ref]],
        *,
        where: str = "",
        before: str | None = None,
    ) -> Ref | tuple[Ref, ...]:
        """Add an instance (a composite is expanded); returns its output refs.

        Raises:
            ContractError: if the path is taken, a port is unknown or a required one is missing.
        """
        block, validated = self.resolve(block_id, params, where)
        if not isinstance(block, Layer):
            raise ContractError(place(where, path, block_id), "a layer block", f"{block_id} of family {block.family}")
        if path in self.instances or path in self.groups:
            raise ContractError(place(where, path, block.id), "a new instance path", f"{path}, which is taken")
        self._check_ports(path, block, inputs, where)
        if block.compose is not None:
            self.groups[path] = block.id
            ports = {p.name: self._port_value(p.variadic, inputs.get(p.name, ())) for p in block.ports}
            return block.compose(Compose(self, path, where), validated, **ports)
        instance = Instance(path, block, validated, {k: tuple(v) for k, v in inputs.items() if v}, where)
        if before is None:
            self.instances[path] = instance
        else:
            rebuilt: dict[str, Instance] = {}
            for key, old in self.instances.items():
                if key == before:
                    rebuilt[path] = instance
                rebuilt[key] = old
            self.instances = rebuilt
        refs = tuple(Ref(path, name) for name in block.outputs)
        return refs[0] if len(refs) == 1 else refs

    def replace(self, path: str, block_id: str, params: Mapping[str, Any]) -> None:
        """Put another layer at a path, with the same connections; parameters of equal name and shape carry over."""
        old = self.instances[path]
        block, validated = self.resolve(block_id, params, old.where)
        if not isinstance(block, Layer) or block.lower is None:
            raise ContractError(place(old.where, path, block_id), "a layer block that lowers to ops", block.family)
        self._check_ports(path, block, old.inputs, old.where)
        self.instances[path] = Instance(path, block, validated, old.inputs, old.where)

    def rewire(self, old: Ref, new: Ref, *, but: Sequence[str] = ()) -> None:
        """Let every consumer of ``old`` (and the graph outputs) read ``new``, except the instances in ``but``.

        Instances are put back into execution order.
        """
        for instance in self.instances.values():
            if instance.path not in but:
                instance.inputs = {
                    k: tuple(new if r == old else r for r in refs) for k, refs in instance.inputs.items()
                }
        self.outputs = {k: new if r == old else r for k, r in self.outputs.items()}
        self._sort()

    def _sort(self) -> None:
        done: dict[str, Instance] = {}
        pending = dict(self.instances)
        while pending:
            ready = [
                p
                for p, i in pending.items()
                if all(r.path == "" or r.path in done for refs in i.inputs.values() for r in refs)
            ]
            if not ready:
                raise ContractError("block graph", "no cycle", f"one among {', '.join(pending)}")
            done[ready[0]] = pending.pop(ready[0])
        self.instances = done

    def _check_ports(self, path: str, layer: Layer, inputs: Mapping[str, Sequence[Ref]], where: str) -> None:
        names = [p.name for p in layer.ports]
        at = place(where, path, layer.id)
        for name in inputs:
            if name not in names:
                raise ContractError(at, f"a port of {layer.id}", repr(name), nearest(name, names))
        for port in layer.ports:
            given = inputs.get(port.name, ())
            if not given and not port.optional:
                raise ContractError(at, f"input {port.name!r} of {layer.id}", "nothing connected")
            if len(given) > 1 and not port.variadic:
                raise ContractError(at, f"one value at port {port.name!r}", f"{len(given)}")

    @staticmethod
    def _port_value(variadic: bool, refs: Sequence[Ref]) -> Any:
        if variadic:
            return tuple(refs)
        return refs[0] if refs else None


class Compose:
    """The builder given to composite layers and models: adds blocks below one path."""

    def __init__(self, graph: BlockGraph, path: str, where: str = "") -> None:
        self.graph, self.path, self._where = graph, path, where

    def add(
        self, name: str, block_id: str, /, *inputs: Ref, params: Mapping[str, Any] | None = None, **ports: Any
    ) -> Any:
        """Add a block ``name`` here: positional refs go to its ports in order, keywords by port name.

        A variadic port takes all remaining positional refs, or a tuple by keyword. Returns its output ref(s).
        """
        path = f"{self.path}.{name}" if self.path else name
        block, _ = self.graph.resolve(block_id, params or {}, self._where)
        given: dict[str, tuple[Ref, ...]] = {}
        rest = list(inputs)
        if isinstance(block, Layer):
            for port in block.ports:
                if port.name in ports:
                    continue
                if port.variadic:
                    given[port.name], rest = tuple(rest), []
                elif rest:
                    given[port.name] = (rest.pop(0),)
        if rest:
            raise ContractError(
                place(self._where, path, block.id), f"at most the ports of {block.id}", f"{len(inputs)} inputs"
            )
        for key, value in ports.items():
            if value is not None:
                given[key] = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        return self.graph.add(path, block_id, params or {}, given, where=self._where)

    def scope(self, name: str) -> Compose:
        """A builder one level down: ``g.scope("blocks.0")``."""
        return Compose(self.graph, f"{self.path}.{name}" if self.path else name, self._where)

    def tie(self, name: str, to: str) -> None:
        """Tie parameter ``name`` to parameter ``to``, both relative to this builder's path."""
        prefix = f"{self.path}." if self.path else ""
        self.graph.tie(prefix + name, prefix + to)
