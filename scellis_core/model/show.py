"""L3 in text: the block graph as a tree of paths."""

from __future__ import annotations

from dataclasses import dataclass, field

from scellis_core.blocks import BlockGraph, Instance
from scellis_core.ir import Type
from scellis_core.model.resolve import probe
from scellis_core.model.trace import TensorMeta, Tracing


@dataclass
class _Branch:
    children: dict[str, _Branch] = field(default_factory=lambda: dict[str, _Branch]())
    instance: Instance | None = None


def print_blocks(graph: BlockGraph) -> str:
    """The block graph as a tree: blocks with what they read, and their tensors.

    A parameter is shown with type and element count, and as ``frozen`` or ``tied to`` another where it is.

    Args:
        graph: from :attr:`scellis_core.model.ResolvedRun.graph`.

    Raises:
        RecordError: shapes do not fit.
    """
    found = probe(graph)
    lines: list[str] = []
    for name, spec in graph.inputs.items():
        limit = f", ids below {spec.limit}" if spec.limit is not None else ""
        lines.append(f"input {name}: {spec.dtype}[{', '.join(map(str, ('batch', *spec.shape)))}]{limit}")
    root = _Branch()
    for path, instance in graph.instances.items():
        branch = root
        for part in path.split("."):
            branch = branch.children.setdefault(part, _Branch())
        branch.instance = instance
    _print(lines, graph, found, root, "", "")
    lines += [f"output {name}: {ref}" for name, ref in graph.outputs.items()]
    sizes = [(m.numel, m.trainable) for m in found.params.values()]
    trained, total = sum(n for n, t in sizes if t), sum(n for n, _ in sizes)
    lines.append(f"parameters: {total:,} in {len(sizes)} tensors; trainable {trained:,}, frozen {total - trained:,}")
    return "\n".join(lines) + "\n"


def _print(lines: list[str], graph: BlockGraph, found: Tracing, branch: _Branch, path: str, indent: str) -> None:
    for part, child in branch.children.items():
        here = f"{path}.{part}" if path else part
        instance = child.instance
        if instance is None:
            block = f"  {graph.groups[here]}" if here in graph.groups else ""
            lines.append(f"{indent}{part}{block}")
        else:
            lines.append(f"{indent}{part}  {_describe(instance)}")
            lines += [f"{indent}  {line}" for line in _tensors(here, found)]
        _print(lines, graph, found, child, here, indent + "  ")


def _describe(instance: Instance) -> str:
    given = [
        ", ".join(map(str, refs)) if len(instance.layer.ports) == 1 else f"{port}: {', '.join(map(str, refs))}"
        for port, refs in instance.inputs.items()
    ]
    params = instance.params
    own = [f"{name}={getattr(params, name)!r}" for name in type(params).model_fields if name in params.model_fields_set]
    return "  ".join(t for t in (instance.layer.id, f"({'; '.join(given)})", " ".join(own)) if t)


def _tensors(path: str, found: Tracing) -> list[str]:
    lines: list[str] = []
    for name, meta in found.params.items():
        if meta.block == path:
            lines.append(_line(name.removeprefix(path + "."), meta, "" if meta.trainable else "  frozen"))
    for alias, owner in found.aliases.items():
        if alias.rpartition(".")[0] == path:
            lines.append(f"{alias.removeprefix(path + '.')}: tied to {owner}")
    for name, meta in found.states.items():
        if meta.block == path:
            lines.append(_line(name.removeprefix(f"state:{path}."), meta, "  state"))
    return lines


def _line(name: str, meta: TensorMeta, note: str) -> str:
    return f"{name}: {Type(meta.dtype, meta.shape)}  {meta.numel:,}{note}"
