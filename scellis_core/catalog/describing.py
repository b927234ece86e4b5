"""A block as data for people, editors and ``--json``: its parameters with types, ranges, units and defaults."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from scellis_core.blocks import Block, Layer
from scellis_core.record.faults import alternatives, describe
from scellis_core.record.sml import print_flow

JsonSchema = dict[str, Any]


def parameters(block: Block) -> list[dict[str, Any]]:
    """Each parameter of a block, in order.

    Returns:
        Mappings with the keys ``name``, ``type`` (in words), ``required``, ``default`` (None where required),
        ``range`` (in words, empty where there is none), ``choices`` (None where free), ``unit``, ``help``.
    """
    root = block.params.model_json_schema(by_alias=True)
    rows: list[dict[str, Any]] = []
    for name, info in block.params.model_fields.items():
        shown = info.alias or name
        schema: JsonSchema = root.get("properties", {}).get(shown, {})
        options = [o for o in alternatives(schema, root) if o.get("type") != "null"]
        rows.append(
            {
                "name": shown,
                "type": _type(schema, root, options),
                "required": info.is_required(),
                "default": None if info.is_required() else _default(info),
                "range": " or ".join(dict.fromkeys(r for o in options if (r := _range(o)))),
                "choices": _choices(options),
                "unit": str(schema.get("unit", "1")),
                "help": info.description or "",
            }
        )
    return rows


def _default(info: FieldInfo) -> Any:
    return to_jsonable_python(info.get_default(call_default_factory=True, validated_data={}))


def _type(schema: JsonSchema, root: JsonSchema, options: list[JsonSchema]) -> str:
    if any("enum" in o or "const" in o for o in options) and len({str(o.get("type")) for o in options}) == 1:
        return "choice"
    bare = {k: v for k, v in schema.items() if k != "unit"}
    text = describe(_without_bounds(bare, root), root)
    optional = any(o.get("type") == "null" for o in alternatives(schema, root))
    return f"{text} or null" if optional else text


def _without_bounds(schema: JsonSchema, root: JsonSchema) -> JsonSchema:
    kept = [
        {k: v for k, v in o.items() if k not in _BOUNDS} for o in alternatives(schema, root) if o.get("type") != "null"
    ]
    return kept[0] if len(kept) == 1 else {"anyOf": kept}


_BOUNDS = {
    "exclusiveMinimum": ">",
    "minimum": ">=",
    "exclusiveMaximum": "<",
    "maximum": "<=",
    "multipleOf": "a multiple of",
    "minLength": "at least",
    "maxLength": "at most",
    "minItems": "at least",
    "maxItems": "at most",
}
_COUNTED = {"minLength": " characters", "maxLength": " characters", "minItems": " items", "maxItems": " items"}


def _range(schema: JsonSchema) -> str:
    return " and ".join(
        f"{sign} {print_flow(schema[key])}{_COUNTED.get(key, '')}" for key, sign in _BOUNDS.items() if key in schema
    )


def _choices(options: list[JsonSchema]) -> list[Any] | None:
    found = [v for o in options for v in (o.get("enum") or ([o["const"]] if "const" in o else []))]
    return found or None


def describe_block(block: Block) -> dict[str, Any]:
    """All that a block declares, as plain data (without its origin)."""
    shown: dict[str, Any] = {
        "id": block.id,
        "family": block.family,
        "title": block.title,
        "summary": block.summary,
        "parameters": parameters(block),
        "source": block.source,
        "deviation": block.deviation,
        "capabilities": sorted(block.capabilities),
        "states": dict(block.states),
        "host": block.host,
    }
    if isinstance(block, Layer):
        shown["inputs"] = [{"name": p.name, "optional": p.optional, "variadic": p.variadic} for p in block.ports]
        shown["outputs"] = list(block.outputs)
    return shown
