"""What the schema alone cannot say: keys that need or exclude each other, families of blocks, empty values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from scellis_core.errors import nearest
from scellis_core.record.faults import Fault, JsonSchema, child_schema, describe, fault
from scellis_core.record.graph import check_graph
from scellis_core.record.schema import ARCHITECTURE, BLOCK_ID, FAMILIES, MODEL_NAME, PIPELINE, TRAINING, Schema
from scellis_core.record.sml import Document, Node, Path, Value

Data = Mapping[str, Value]
_EXPLICIT = ARCHITECTURE[1:]


@lru_cache(maxsize=1)
def json_schema() -> JsonSchema:
    """Return the JSON schema of the record; it must not be changed."""
    return Schema.model_json_schema(by_alias=True)


def names_stored(data: Data) -> bool:
    """Whether the architecture is that of a stored model version, named by ``model``."""
    name = data.get("model")
    named = isinstance(name, str) and "@" in name and MODEL_NAME.match(name) is not None
    return named and not any(key in data for key in ARCHITECTURE)


def missing(data: Data) -> list[str]:
    """Return the keys that training needs and the data lacks, in the schema's order."""
    return [key for key in PIPELINE if key not in data and not (key == "epochs" and "steps" in data)]


def check(document: Document, data: Data) -> list[Fault]:
    """Return every fault of these rules, in no particular order."""
    return [found for rule in _RULES for found in rule(document, data)]


def _architecture(document: Document, data: Data) -> Iterator[Fault]:
    given = [key for key in _EXPLICIT if key in data]
    if "architecture" in data and given:
        key = max(("architecture", given[0]), key=lambda k: document.place((k,), key=True))
        yield fault(
            document,
            (key,),
            "either one model block or inputs, graph and outputs",
            "both",
            "removing one of them",
            key=True,
        )
    elif given:
        for key in _EXPLICIT:
            if key not in data:
                yield fault(
                    document, (key,), f"{key} beside {' and '.join(given)}", "nothing", f"adding {key}:", last=True
                )
    elif "architecture" not in data and not names_stored(data):
        name = data.get("model")
        hint = (
            f"model: {name}@1" if isinstance(name, str) and "@" not in name else "architecture: { block_id: model/mlp }"
        )
        expected = "one model block (or inputs, graph and outputs, or model: with the @version of a stored one)"
        yield fault(document, ("architecture",), expected, "nothing", hint, last=True)


def _pipeline(document: Document, data: Data) -> Iterator[Fault]:
    if "epochs" in data and "steps" in data:
        key = max(("epochs", "steps"), key=lambda k: document.place((k,), key=True))
        yield fault(document, (key,), "either epochs or steps", "both", "removing one of them", key=True)
    if not any(key in data for key in TRAINING):
        return
    properties = json_schema()["properties"]
    for key in ["determinism_tier"] if names_stored(data) else PIPELINE:
        if key in missing(data):
            expected = "epochs or steps" if key == "epochs" else describe(properties[key], json_schema())
            example = (properties[key].get("examples") or [""])[0]
            example = example or f"{{ block_id: {FAMILIES[key][0]}... }}"
            yield fault(document, (key,), expected, "nothing", f"{key}: {example}", last=True)


def _empty(document: Document, data: Data) -> Iterator[Fault]:
    def walk(node: Node, schema: JsonSchema, path: Path) -> Iterator[Fault]:
        children = (
            [(key, value) for key, (_, value) in node.entries.items()]
            if node.kind == "map"
            else list(enumerate(node.items))
        )
        for part, value in children:
            below = child_schema(schema, part, json_schema())
            if below is None:
                continue
            if value.kind == "scalar" and value.scalar is None:
                expected = describe(below, json_schema())
                yield fault(document, (*path, part), expected, None, "a value, or removing the key")
            else:
                yield from walk(value, below, (*path, part))

    yield from walk(document.root, json_schema(), ())


def _families(document: Document, data: Data) -> Iterator[Fault]:
    for key, families in FAMILIES.items():
        value = data.get(key)
        places: list[tuple[Path, Value]] = [((key,), value)]
        if isinstance(value, list):
            places = [((key, i), item) for i, item in enumerate(value)]
        elif key == "graph" and isinstance(value, dict):
            places = [((key, name), item) for name, item in value.items()]
        for path, item in places:
            name = item.get("block_id") if isinstance(item, dict) else None
            if not isinstance(name, str) or name.startswith(families):
                continue
            if BLOCK_ID.match(name) or BLOCK_ID.match("x/" + name):
                hint = families[0] + name.rsplit("/", 1)[-1] if "/" not in name else families[0] + "..."
                expected = "a block id that starts with " + " or ".join(families)
                yield fault(document, (*path, "block_id"), expected, None, hint)


def _pairs(document: Document, data: Data) -> Iterator[Fault]:
    for key in ("validate", "checkpoint"):
        value = data.get(key)
        if isinstance(value, dict) and value.get("every", "epoch") == "epoch" and value.get("unit") == "step":
            yield fault(document, (key, "unit"), "epoch, as every counts epochs", None, "every: a number of steps")
    remat = data.get("remat")
    if isinstance(remat, dict):
        if remat.get("blocks") == "auto" and "bytes" not in remat:
            yield fault(
                document,
                ("remat", "bytes"),
                "integer >= 1 (bytes) beside auto",
                "nothing",
                "bytes: 4000000000",
                last=True,
            )
        elif "bytes" in remat and remat.get("blocks") != "auto":
            yield fault(document, ("remat", "bytes"), "bytes beside blocks: auto only", None, "blocks: auto", key=True)
    elif remat == "auto":
        yield fault(document, ("remat",), "auto with its bytes", "'auto'", "{ blocks: auto, bytes: 4000000000 }")
    moments = data.get("unfreeze")
    for i, item in enumerate(moments if isinstance(moments, list) else []):
        at = item.get("at") if isinstance(item, dict) else None
        if isinstance(at, dict) and len({"step", "epoch"} & set(at)) != 1:
            got = "both" if "step" in at else "neither"
            yield fault(document, ("unfreeze", i, "at"), "step or epoch, one of the two", got, "{ step: 1000 }")


def _outputs(document: Document, data: Data) -> Iterator[Fault]:
    outputs = data.get("outputs")
    if not isinstance(outputs, dict):
        return
    for key in ("loss", "metrics"):
        value = data.get(key)
        for i, item in enumerate(value if isinstance(value, list) else [value]):
            name = item.get("output") if isinstance(item, dict) else None
            if isinstance(name, str) and name not in outputs:
                path = document.path((key, i, "output"))
                yield fault(document, path, "an output of the graph", None, nearest(name, outputs))


_RULES: tuple[Callable[[Document, Data], Iterator[Fault] | list[Fault]], ...] = (
    _architecture,
    _pipeline,
    _empty,
    _families,
    _pairs,
    _outputs,
    check_graph,
)
