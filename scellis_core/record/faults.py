"""From the errors of pydantic to errors of the record: place, what was expected, what was found, what to try."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from scellis_core.errors import RecordError, nearest
from scellis_core.record.sml import Document, Node, Path, print_flow, resolve, show_value

JsonSchema = dict[str, Any]


class Fault(NamedTuple):
    """An error and its order in the document; the first one is raised."""

    order: tuple[int, int]
    error: RecordError


_END = 1 << 60


def fault(
    document: Document,
    path: Path,
    expected: str,
    got: str | None = None,
    hint: str = "",
    *,
    key: bool = False,
    last: bool = False,
) -> Fault:
    """Return the fault of a path.

    Args:
        document: the document.
        path: the path.
        expected: what would have been right.
        got: what was found; the value itself where None.
        hint: what to try.
        key: the key is at fault rather than its value.
        last: order it after everything else around it (a missing key).
    """
    error = RecordError(document.where(path, key=key), expected, document.got(path) if got is None else got, hint)
    if not last:
        return Fault(document.place(path, key=key), error)
    node = document.find(path[:-1]) if path else document.root
    while node is not None and (node.entries or node.items):
        node = next(reversed(node.entries.values()))[1] if node.kind == "map" else node.items[-1]
    return Fault((node.line, node.column + 1) if node is not None and len(path) > 1 else (_END, 0), error)


def unknown_key(document: Document, path: Path, choices: Sequence[str], what: str = "a known key") -> Fault:
    """Return the fault of a key that is none of the choices."""
    name = str(path[-1])
    hint = nearest(name, choices)
    if ":" in name and name.split(":")[0] in choices:
        hint = f"a space after the colon: {name.replace(':', ': ', 1)}"
    return fault(document, path, what, show_value(name), hint, key=True)


def first(faults: Sequence[Fault]) -> RecordError:
    """Return the error that comes first in the document."""
    return min(faults, key=lambda f: f.order).error


def translate(
    document: Document,
    error: ValidationError,
    model: type[BaseModel],
    at: Callable[[Path], Path] = lambda path: path,
    what: str = "a known key",
) -> list[Fault]:
    """Return the faults that a pydantic error names.

    Args:
        document: the document the values came from.
        error: the error of validating ``model``.
        model: the schema.
        at: maps a path within the model to a path of the document.
        what: how an unknown key's error names what was expected.

    Returns:
        Faults, at least one; of the alternatives of a union only those of the one that fits best.
    """
    schema = model.model_json_schema(by_alias=True)
    walked = [_walk(schema, document, at, item["loc"], item["type"]) for item in error.errors(include_url=False)]
    faults: list[Fault] = []
    for item, step in zip(error.errors(include_url=False), walked, strict=True):
        if step.union is not None and any(o.union == step.union and len(o.path) > len(step.path) for o in walked):
            continue
        faults.append(_fault(document, dict(item), step, at(step.path), schema, what))
    return faults


class _Step(NamedTuple):
    path: Path
    schema: JsonSchema
    parent: JsonSchema
    union: Path | None
    is_key: bool


def _walk(
    root: JsonSchema, document: Document, at: Callable[[Path], Path], loc: Sequence[str | int], kind: str
) -> _Step:
    path: Path = ()
    schema, parent, union, is_key = root, root, None, False
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        if part == "[key]" and last:
            is_key = True
            break
        node = document.find(at(path)) if at(path) else document.root
        found = next((s for s in alternatives(schema, root) if _one_child(s, part, root) is not None), None)
        if last and kind == "missing" and isinstance(part, int):
            break
        inside = _has(node, part, document.find(at((*path, part))))
        if inside or (last and kind in ("missing", "extra_forbidden") and isinstance(part, str)):
            parent = found if found is not None else schema
            below = _one_child(found, part, root) if found is not None else None
            path, schema = (*path, part), below if below is not None else {}
        elif isinstance(part, int) and found is not None:
            schema = _one_child(found, part, root) or {}
        else:
            union = path if union is None else union
    return _Step(path, schema, parent, union, is_key)


def _has(node: Node | None, part: str | int, child: Node | None) -> bool:
    if child is not None:
        return True
    return node is not None and (node.child(part) is not None)


def resolved(schema: JsonSchema, root: JsonSchema) -> JsonSchema:
    """Return a JSON schema with its reference followed."""
    while "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        extra = {k: v for k, v in schema.items() if k != "$ref"}
        schema = {**root["$defs"][name], **extra}
    if len(schema.get("allOf", ())) == 1:
        return resolved({**schema["allOf"][0], **{k: v for k, v in schema.items() if k != "allOf"}}, root)
    return schema


def alternatives(schema: JsonSchema, root: JsonSchema) -> list[JsonSchema]:
    """Return the alternatives that a JSON schema allows, references followed."""
    schema = resolved(schema, root)
    options = schema.get("anyOf") or schema.get("oneOf")
    if not options:
        return [schema]
    return [found for option in options for found in alternatives(option, root)]


def _one_child(schema: JsonSchema, part: str | int, root: JsonSchema) -> JsonSchema | None:
    if isinstance(part, int):
        prefix = schema.get("prefixItems", ())
        found = prefix[part] if part < len(prefix) else schema.get("items")
        return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]
    if part in schema.get("properties", {}):
        return schema["properties"][part]
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, dict) else None  # pyright: ignore[reportUnknownVariableType]


def child_schema(schema: JsonSchema, part: str | int, root: JsonSchema) -> JsonSchema | None:
    """Return the schema of a key or item, or None where any value may stand."""
    for option in alternatives(schema, root):
        found = _one_child(option, part, root)
        if found is not None:
            return found
    return None


def _fault(document: Document, item: Mapping[str, Any], step: _Step, path: Path, root: JsonSchema, what: str) -> Fault:
    kind, context = str(item["type"]), item.get("ctx", {})
    if kind == "extra_forbidden":
        known: list[str] = list(alternatives(step.parent, root)[0].get("properties", ()))
        return unknown_key(document, path, known, what)
    expected = describe(step.schema, root)
    if kind == "missing" and document.find(path) is None:
        return _missing(document, path, expected, step, root)
    if kind == "expected":
        return fault(
            document,
            path,
            str(context["expected"]),
            None if not step.is_key else show_value(str(path[-1])),
            str(context.get("hint", "")),
            key=step.is_key,
        )
    if kind in ("value_error", "assertion_error"):
        text = str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return fault(document, path, text.removeprefix("expected "), key=step.is_key)
    if kind == "finite_number":
        expected = "finite " + expected
    return fault(document, path, expected, None, _hint(document.find(path), step.schema, root), key=step.is_key)


def _missing(document: Document, path: Path, expected: str, step: _Step, root: JsonSchema) -> Fault:
    name = str(path[-1])
    holder = document.find(path[:-1])
    known: list[str] = list(alternatives(step.parent, root)[0].get("properties", ()))
    others = [key for key in (holder.entries if holder is not None else ()) if key not in known]
    glued = next((key for key in others if key.startswith(name + ":")), None)
    if glued is not None:
        return unknown_key(document, (*path[:-1], glued), [name], f"the key {name}")
    close = get_close_matches(name, others, n=1, cutoff=0.4)
    example = _example(step.schema, root)
    hint = f"{name} in place of {close[0]}" if close else f"{name}: {example}" if example else ""
    return fault(document, path, expected, "nothing", hint, last=True)


def describe(schema: JsonSchema, root: JsonSchema) -> str:
    """Return what a JSON schema accepts, in words: ``number > 0 (1/step)``."""
    options = [option for option in alternatives(schema, root) if option.get("type") != "null"]
    if "expected" in (whole := resolved(schema, root)):
        return str(whole["expected"])
    texts: list[str] = []
    for option in options:
        text = _describe_one(option, root)
        if text not in texts:
            texts.append(text)
    unit = whole.get("unit")
    return " or ".join(texts) + (f" ({unit})" if unit and unit != "1" else "")


def _describe_one(schema: JsonSchema, root: JsonSchema) -> str:
    if "expected" in schema:
        return str(schema["expected"])
    if "const" in schema:
        return print_flow(schema["const"])
    if "enum" in schema:
        return "one of: " + ", ".join(print_flow(v) for v in schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return kind + _bounds(schema)
    if kind == "string":
        low, high = schema.get("minLength"), schema.get("maxLength")
        short = f" of {low} character{'' if low == 1 else 's'}" if low is not None and low == high else ""
        short = short or (" that is not empty" if low == 1 else "")
        return "text" + short + (f" like {schema['pattern']}" if "pattern" in schema else "")
    if kind == "boolean":
        return "true or false"
    if kind == "array":
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        count = (
            f" of {low}"
            if low == high
            else f" of at least {low}"
            if low and high is None
            else f" of {low} to {high}"
            if high is not None
            else ""
        )
        items = schema.get("items") or next(iter(schema.get("prefixItems", ())), None)
        return f"list{count}" + (f" (each: {describe(items, root)})" if isinstance(items, dict) else "")  # pyright: ignore
    if kind == "object":
        required = schema.get("required", ())
        return "mapping" + (f" with {', '.join(required)}" if required else "")
    return "a value"


def _bounds(schema: JsonSchema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f" from {print_flow(low)} to {print_flow(high)}"
    found = [
        f"{sign} {print_flow(schema[key])}"
        for key, sign in (("exclusiveMinimum", ">"), ("minimum", ">="), ("exclusiveMaximum", "<"), ("maximum", "<="))
        if key in schema
    ]
    return " " + " and ".join(found) if found else ""


def _example(schema: JsonSchema, root: JsonSchema) -> str:
    whole = resolved(schema, root)
    for option in (whole, *alternatives(schema, root)):
        if option.get("examples"):
            return print_flow(option["examples"][0])
        if "const" in option:
            return print_flow(option["const"])
    return ""


def _hint(node: Node | None, schema: JsonSchema, root: JsonSchema) -> str:
    """Return what to write instead, where that can be told."""
    options = alternatives(schema, root)
    kinds = {str(option.get("type")) for option in options}
    choices = [
        print_flow(v)
        for option in options
        for v in (option.get("enum") or [option[k] for k in ("const",) if k in option])
    ]
    choices += list(resolved(schema, root).get("choices", ()))
    value = node.scalar if node is not None and node.kind == "scalar" else None
    if kinds <= {"array", "null"} and node is not None and node.kind != "list":
        return print_flow([value]) if node.kind == "scalar" and value is not None else "a list: [{ ... }]"
    if isinstance(value, str):
        if choices:
            return nearest(value, choices)
        if kinds <= {"object", "null"}:
            block = any("block_id" in option.get("properties", {}) for option in options)
            return f"{{ block_id: {value} }}" if block and "/" in value else ""
        try:
            number = resolve(value.replace("_", "").replace(",", ""))
        except OverflowError:
            number = None
        if kinds & {"integer", "number"} and isinstance(number, int | float) and not isinstance(number, bool):
            return print_flow(number)
        if "boolean" in kinds and value.lower() in ("yes", "on", "y", "no", "off", "n"):
            return "true" if value.lower() in ("yes", "on", "y") else "false"
    elif isinstance(value, float) and "integer" in kinds and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    elif value is not None and "string" in kinds and not choices:
        return f'quotes: "{print_flow(value)}"'
    whole = resolved(schema, root)
    if "default" in whole and whole["default"] not in (None, [], {}):
        return print_flow(whole["default"])
    return _example(schema, root) or (choices[0] if len(choices) == 1 else "")
