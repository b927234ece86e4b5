"""A block's raw parameters against its schema, with errors placed in the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from scellis_core.blocks import Block, BlockParams
from scellis_core.catalog.names import suggest
from scellis_core.errors import ContractError, RecordError
from scellis_core.record import Document
from scellis_core.record.faults import first, translate
from scellis_core.record.sml import Path, dumps, parse, plain

Where = Callable[[Path], str]
"""From a path within a block's mapping to its place, such as ``run.sml:8:14 optimizer.lr``."""


def parameter_names(block: Block) -> list[str]:
    """Names of a block's parameters as they are written."""
    return [info.alias or name for name, info in block.params.model_fields.items()]


def unknown_parameter(block: Block, raw: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first key that is no parameter of the block, and a hint; None where all are known."""
    known = parameter_names(block)
    if block.params.model_config.get("extra") == "allow":
        return None
    return next(((key, suggest(key, known)) for key in raw if key not in known), None)


def validate(block: Block, raw: Mapping[str, Any], where: Where) -> BlockParams:
    """Check parameters strictly (text is no number, 1.0 is no integer; a list serves for a tuple).

    Args:
        block: the block.
        raw: parameters as written.
        where: their places.

    Returns:
        The parameters with defaults, frozen.

    Raises:
        RecordError: an unknown parameter, with the nearest names, or a wrong value, with what was expected.
        ContractError: a value is no plain data (a composing block passed it).
    """
    unknown = unknown_parameter(block, raw)
    if unknown is not None:
        raise RecordError(where((unknown[0],)), f"a parameter of {block.id}", repr(unknown[0]), unknown[1])
    try:
        text = json.dumps(dict(raw))
    except (TypeError, ValueError) as error:
        raise ContractError(
            where(()), f"plain data as parameters of {block.id}", " ".join(str(error).split())
        ) from error
    try:
        return block.params.model_validate_json(text, strict=True)
    except ValidationError as error:
        printed = parse(dumps(plain_map(raw)))
        document = _Placed(printed.name, printed.text, printed.root, at=where)
        raise first(translate(document, error, block.params, what=f"a parameter of {block.id}")) from None


def plain_map(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping as the types a record may hold."""
    copy = plain(raw)
    return copy if isinstance(copy, dict) else {}


@dataclass
class _Placed(Document):
    """Printed parameters whose places are told by the caller."""

    at: Where = str

    def where(self, path: Path, *, key: bool = False) -> str:
        return self.at(path)
