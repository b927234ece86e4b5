"""The text form of a graph: one node a line, printed and parsed back without loss.

::

    graph micro draws=2 {
      %x = load "x" : f32[8, 64]
      %w = param "head.weight" : f32[10, 64]
      %h = matmul %x %w transpose_a=false transpose_b=true : f32[8, 10]  ; head
      store "state:h" %h
      output "logits" %h
    }

A name that is a string comes first, without ``name=``. Attributes ``shape`` and ``dtype`` that the type after
the colon repeats are left out. A comment at the end of a node's line is its block path; other comments are
ignored. Values without a name of their own are numbered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn

from scellis_core.errors import IRError, nearest
from scellis_core.ir.graph import OPS, Graph, Node, Value
from scellis_core.ir.types import DTYPES, Attr, Type

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_IMPLIED = ("shape", "dtype")


def print_graph(graph: Graph) -> str:
    """The graph as text; ``parse_graph`` gives an equal graph back.

    Raises:
        IRError: if a node reads a value that no earlier node defines, or a block path breaks its line.
    """
    names: dict[Value, str] = {}
    taken: set[str] = set()
    head = f"graph {_word(graph.name)}" + (f" draws={graph.draws}" if graph.draws else "")
    lines = [head + " {"]
    for node in graph.nodes:
        for value in node.outputs:
            name = value.name
            if not _NAME.match(name) or name in taken:
                name = str(len(names))
            taken.add(name)
            names[value] = name
        lines.append("  " + _node_text(node, names))
    for name, value in graph.outputs.items():
        lines.append(f"  output {_quote(name)} %{_known(names, value, f'{graph.name} output {name}')}")
    return "\n".join([*lines, "}"]) + "\n"


def _known(names: dict[Value, str], value: Value, where: str) -> str:
    if value not in names:
        raise IRError(where, "operands defined by an earlier node", repr(value), "topological order")
    return names[value]


def _node_text(node: Node, names: dict[Value, str]) -> str:
    where = f"{node.path or node.graph.name}: {node.op}"
    parts = [node.op]
    if "name" in node.attrs:
        parts.append(_quote(str(node.attrs["name"])))
    parts += [f"%{_known(names, v, where)}" for v in node.inputs]
    for key, item in node.attrs.items():
        if key == "name" or (key in _IMPLIED and _implied(node, key) == item):
            continue
        parts.append(f"{key}={_attr_text(item)}")
    text = " ".join(parts)
    if node.outputs:
        text = ", ".join(f"%{names[v]}" for v in node.outputs) + " = " + text
        text += " : " + ", ".join(str(v.type) for v in node.outputs)
    if node.path:
        if node.path != node.path.strip() or "\n" in node.path:
            raise IRError(where, "a block path of one line", repr(node.path))
        text += f"  ; {node.path}"
    return text


def _implied(node: Node, key: str) -> Attr | None:
    if len(node.outputs) != 1:
        return None
    type = node.outputs[0].type
    return type.shape if key == "shape" else type.dtype


def _word(name: str) -> str:
    return name if _NAME.match(name) and name not in ("inf", "nan") else _quote(name)


def _quote(text: str) -> str:
    return json.dumps(text)


def _attr_text(item: Attr) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, (int, float)):
        return repr(item)
    if isinstance(item, str):
        return _quote(item)
    inner = ", ".join(_attr_text(x) for x in item)
    return f"({inner},)" if len(item) == 1 else f"({inner})"


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<value>%[A-Za-z0-9_.]+)
      | (?P<number>-?(?:inf|nan|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(?![A-Za-z0-9_.]))
      | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<mark>[=:,(){}\[\]])""",
    re.VERBOSE,
)


class _Line:
    """The tokens of one line, read from left to right."""

    def __init__(self, text: str, number: int, source: str) -> None:
        self.number, self.source = number, source
        self.comment = ""
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text):
            if text[at] == ";":
                self.comment = text[at + 1 :].strip()
                break
            match = _TOKEN.match(text, at)
            if match is None:
                raise IRError(f"{source}:{number}:{at + 1}", "a token of IR text", repr(text[at : at + 12]))
            if match.lastgroup != "space":
                self.tokens.append((str(match.lastgroup), match.group(), at + 1))
            at = match.end()
        self.end = at + 1
        self.at = 0

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        kind, text, column = self.peek()
        raise IRError(
            f"{self.source}:{self.number}:{column}", expected, "the end of the line" if kind == "end" else text, hint
        )

    def peek(self) -> tuple[str, str, int]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "", self.end)

    def take(self, kind: str, expected: str) -> str:
        found, text, _ = self.peek()
        if found != kind:
            self.fail(expected)
        self.at += 1
        return text

    def mark(self, text: str) -> bool:
        """Take the mark if it comes next."""
        if self.peek()[:2] == ("mark", text):
            self.at += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.mark(text):
            self.fail(repr(text))

    def string(self) -> str:
        _, _, column = self.peek()
        raw = self.take("string", "a quoted name")
        try:
            return str(json.loads(raw))
        except ValueError:
            raise IRError(f"{self.source}:{self.number}:{column}", "a quoted name (JSON)", raw) from None

    def attribute(self) -> Attr:
        kind, text, _ = self.peek()
        if kind == "string":
            return self.string()
        if kind == "number":
            self.at += 1
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        if kind == "word" and text in ("true", "false"):
            self.at += 1
            return text == "true"
        if kind == "word" and text in ("inf", "nan"):
            self.at += 1
            return float(text)
        if self.mark("("):
            items: list[Attr] = []
            while not self.mark(")"):
                items.append(self.attribute())
                if not self.mark(","):
                    self.need(")")
                    break
            return tuple(items)
        self.fail("true, false, a number, a string or a tuple")

    def type(self) -> Type:
        dtype = self.take("word", "a type such as f32[2, 3]")
        if dtype not in DTYPES:
            self.at -= 1
            self.fail("a dtype", nearest(dtype, DTYPES))
        self.need("[")
        sizes: list[int] = []
        while not self.mark("]"):
            text = self.take("number", "a size")
            if not text.isdigit():
                self.at -= 1
                self.fail("a size")
            sizes.append(int(text))
            if not self.mark(","):
                self.need("]")
                break
        return Type(dtype, tuple(sizes))

    def done(self) -> None:
        if self.peek()[0] != "end":
            self.fail("the end of the line")


def parse_graph(text: str, source: str = "ir") -> Graph:
    """Read the text of one graph.

    Args:
        text: as :func:`print_graph` writes it.
        source: file name for errors.

    Raises:
        IRError: with line and column, if the text is no graph or its types are not what the ops yield.
    """
    graphs = parse_graphs(text, source)
    if len(graphs) != 1:
        raise IRError(source, "one graph", f"{len(graphs)}", "parse_graphs")
    return graphs[0]


def parse_graphs(text: str, source: str = "ir") -> list[Graph]:
    """Read the text of any number of graphs, in order.

    Raises:
        IRError: as :func:`parse_graph`.
    """
    lines = (_Line(t, n, source) for n, t in enumerate(text.split("\n"), 1))
    filled = (line for line in lines if line.tokens)
    return [_parse_body(line, filled, source) for line in filled]


def _parse_body(head: _Line, lines: Iterator[_Line], source: str) -> Graph:
    if head.take("word", "graph NAME {") != "graph":
        head.at -= 1
        head.fail("graph NAME {")
    graph = Graph(head.string() if head.peek()[0] == "string" else head.take("word", "a graph name"))
    while head.peek()[0] == "word":
        if head.take("word", "draws=N") != "draws":
            head.at -= 1
            head.fail("draws=N")
        head.need("=")
        draws = head.attribute()
        if isinstance(draws, bool) or not isinstance(draws, int) or draws < 0:
            head.at -= 1
            head.fail("a number of draws")
        graph.draws = draws
    head.need("{")
    head.done()
    values: dict[str, Value] = {}
    for line in lines:
        if line.mark("}"):
            line.done()
            return graph
        kind, word, _ = line.peek()
        if kind == "word" and word == "output":
            line.at += 1
            name = line.string()
            graph.output(name, _operand(line, values))
            line.done()
        else:
            _parse_node(line, graph, values)
    raise IRError(source, "} at the end of the graph", "the end of the text")


def _operand(line: _Line, values: dict[str, Value]) -> Value:
    name = line.take("value", "a value such as %x")[1:]
    if name not in values:
        line.at -= 1
        line.fail("a value defined above", nearest(name, values))
    return values[name]


def _parse_node(line: _Line, graph: Graph, values: dict[str, Value]) -> None:
    results: list[str] = []
    if line.peek()[0] == "value":
        while True:
            name = line.take("value", "a result such as %x")[1:]
            if name in values or name in results:
                line.at -= 1
                line.fail("a new name")
            results.append(name)
            if not line.mark(","):
                break
        line.need("=")
    op = line.take("word", "an op")
    if op not in OPS:
        line.at -= 1
        line.fail("a known op", nearest(op, OPS))
    attrs: dict[str, Attr] = {}
    if line.peek()[0] == "string":
        attrs["name"] = line.string()
    operands: list[Value] = []
    while line.peek()[0] == "value":
        operands.append(_operand(line, values))
    while line.peek()[0] == "word":
        key = line.take("word", "an attribute")
        if key in attrs:
            line.at -= 1
            line.fail("each attribute once")
        line.need("=")
        attrs[key] = line.attribute()
    types: list[Type] = []
    if results:
        line.need(":")
        types.append(line.type())
        while line.mark(","):
            types.append(line.type())
    line.done()
    if len(types) == 1:
        for key, item in (("shape", types[0].shape), ("dtype", types[0].dtype)):
            if key in OPS[op].attrs:
                attrs.setdefault(key, item)
    where = f"{line.source}:{line.number}"
    with graph.at(line.comment):
        try:
            outputs = graph.emit(op, operands, **attrs)
        except IRError as error:
            raise IRError(f"{where} {op}", error.expected, error.got, error.hint) from error
    found = [v.type for v in outputs]
    if found != types:
        expected = ", ".join(map(str, found)) or "no result"
        raise IRError(f"{where} {op}", expected, ", ".join(map(str, types)) or "no result")
    for name, value in zip(results, outputs, strict=True):
        value.name = "" if name.isdigit() else name
        values[name] = value
