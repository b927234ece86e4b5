"""Edits of SML text that touch only the characters they change, so that comments and layout stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from scellis_core.errors import RecordError, nearest
from scellis_core.record.sml import COLON, Document, Node, Path, Value, dumps, parse, print_flow, print_key, show_path

_COMMA = re.compile(r"\s*,[ \t]*")


def set_value(document: Document, path: Path, value: Value) -> str:
    """Return the text with the value at a path replaced, or added where the path ends in a new key.

    Args:
        document: the text and its tree.
        path: keys and list indices; mappings on the way are made where they are absent.
        value: the new value, written in flow style.

    Raises:
        RecordError: the path goes through a scalar, or names a list item that is not there.
    """
    if not path:
        raise RecordError(document.name, "the path of a key", "an empty path", "a path such as optimizer.lr")
    parent, depth = document.root, 0
    for depth, part in enumerate(path):
        child = parent.child(part)
        if child is None:
            break
        if depth == len(path) - 1:
            return _checked(document, path, value, _replace(document.text, parent, part, child, value))
        parent = child
    here, missing = path[:depth], path[depth:]
    for part in reversed(missing[1:]):
        if isinstance(part, int):
            raise RecordError(
                document.where(path), "an item that is there", "a list that is absent", "setting the whole list"
            )
        value = {part: value}
    part = missing[0]
    if parent.kind == "list" and part == len(parent.items):
        text = _append(document.text, parent, print_flow(value))
    elif parent.kind == "map" and isinstance(part, str):
        text = _append(document.text, parent, f"{print_key(part)}: {print_flow(value)}")
    elif parent.kind == "scalar" and parent.scalar is None and isinstance(part, str) and here:
        return set_value(document, here, {part: value})
    elif parent.kind == "list":
        raise RecordError(document.where(path), f"an index from 0 to {len(parent.items)}", repr(part))
    else:
        raise RecordError(document.where(path), f"a mapping at {show_path(here)}", document.got(here))
    return _checked(document, (*here, part), value, text)


def add_keys(document: Document, data: dict[str, Value]) -> Document:
    """Return a document with new top-level keys added after the last one."""
    if not data:
        return parse(document.text, document.name)
    if not document.root.flow and document.root.column == 1:
        text = _append(document.text, document.root, dumps(data).rstrip("\n").replace("\n", _newline(document.text)))
        whole = document.root.data()
        if isinstance(whole, dict):
            return parse(_verified(document, (next(iter(data)),), {**whole, **data}, text), document.name)
    for key, value in data.items():
        document = parse(set_value(document, (key,), value), document.name)
    return document


def remove(document: Document, path: Path) -> str:
    """Return the text without the key or item at a path.

    Raises:
        RecordError: nothing stands at the path.
    """
    parent = document.find(path[:-1]) if path else None
    child = document.find(path)
    if parent is None or child is None or not path:
        known = list(parent.entries) if parent is not None else []
        raise RecordError(
            document.where(path), "a key that is there", "nothing", nearest(str(path[-1]), known) if path else ""
        )
    text = document.text
    spans = _spans(parent, text)
    index = path[-1] if isinstance(path[-1], int) else list(parent.entries).index(path[-1])
    start, end = spans[index]
    if len(spans) == 1 and path[:-1] and not parent.flow:
        return set_value(document, path[:-1], {} if parent.kind == "map" else [])
    if parent.flow:
        if index + 1 < len(spans):
            end = spans[index + 1][0]
        elif index:
            start = spans[index - 1][1]
        elif comma := _COMMA.match(text, end):
            end = comma.end()
        result = text[:start] + text[end:]
    elif index + 1 < len(spans) and text[_line_start(text, start) : start].strip(" "):
        result = text[:start] + text[spans[index + 1][0] :]
    elif len(spans) == 1:
        result = text[:start] + "{}" + text[end:]
    else:
        begin = _line_start(text, start)
        stop = _line_end(text, _content_end(text, start, end))
        stop += len(_newline(text)) if stop < len(text) else 0
        if stop == len(text) and not text.endswith(("\n", "\r")) and begin:
            begin -= len(_newline(text))
        result = text[:begin] + text[stop:]
    data = document.root.data()
    _delete(data, path)
    return _verified(document, path, data, result)


def _delete(data: Value, path: Path) -> None:
    holder: Any = data
    for part in path[:-1]:
        holder = holder[part]
    del holder[path[-1]]


def _spans(node: Node, text: str) -> Sequence[tuple[int, int]]:
    if node.kind == "map":
        return [(key.start, max(key.end, value.end)) for key, value in node.entries.values()]
    if node.flow:
        return [(item.start, item.end) for item in node.items]
    spans: list[tuple[int, int]] = []
    dash = re.compile(rf"^ {{{node.column - 1}}}-", re.MULTILINE)
    start = node.start
    for item in node.items:
        if spans and (found := dash.search(text, spans[-1][1], item.start)):
            start = found.end() - 1
        spans.append((start, item.end))
    return spans


def _replace(text: str, parent: Node, part: str | int, child: Node, value: Value) -> str:
    new, end = print_flow(value), _content_end(text, child.start, child.end)
    if child.style in ("|", ">"):
        return text[: child.start] + new + text[end:]
    if child.start == child.end:
        lead = " " if not text[: child.start].endswith((" ", "\n")) else ""
        if isinstance(part, str) and not COLON.match(text, parent.entries[part][0].end):
            lead = ": "
        return text[: child.start] + lead + new + text[end:]
    start = child.start
    if child.kind != "scalar" and not child.flow and isinstance(part, str):
        colon = COLON.match(text, parent.entries[part][0].end)
        if colon:
            return text[: colon.end()] + " " + new + text[end:]
    return text[:start] + new + text[end:]


def _append(text: str, parent: Node, entry: str) -> str:
    children = [value for _, value in parent.entries.values()] if parent.kind == "map" else parent.items
    if parent.flow:
        if not children:
            inner = f" {entry} " if parent.kind == "map" else entry
            return text[: parent.start] + text[parent.start] + inner + text[parent.end - 1 :]
        last, end = children[-1], _spans(parent, text)[-1][1]
        fill = ""
        if parent.kind == "map" and last.start == last.end:
            key = next(reversed(parent.entries.values()))[0]
            colon = COLON.match(text, key.end)
            fill, end = (" null", colon.end()) if colon else (": null", key.end)
        return f"{text[:end]}{fill}, {entry}{text[end:]}"
    last, end = children[-1], _spans(parent, text)[-1][1]
    newline = _newline(text)
    line = " " * (parent.column - 1) + ("- " if parent.kind == "list" else "") + entry
    while last.kind != "scalar" and not last.flow:
        last = next(reversed(last.entries.values()))[1] if last.kind == "map" else last.items[-1]
    if last.style in ("|", ">") and text[:end].endswith(("\n", "\r")):
        return text[:end] + line + newline + text[end:]
    at = _line_end(text, end)
    return text[:at] + newline + line + text[at:]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _content_end(text: str, start: int, end: int) -> int:
    """Where a span's last printed character ends: a block scalar's span takes the line break after it too."""
    return start + len(text[start:end].rstrip("\r\n ")) if end > start else end


def _line_start(text: str, index: int) -> int:
    return max(text.rfind("\n", 0, index), text.rfind("\r", 0, index)) + 1


def _line_end(text: str, index: int) -> int:
    found = [at for at in (text.find("\r", index), text.find("\n", index)) if at >= 0]
    return min(found) if found else len(text)


def _checked(document: Document, path: Path, value: Value, text: str) -> str:
    data = document.root.data()
    holder: Any = data
    for part in path[:-1]:
        holder = holder[part]
    last: Any = path[-1]
    if document.find(path) is None and isinstance(last, int):
        holder.append(value)
    else:
        holder[last] = value
    return _verified(document, path, data, text)


def _verified(document: Document, path: Path, data: Value, text: str) -> str:
    """Refuse an edit that would not read back as meant (a layout this editor does not know)."""
    try:
        same = repr(parse(text, document.name).root.data()) == repr(data)
    except RecordError:
        same = False
    if not same:
        raise RecordError(
            document.where(path), "a layout that can be edited in place", "another", "editing the file by hand"
        )
    return text
