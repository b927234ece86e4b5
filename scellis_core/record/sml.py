"""SML, the strict subset of YAML 1.2 that records are written in.

The text becomes a tree of nodes that know their line, column and offsets, so that every later error names its
place and an edit touches only the characters it changes. ruamel.yaml reads the events; the subset, the scalar
rules (YAML 1.2 core schema) and the printer are here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from scellis_core.errors import RecordError
from scellis_core.record.syntax import syntax_error

Scalar: TypeAlias = "bool | int | float | str | None"
Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"
Path: TypeAlias = "tuple[str | int, ...]"

MAX_DEPTH = 32
"""Deepest nesting of collections."""
MAX_CHARS = 4 * 1024 * 1024
"""Longest text."""
MAX_INT = 2**53 - 1
"""Largest magnitude of an integer, so that a browser reads the same record."""

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"([-+]?)\.(?:inf|Inf|INF)\Z")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
_FORBIDDEN = re.compile(
    "[^\\t\\n\\r\\x20-\\x7e\\xa0-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010ffff]"
)
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./@+-]*\Z")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./@-]*\Z")
_OLD_BOOL = frozenset({"y", "n", "yes", "no", "on", "off"})
COLON = re.compile(r"\s*:")
"""What stands between a key and its value."""
_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Key:
    """Where a key of a mapping stands: line and column from 1, offsets in characters."""

    line: int
    column: int
    start: int
    end: int


@dataclass(slots=True)
class Node:
    """One value of the text with its place."""

    kind: Literal["scalar", "list", "map"]
    line: int
    column: int
    start: int
    end: int
    flow: bool = False
    style: str = ""
    scalar: Scalar = None
    items: list[Node] = field(default_factory=lambda: [])
    entries: dict[str, tuple[Key, Node]] = field(default_factory=lambda: {})

    def data(self) -> Value:
        """Return the value as plain Python objects."""
        if self.kind == "map":
            return {key: node.data() for key, (_, node) in self.entries.items()}
        if self.kind == "list":
            return [node.data() for node in self.items]
        return self.scalar

    def child(self, part: str | int) -> Node | None:
        """Return the value of a key or the item of an index, or None."""
        if self.kind == "map":
            entry = self.entries.get(str(part))
            return entry[1] if entry else None
        if self.kind == "list" and isinstance(part, int) and 0 <= part < len(self.items):
            return self.items[part]
        return None


def show_path(path: Sequence[str | int]) -> str:
    """Return a path as dotted text, such as ``peft.0.rank``."""
    return ".".join(str(part) for part in path)


@dataclass(slots=True)
class Document:
    """A text, its tree and its name: the map from paths to lines and columns.

    Args:
        name: the file's name as errors show it.
        text: the whole text.
        root: the tree.
        origins: top-level keys that another document gave (a stored model), whose places are named instead.
        overrides: paths that were set after reading, and so have no place in the file.
    """

    name: str
    text: str
    root: Node
    origins: Mapping[str, Document] = field(default_factory=lambda: {})
    overrides: tuple[Path, ...] = ()

    def path(self, dotted: str | Path) -> Path:
        """Return the parts of a path.

        A number is an index where a list stands, and ``loss.0`` is ``loss`` where that is one mapping.
        """
        rest: list[str | int] = [*dotted.split(".")] if isinstance(dotted, str) and dotted else list(dotted)
        parts: list[str | int] = []
        node: Node | None = self.root
        while rest:
            part = rest.pop(0)
            if node is not None and node.kind == "map":
                if isinstance(dotted, str) and part not in node.entries:
                    for n in range(len(rest), 0, -1):
                        joined = ".".join([str(part), *map(str, rest[:n])])
                        if joined in node.entries:
                            part, rest = joined, rest[n:]
                            break
                if parts == ["loss"] and str(part) == "0" and "0" not in node.entries:
                    continue
            elif isinstance(part, str) and part.isascii() and part.isdecimal():
                part = int(part)
            parts.append(part)
            node = node.child(part) if node is not None else None
        return tuple(parts)

    def find(self, path: Path) -> Node | None:
        """Return the node at a path, or None."""
        node: Node | None = self.root
        for part in path:
            node = node.child(part) if node is not None else None
        return node

    def place(self, path: Path, *, key: bool = False) -> tuple[int, int]:
        """Return line and column of a value (or of its key); of the nearest value around it where it is absent."""
        node, at = self.root, (self.root.line, self.root.column)
        for i, part in enumerate(path):
            child = node.child(part)
            if child is None:
                break
            at = (child.line, child.column)
            if node.kind == "map" and ((key and i == len(path) - 1) or child.start == child.end):
                found = node.entries[str(part)][0]
                at = (found.line, found.column)
            node = child
        return at

    def where(self, path: Path, *, key: bool = False) -> str:
        """Return the place of a path as errors show it: ``run.sml:8:14 optimizer.lr``."""
        shown = show_path(path)
        if any(path[: len(p)] == p for p in self.overrides):
            return f"override {shown}"
        if path and str(path[0]) in self.origins:
            return self.origins[str(path[0])].where(path, key=key)
        line, column = self.place(path, key=key)
        return f"{self.name}:{line}:{column} {shown}".rstrip()

    def got(self, path: Path) -> str:
        """Return how an error shows the value at a path."""
        node = self.find(path)
        return "nothing" if node is None else show_node(node, self.text)


def show_node(node: Node, text: str) -> str:
    """Return a short description of a value for an error."""
    if node.kind == "map":
        keys = list(node.entries)
        return (
            "a mapping of " + ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "") if keys else "an empty mapping"
        )
    if node.kind == "list":
        n = len(node.items)
        return f"a list of {n} item{'' if n == 1 else 's'}" if n else "an empty list"
    raw = text[node.start : node.end]
    if node.scalar is None:
        return raw or "nothing"
    if isinstance(node.scalar, str):
        return show_text(node.scalar)
    return raw if not node.style else show_value(node.scalar)


def show_text(text: str, limit: int = 60) -> str:
    """Return text in single quotes, cut where it is long."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def show_value(value: object) -> str:
    """Return a plain Python value as an error shows it."""
    if isinstance(value, str):
        return show_text(value)
    if isinstance(value, Mapping | list | tuple):
        return print_flow(plain(cast("object", value)))
    return print_scalar(value) if value is None or isinstance(value, bool | int | float) else repr(value)


def resolve(text: str) -> Scalar:
    """Return the value of a plain scalar by the YAML 1.2 core schema.

    ``3e-4``, ``1e-4``, ``.5`` and ``5.`` are numbers; ``no``, ``on`` and ``1_000`` are text.

    Raises:
        OverflowError: an integer beyond 2^53 - 1, or a number beyond the range of f64.
    """
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.match(text):
        if len(text) > 40:
            raise OverflowError("an integer within 2^53 - 1")
        number = int(text[2:], 8 if text[1] == "o" else 16) if text[:2] in ("0o", "0x") else int(text)
        if abs(number) > MAX_INT:
            raise OverflowError("an integer within 2^53 - 1")
        return number
    if _FLOAT.match(text):
        value = float(text)
        if math.isinf(value):
            raise OverflowError("a number within the range of f64")
        return value
    if sign := _INF.match(text):
        return -math.inf if sign[1] == "-" else math.inf
    return math.nan if text in _NAN else text


# reading -----------------------------------------------------------------------------------------------------------


def parse(text: str, name: str = "run.sml") -> Document:
    """Read SML text into a document.

    Args:
        text: the text; a byte order mark at its start is skipped.
        name: the name that errors show.

    Returns:
        The document; its root may be of any kind.

    Raises:
        RecordError: the text is not YAML, or uses what SML leaves out (anchors, aliases, tags, merge keys, duplicate
            keys, keys that are not text, directives, several documents), or nests too deep.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARS:
        raise RecordError(name, f"at most {MAX_CHARS} characters", f"{len(text)}", "keeping data in files of its own")
    if bad := _FORBIDDEN.search(text):
        line, column = line_column(text, bad.start())
        raise RecordError(
            f"{name}:{line}:{column}",
            "printable text",
            f"character U+{ord(bad[0]):04X}",
            f'an escape in double quotes: "{_escape(bad[0])}"',
        )
    try:
        return Document(name, text, _Reader(text, name).read())
    except MarkedYAMLError as error:
        raise syntax_error(error, text, name) from None
    except (YAMLError, ValueError) as error:
        raise RecordError(name, "YAML 1.2", " ".join(str(error).split())) from None


def line_column(text: str, index: int) -> tuple[int, int]:
    """Return line and column, from 1, of an offset in characters."""
    line, start = 1, 0
    for found in _BREAK.finditer(text, 0, index):
        line, start = line + 1, found.end()
    return line, index - start + 1


class _Reader:
    """Builds the tree from ruamel.yaml's events and refuses what SML leaves out."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        yaml: Any = YAML(typ="safe", pure=True)
        self.events: Iterator[Any] = iter(yaml.parse(text))

    def read(self) -> Node:
        root: Node | None = None
        for event in self.events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                if root is not None:
                    raise self.refuse(event, (), "one document", "a second one", "a file for each record")
                if event.version or event.tags:
                    raise RecordError(
                        f"{self.name}:1:1", "no % directives", "one", "removing the line that starts with %"
                    )
                root = self.node(next(self.events), ())
        if root is None:
            raise RecordError(f"{self.name}:1:1", "a mapping of keys", "an empty file", "starting with: sml: 1")
        return root

    def refuse(self, event: Any, path: Path, expected: str, got: str, hint: str) -> RecordError:
        mark = event.start_mark
        where = f"{self.name}:{mark.line + 1}:{mark.column + 1} {show_path(path)}".rstrip()
        return RecordError(where, expected, got, hint)

    def node(self, event: Any, path: Path) -> Node:
        start, kind = event.start_mark, type(event).__name__
        raw = self.text[start.index : event.end_mark.index]
        if kind == "AliasEvent":
            raise self.refuse(event, path, "no aliases", raw, f'quotes: "{raw}"')
        if event.anchor is not None:
            raise self.refuse(event, path, "no anchors", f"&{event.anchor}", "quotes around text that starts with &")
        if event.tag is not None and (kind != "ScalarEvent" or raw.startswith("!")):
            raise self.refuse(
                event,
                path,
                "no tags",
                raw.split()[0] if raw.startswith("!") else str(event.tag),
                "quotes around text that starts with !",
            )
        node = Node("scalar", start.line + 1, start.column + 1, start.index, event.end_mark.index)
        if kind == "ScalarEvent":
            node.style = event.style or ""
            node.scalar = self.scalar(event, path)
            return node
        if len(path) >= MAX_DEPTH:
            raise self.refuse(event, path[:3], f"at most {MAX_DEPTH} levels of nesting", "more", "a flatter record")
        node.flow = bool(event.flow_style)
        if kind == "SequenceStartEvent":
            node.kind = "list"
            while type(event := next(self.events)).__name__ != "SequenceEndEvent":
                item = self.node(event, (*path, len(node.items)))
                if item.start == item.end:
                    at = node.items[-1].end if node.items else node.start
                    dash = (
                        re.compile(rf"^ {{{node.column - 1}}}-", re.MULTILINE).search(self.text, at)
                        if node.items
                        else None
                    )
                    self.move(item, dash.end() if dash else at + 1)
                node.items.append(item)
            last = node.items[-1] if node.items else None
        else:
            node.kind = "map"
            while type(event := next(self.events)).__name__ != "MappingEndEvent":
                key, text = self.key(event, path, node)
                value = self.node(next(self.events), (*path, text))
                if value.start == value.end:
                    colon = COLON.match(self.text, key.end)
                    self.move(value, colon.end() if colon else key.end)
                node.entries[text] = (key, value)
            last = next(reversed(node.entries.values()))[1] if node.entries else None
        node.end = event.end_mark.index if node.flow or last is None else last.end
        return node

    def move(self, node: Node, index: int) -> None:
        """Put an empty value right after its key or dash; the event's own mark may be lines below."""
        node.start = node.end = index
        node.line, node.column = line_column(self.text, index)

    def key(self, event: Any, path: Path, node: Node) -> tuple[Key, str]:
        start = event.start_mark
        if type(event).__name__ != "ScalarEvent" or event.anchor is not None or event.tag is not None:
            raise self.refuse(event, path, "a key that is text", "something else", 'quotes around a key such as "*"')
        before = self.text[: start.index].rstrip(" ")[-1:]
        if before == "?" and self.text[start.index - 1] == " ":
            raise self.refuse(event, path, "a key written as key: value", "a key after ?", "removing the ?")
        text = self.scalar(event, path)
        if text == "<<" and not event.style:
            raise self.refuse(event, path, "no merge keys", "<<", "writing the keys out")
        if not isinstance(text, str):
            got = show_value(text) if text is not None else "nothing"
            raise self.refuse(event, path, "a key that is text", got, f'quotes: "{event.value}"')
        if text in node.entries:
            first = node.entries[text][0].line
            raise self.refuse(
                event, (*path, text), "each key once", f"it again (first at line {first})", "removing one of the two"
            )
        return Key(start.line + 1, start.column + 1, start.index, event.end_mark.index), text

    def scalar(self, event: Any, path: Path) -> Scalar:
        text = str(event.value)
        if any(0xD800 <= ord(c) <= 0xDFFF for c in text):
            raise self.refuse(event, path, "Unicode text", "half of a surrogate pair", "the character itself")
        if event.style:
            return text
        try:
            return resolve(text)
        except OverflowError as error:
            raise self.refuse(
                event, path, str(error), text if len(text) <= 40 else text[:37] + "...", "quotes, if it is text"
            ) from None


# printing ----------------------------------------------------------------------------------------------------------


def plain(value: object, path: Path = ()) -> Value:
    """Return a copy made of the types a record may hold.

    Args:
        value: mappings with text keys, lists, tuples, text, numbers, booleans and None, nested.
        path: where the value stands, for the error.

    Raises:
        RecordError: another type, a key that is not text, an integer beyond 2^53 - 1, or text that UTF-8 cannot hold.
    """
    where = show_path(path) or "record"
    if len(path) > MAX_DEPTH:
        raise RecordError(show_path(path[:3]), f"at most {MAX_DEPTH} levels of nesting", "more", "a flatter record")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise RecordError(where, "an integer within 2^53 - 1", str(value), "text, if it is a name")
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        if any(0xD800 <= ord(c) <= 0xDFFF for c in value):
            raise RecordError(where, "Unicode text", ascii(value), "text without lone surrogates")
        return str(value)
    if isinstance(value, Mapping):
        items: dict[str, Value] = {}
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            if not isinstance(key, str):
                raise RecordError(where, "keys that are text", repr(key), repr(str(key)))  # pyright: ignore[reportUnknownArgumentType]
            plain(key, path)
            items[key] = plain(item, (*path, key))  # pyright: ignore[reportUnknownArgumentType]
        return items
    if isinstance(value, list | tuple):
        return [plain(item, (*path, i)) for i, item in enumerate(value)]  # pyright: ignore
    raise RecordError(
        where, "text, a number, true, false, a list or a mapping", f"a {type(value).__name__}", "a plain value"
    )


def print_scalar(value: Scalar) -> str:
    """Return a scalar as SML; it reads back as the same value and type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return ".nan"
        if math.isinf(value):
            return ".inf" if value > 0 else "-.inf"
        mantissa, mark, exponent = repr(value).partition("e")
        return mantissa + (".0" if mark and "." not in mantissa else "") + mark + exponent
    if _PLAIN.match(value) and value.lower() not in _OLD_BOOL and isinstance(_try_resolve(value), str):
        return value
    return _quote(value)


def print_key(key: str) -> str:
    """Return a key as SML."""
    return key if _KEY.match(key) and isinstance(_try_resolve(key), str) else _quote(key)


def _try_resolve(text: str) -> Scalar:
    try:
        return resolve(text)
    except OverflowError:
        return 0


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _quote(text: str) -> str:
    out: list[str] = []
    for char in text:
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif _FORBIDDEN.match(char):
            out.append(_escape(char))
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


def print_flow(value: Value) -> str:
    """Return a value on one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{print_key(k)}: {print_flow(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(print_flow(v) for v in value) + "]"
    return print_scalar(value)


def dumps(data: Mapping[str, Value], width: int = 100) -> str:
    """Return a mapping as SML: one top-level key a line, flow style where it fits, block style where not.

    Args:
        data: the mapping; see :func:`plain` for the types.
        width: columns that a flow collection may reach.

    Returns:
        Text that reads back as the same data.
    """
    lines: list[str] = []
    for key, value in data.items():
        _print_entry(lines, "", print_key(key) + ":", value, width)
    return "\n".join(lines) + "\n" if lines else "{}\n"


def _print_entry(lines: list[str], indent: str, head: str, value: Value, width: int) -> None:
    flow = f"{indent}{head} {print_flow(value)}"
    if len(flow) <= width or not isinstance(value, dict | list) or not value:
        lines.append(flow)
        return
    lines.append(indent + head)
    if isinstance(value, dict):
        for key, item in value.items():
            _print_entry(lines, indent + "  ", print_key(key) + ":", item, width)
    else:
        for item in value:
            if isinstance(item, dict) and item and len(indent) + len(print_flow(item)) + 4 > width:
                first = len(lines)
                for key, entry in item.items():
                    _print_entry(lines, indent + "    ", print_key(key) + ":", entry, width)
                lines[first] = indent + "  - " + lines[first][len(indent) + 4 :]
            elif isinstance(item, list) and item and len(indent) + len(print_flow(item)) + 4 > width:
                _print_entry(lines, indent + "  ", "-", item, width)
            else:
                lines.append(f"{indent}  - {print_flow(item)}")
