"""The reference of every key, made from the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from scellis_core.record.faults import JsonSchema, alternatives, describe, resolved
from scellis_core.record.rules import json_schema
from scellis_core.record.schema import PIPELINE
from scellis_core.record.sml import print_flow


class KeyInfo(NamedTuple):
    """One key: dotted path (``[]`` an item, ``<name>`` a free key), type and range, unit, default, meaning."""

    path: str
    type: str
    unit: str
    default: str
    doc: str


def schema_keys() -> list[KeyInfo]:
    """Return every key of the record, in the schema's order."""
    return list(_keys(json_schema(), ""))


def _keys(schema: JsonSchema, prefix: str) -> Iterator[KeyInfo]:
    root = json_schema()
    required = schema.get("required", ())
    for name, raw in schema.get("properties", {}).items():
        whole = resolved(raw, root)
        path = f"{prefix}{name}"
        default = "required" if name in required else _default(whole.get("default"))
        if not prefix and name in (*PIPELINE, "steps"):
            default = "required to train"
        shown = describe({key: value for key, value in raw.items() if key != "unit"}, root)
        yield KeyInfo(path, shown, str(whole.get("unit", "1")), default, str(raw.get("description", "")))
        seen: set[str] = set()
        for option in alternatives(raw, root):
            yield from (info for info in _below(option, path) if info.path not in seen and not seen.add(info.path))


def _below(option: JsonSchema, path: str) -> Iterator[KeyInfo]:
    root = json_schema()
    if option.get("properties"):
        yield from _keys(option, path + ".")
    for key, mark in (("items", "[]"), ("additionalProperties", ".<name>")):
        inner: Any = option.get(key)
        if isinstance(inner, dict):
            for item in alternatives(inner, root):  # pyright: ignore[reportUnknownArgumentType]
                if item.get("properties"):
                    yield from _keys(item, path + mark + ".")


def _default(value: Any) -> str:
    return "none" if value is None else print_flow(value)


def reference_table() -> str:
    """Return the reference as a Markdown table."""
    lines = ["| key | type | unit | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for info in schema_keys():
        cells = (
            f"`{info.path}`",
            info.type,
            info.unit,
            f"`{info.default}`" if info.default[:8] != "required" else info.default,
            info.doc,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
