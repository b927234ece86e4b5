"""From the record's architecture to the block graph: a model block, or an explicit graph of blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from scellis_core.blocks import Block, BlockGraph, Compose, DataSpec, InputSpec, Layer, Model, Port, Ref
from scellis_core.blocks.graph import place
from scellis_core.catalog import Catalog, unknown_parameter, validate
from scellis_core.errors import ContractError, RecordError, nearest
from scellis_core.model.trace import call_block
from scellis_core.record import GraphNode, GraphView, Record, Source


def checked_params(record: Record, path: tuple[str | int, ...], block: Block, raw: Mapping[str, Any]) -> Any:
    """Validate the parameters of the block at a path of the record.

    Args:
        record: the record.
        path: where the block stands.
        block: the block.
        raw: its parameters as written.

    Raises:
        RecordError: an unknown parameter or a wrong value, at its line and column.
    """
    unknown = unknown_parameter(block, raw)
    if unknown is not None:
        key, hint = unknown
        raise record.error((*path, key), f"a parameter of {block.id}", repr(key), hint, key=True)
    try:
        return block.params.model_validate_json(json.dumps(dict(raw)), strict=True)
    except ValidationError as error:
        raise _whole(record.where(path), error) or record.fault(path, error, block.params) from None


def _whole(where: str, error: ValidationError) -> RecordError | None:
    """The error of parameters that are each valid but do not fit together; None for any other."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["loc"] or first["type"] != "value_error":
        return None
    problem = str(first["msg"]).removeprefix("Value error, ")
    return RecordError(where, "parameters that fit each other", problem)


def resolver(catalog: Catalog) -> Callable[[str, Mapping[str, Any], str], tuple[Block, Any]]:
    """The ``resolve`` of a block graph; equal requests are validated once."""
    known: dict[tuple[str, str], tuple[Block, Any]] = {}

    def resolve(block_id: str, raw: Mapping[str, Any], where: str) -> tuple[Block, Any]:
        try:
            key = (block_id, json.dumps(raw))
        except (TypeError, ValueError) as error:
            got = " ".join(str(error).split())
            raise ContractError(where or block_id, f"plain data as parameters of {block_id}", got) from error
        if key not in known:
            block = catalog.resolve(block_id, where)
            shown = f"{where}: {block_id}" if where else block_id
            known[key] = (block, validate(block, raw, lambda path: ".".join(map(str, (shown, *path)))))
        return known[key]

    return resolve


def build_graph(record: Record, catalog: Catalog, data: DataSpec | None) -> BlockGraph:
    """Make the block graph of a record's architecture.

    Args:
        record: with an architecture of either form.
        catalog: where blocks are found.
        data: what the data gives, where the record has data; its inputs must be the architecture's.

    Raises:
        RecordError: at the line of the fault: parameters, wiring, or inputs that data and architecture disagree on.
        ContractError: a composing block breaks its contract.
    """
    graph = BlockGraph(resolver(catalog))
    view = record.graph()
    if view is not None:
        _explicit(graph, record, catalog, view, data)
    elif record.spec.architecture is not None:
        _model(graph, record, catalog, data)
    else:
        hint = "saving it first, or an architecture of its own"
        raise record.error("model", "an architecture", f"the name of a stored model, {record.spec.model}", hint)
    return graph


def _model(graph: BlockGraph, record: Record, catalog: Catalog, data: DataSpec | None) -> None:
    ref = record.spec.architecture
    if ref is None:
        return
    block = catalog.resolve_as(Model, ref.block_id, record.where("architecture.block_id"))
    params = checked_params(record, ("architecture",), block, ref.params)
    where = record.where("architecture")
    declared = _declared(block, params, where)
    if declared is None:
        if data is None:
            got = "no data"
            raise RecordError(where, f"data, whose examples {block.id} takes its input sizes from", got, "adding data:")
        if "x" not in data.inputs:
            got = ", ".join(data.inputs) or "none"
            raise RecordError(record.where("data"), f"data with an input x, as {block.id} reads", got)
        declared = {"x": data.inputs["x"]}
    graph.inputs = _agree(record, declared, data, lambda name: where, f"{block.id}")
    inputs = {name: Ref("", name) for name in graph.inputs}
    for name, found in _built(
        block, Compose(graph, "", where), params, inputs, place(where, "model", block.id)
    ).items():
        graph.outputs[name] = found


def _declared(block: Model, params: Any, where: str) -> dict[str, InputSpec] | None:
    if block.inputs is None:
        return None
    return dict(call_block(place(where, "model", block.id), block.inputs, params))


def _built(block: Model, g: Compose, params: Any, inputs: Mapping[str, Ref], where: str) -> dict[str, Ref]:
    found = call_block(where, block.build, g, params, inputs)
    if not isinstance(found, Mapping) or not found or not all(isinstance(r, Ref) for r in found.values()):
        raise ContractError(where, "outputs as a mapping of names to refs", f"{found!r}"[:60])
    return dict(found)


def _agree(
    record: Record,
    declared: Mapping[str, InputSpec],
    data: DataSpec | None,
    where: Callable[[str], str],
    owner: str,
) -> dict[str, InputSpec]:
    """The graph's inputs: as declared, and as the data gives them."""
    inputs: dict[str, InputSpec] = {}
    for name, spec in declared.items():
        inputs[name] = spec
        if data is None:
            continue
        given = data.inputs.get(name)
        if given is None:
            hint = nearest(name, data.inputs)
            raise RecordError(where(name), f"an input that the data has ({', '.join(data.inputs)})", repr(name), hint)
        if given.shape != spec.shape or given.dtype != spec.dtype:
            expected = f"input {name} as {record.where('data')} gives it, {_shown(given)}"
            raise RecordError(where(name), expected, f"{_shown(spec)} of {owner}", "equal sizes in both")
        limits = [s.limit for s in (given, spec) if s.limit is not None]
        if given.limit is not None and spec.limit is not None and given.limit > spec.limit:
            expected = f"ids of input {name} as {record.where('data')} gives them, up to {given.limit - 1}"
            raise RecordError(where(name), expected, f"a table of {spec.limit}", f"a size of {given.limit}")
        inputs[name] = InputSpec(spec.shape, spec.dtype, min(limits) if limits else None)
    return inputs


def _shown(spec: InputSpec) -> str:
    return f"{spec.dtype}[{', '.join(map(str, ('batch', *spec.shape)))}]"


def _explicit(graph: BlockGraph, record: Record, catalog: Catalog, view: GraphView, data: DataSpec | None) -> None:
    declared: dict[str, InputSpec] = {}
    for name, spec in view.inputs.items():
        path = ("inputs", name, "shape")
        sizes = [n for n in spec.shape if isinstance(n, int)]
        if spec.shape[0] != "batch":
            hint = "[" + ", ".join(["batch", *map(str, sizes)]) + "]"
            raise record.error((*path, 0), "batch as the first dimension", None, hint)
        declared[name] = InputSpec(tuple(sizes), spec.dtype)
    graph.inputs = _agree(record, declared, data, lambda name: record.where(("inputs", name)), "this graph")
    outputs: dict[str, dict[str, Ref]] = {name: {"": Ref("", name)} for name in graph.inputs}
    for name, node in view.nodes.items():
        block = catalog.resolve(node.block.block_id, record.where((*node.path, "block_id")))
        params = checked_params(record, node.path, block, node.block.params)
        where = record.where(node.path)
        if isinstance(block, Layer):
            ports = _connect(record, node, block.id, block.ports, outputs)
            found = _added(graph, name, block, node.block.params, ports, where)
        elif isinstance(block, Model):
            wanted = tuple(Port(n) for n in (_declared(block, params, where) or {"x": None}))
            ports = _connect(record, node, block.id, wanted, outputs)
            inputs = {port: refs[0] for port, refs in ports.items()}
            graph.groups[name] = block.id
            found = _built(block, Compose(graph, name, where), params, inputs, place(where, name, block.id))
        else:
            raise record.error(
                (*node.path, "block_id"), "a layer or model block", f"{block.id} of family {block.family}"
            )
        outputs[name] = found
    for name, source in view.outputs.items():
        graph.outputs[name] = _ref(record, source, outputs)


def _added(
    graph: BlockGraph, name: str, block: Layer, raw: Mapping[str, Any], ports: Mapping[str, Sequence[Ref]], where: str
) -> dict[str, Ref]:
    def add() -> Any:
        return graph.add(name, block.id, raw, ports, where=where)

    found = call_block(place(where, name, block.id), add)
    refs = found if isinstance(found, tuple) else (found,)
    if len(refs) != len(block.outputs):
        raise ContractError(place(where, name, block.id), f"{len(block.outputs)} output(s)", f"{len(refs)}")
    return dict(zip(block.outputs, refs, strict=True))


def _connect(
    record: Record, node: GraphNode, block_id: str, ports: Sequence[Port], outputs: Mapping[str, Mapping[str, Ref]]
) -> dict[str, tuple[Ref, ...]]:
    """What each port of a node reads."""
    found: dict[str, tuple[Ref, ...]] = {}
    names = [p.name for p in ports]
    free = list(ports)
    for source in node.sources:
        ref = _ref(record, source, outputs)
        if source.to is not None:
            if source.to not in names:
                raise record.error(
                    source.path, f"a port of {block_id}", repr(source.to), nearest(source.to, names), key=True
                )
            found[source.to] = (ref,)
        elif not free:
            many = f"{len(names)} input{'' if len(names) == 1 else 's'} of {block_id} ({', '.join(names)})"
            raise record.error(source.path, f"at most {many}", f"{len(node.sources)}: {source}")
        else:
            found[free[0].name] = (*found.get(free[0].name, ()), ref)
            if not free[0].variadic:
                free.pop(0)
    for port in ports:
        if port.name not in found and not port.optional:
            shown = f"in: {{ {port.name}: ... }}" if len(ports) > 1 else "in: the name of a node or input"
            given = ", ".join(map(str, node.sources)) or "nothing"
            raise record.error((*node.path, "in"), f"input {port.name} of {block_id}", given, shown)
    return found


def _ref(record: Record, source: Source, outputs: Mapping[str, Mapping[str, Ref]]) -> Ref:
    found = outputs[source.name]
    if source.port is not None:
        if source.port not in found:
            expected = f"an output of {source.name} ({', '.join(found)})"
            raise record.error(source.path, expected, repr(str(source)), nearest(source.port, found))
        return found[source.port]
    if len(found) > 1:
        names = ", ".join(f"{source.name}.{port}" for port in found)
        raise record.error(
            source.path, f"one of the outputs {names}", repr(source.name), f"{source.name}.{next(iter(found))}"
        )
    return next(iter(found.values()))
