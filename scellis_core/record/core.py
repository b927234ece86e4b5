"""The record: everything that defines a run, read from SML."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from scellis_core.errors import RecordError, nearest
from scellis_core.record import edit, rules, sml
from scellis_core.record.canonical import canonical_bytes
from scellis_core.record.faults import Fault, fault, first, translate, unknown_key
from scellis_core.record.graph import GraphView, project
from scellis_core.record.schema import ARCHITECTURE, BlockRef, Group, ModelName, Schema, parse_model_name
from scellis_core.record.sml import Document, Path, Value, plain, show_path

P = TypeVar("P", bound=BaseModel)

_OWN = ("sml", "model", "determinism_tier")
_ASKED = (
    *ARCHITECTURE,
    "sml",
    "model",
    "data",
    "optimizer",
    "loss",
    "epochs",
    "steps",
    "batch_size",
    "determinism_tier",
)


class Record:
    """A checked record. It does not change: an edit yields a new one.

    Made by :meth:`load`, :meth:`parse` or :meth:`from_dict`. Two records are equal where their canonical bytes are.

    Attributes:
        document: the text with its places.
        spec: the typed content, with defaults filled in.
        base: the directory that relative paths in the record start from.
    """

    def __init__(self, document: Document, base: FilePath | None = None) -> None:
        self.document = document
        self.spec: Schema = _validate(document)
        self.base: FilePath = FilePath() if base is None else base

    # making ---------------------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, name: str | None = None) -> Record:
        """Read a record from a file.

        Args:
            path: the file, UTF-8.
            name: how errors show it; the path as given where None.

        Raises:
            RecordError: the file is missing or not text, or the record is wrong.
        """
        file = FilePath(path)
        shown = name if name is not None else os.fspath(path)
        try:
            raw = file.read_bytes()
        except FileNotFoundError:
            folder = file.parent
            others = sorted(p.name for p in folder.glob("*.sml")) if folder.is_dir() else []
            raise RecordError(shown, "a file", "nothing there", nearest(file.name, others)) from None
        except IsADirectoryError:
            raise RecordError(shown, "a file", "a directory", f"{shown.rstrip('/')}/run.sml") from None
        except OSError as error:
            raise RecordError(shown, "a file that can be read", (error.strerror or str(error)).lower()) from None
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line, column = sml.line_column(raw[: error.start].decode("utf-8"), error.start)
            got = f"byte 0x{raw[error.start]:02x} at offset {error.start}"
            raise RecordError(f"{shown}:{line}:{column}", "UTF-8 text", got, "saving the file as UTF-8") from None
        return cls.parse(text, shown, base=file.parent)

    @classmethod
    def parse(cls, text: str, name: str = "run.sml", *, base: FilePath | None = None) -> Record:
        """Read a record from text.

        Args:
            text: SML.
            name: how errors show it.
            base: the directory that relative paths start from.

        Raises:
            RecordError: the first fault: of syntax, else the first in the document's order.
        """
        return cls(sml.parse(text, name), base)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], name: str = "record", *, base: FilePath | None = None) -> Record:
        """Make a record from plain data; errors count lines in its printed form.

        Raises:
            RecordError: a value is no plain data, or the record is wrong.
        """
        copy = plain(data)
        return cls.parse(sml.dumps(_ordered(copy) if isinstance(copy, dict) else {}), name, base=base)

    # content --------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """How errors show the file."""
        return self.document.name

    @cached_property
    def data(self) -> dict[str, Value]:
        """The content as written; it must not be changed."""
        data = self.document.root.data()
        return data if isinstance(data, dict) else {}

    def to_dict(self) -> dict[str, Value]:
        """Return a copy of the content as written, without defaults."""
        data = self.document.root.data()
        return data if isinstance(data, dict) else {}

    def text(self) -> str:
        """Return the record as SML, with its comments and layout."""
        return self.document.text

    @cached_property
    def canonical(self) -> bytes:
        """The canonical bytes.

        They are of the checked content: keys in one order, keys at their default left out, short spellings written
        out, numbers of the schema in their declared type (``weight: 1`` is ``weight: 1.0``). Block parameters have
        their written type (``lr: 1`` is not ``lr: 1.0``), as their schema is the block's.
        """
        return canonical_bytes(plain(self.spec.model_dump(by_alias=True, exclude_defaults=True)))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal."""
        return hashlib.sha256(self.canonical).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Record({self.name!r}, digest={self.digest[:12]!r})"

    def get(self, path: str | Path, default: Any = None) -> Any:
        """Return the value written at a path such as ``peft.0.rank``, or a default where nothing is."""
        node = self.document.find(self.document.path(path))
        return default if node is None else node.data()

    @property
    def model(self) -> ModelName | None:
        """The model's name in its parts."""
        return None if self.spec.model is None else parse_model_name(self.spec.model)

    @property
    def stored(self) -> ModelName | None:
        """The stored model version whose architecture this record takes, or None where it has its own."""
        return self.model if rules.names_stored(self.data) else None

    def pipeline_missing(self) -> list[str]:
        """Return the keys that training needs and the record lacks; empty where it can be trained.

        ``epochs`` stands for ``epochs`` or ``steps``.
        """
        return rules.missing(self.data)

    def graph(self) -> GraphView | None:
        """Return the explicit graph in execution order, or None where the architecture is one model block."""
        return project(self.spec)

    def defaults(self) -> dict[str, Value]:
        """Return the value in force of every optional key that is left out, by dotted path."""
        found: dict[str, Value] = {}
        self._defaults(self.spec, (), found)
        return found

    def _defaults(self, model: BaseModel, path: Path, found: dict[str, Value]) -> None:
        for name, info in type(model).model_fields.items():
            key, value = info.alias or name, getattr(model, name)
            here: Path = (*path, key)
            if not path and key in _ASKED and self.document.find(here) is None:
                continue
            if isinstance(value, BaseModel):
                self._defaults(value, here, found)
            elif isinstance(value, list | dict) and self.document.find(here) is not None:
                pairs: Any = value.items() if isinstance(value, dict) else enumerate(value)  # pyright: ignore
                for part, item in pairs:
                    if isinstance(item, BaseModel):
                        self._defaults(item, (*here, part), found)
            elif self.document.find(self.document.path(here)) is None:
                found[show_path(here)] = plain(cast("object", value))

    # places and errors ----------------------------------------------------------------------------------------------

    def where(self, path: str | Path = (), *, key: bool = False) -> str:
        """Return the place of a path: ``run.sml:8:14 optimizer.lr``.

        Args:
            path: dotted text or parts; of an absent one the place of what is around it.
            key: the place of the key rather than of the value.
        """
        return self.document.where(self.document.path(path), key=key)

    def error(
        self, path: str | Path, expected: str, got: str | None = None, hint: str = "", *, key: bool = False
    ) -> RecordError:
        """Return an error at a path; ``got`` is the value there where None."""
        return fault(self.document, self.document.path(path), expected, got, hint, key=key).error

    def unknown(self, path: str | Path, choices: Sequence[str], what: str) -> RecordError:
        """Return the error of a name (the value at a path) that is none of the choices, with the nearest of them."""
        return self.error(path, what, None, nearest(str(self.get(path, "")), choices))

    def fault(self, path: str | Path, error: ValidationError, model: type[BaseModel]) -> RecordError:
        """Return the record's error for a pydantic error of the mapping at a path.

        Args:
            path: where the mapping stands.
            error: what validating ``model`` raised.
            model: the schema, whose ``json_schema_extra`` may give ``unit`` and ``expected``, and ``examples``.
        """
        at = self.document.path(path)
        return first(translate(self.document, error, model, lambda inner: (*at, *inner)))

    def params(self, path: str | Path, model: type[P], *, base: str | Path | None = None) -> P:
        """Check the free parameters of a block against the block's own schema.

        Types are strict: text is no number, 1.0 is no integer; an integer is a number. Lists serve for tuples.

        Args:
            path: where the block stands (``optimizer``, ``peft.0``, ``graph.h``), or a group of the optimizer.
            model: the block's schema.
            base: for a group: the block whose parameters it changes (``optimizer``).

        Returns:
            The parameters, with defaults.

        Raises:
            RecordError: an unknown parameter, with the nearest names, or a wrong value.
        """
        at = self.document.path(path)
        under = at if base is None else self.document.path(base)
        holder, root = self._block(at), self._block(under)
        own, values = holder.params, {**root.params, **holder.params}
        what = f"a parameter of {root.block_id}" if isinstance(root, BlockRef) else "a known parameter"
        known = [info.alias or name for name, info in model.model_fields.items()]
        reserved = [info.alias or name for name, info in type(holder).model_fields.items() if name != "block_id"]
        faults: list[Fault] = []
        if model.model_config.get("extra") != "allow":
            faults = [
                unknown_key(self.document, (*at, key), [*known, *reserved], what) for key in own if key not in known
            ]
            values = {key: value for key, value in values.items() if key in known}
        try:
            checked = model.model_validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            faults += translate(
                self.document,
                error,
                model,
                lambda inner: (*(at if inner[:1] and inner[0] in own else under), *inner),
                what,
            )
            raise first(faults) from None
        if faults:
            raise first(faults)
        return checked

    def _block(self, path: Path) -> BlockRef | Group:
        node: Any = self.spec
        for part in path:
            if isinstance(node, list) and not isinstance(part, int):
                node = node[0]  # pyright: ignore[reportUnknownVariableType]
            if isinstance(node, BaseModel):
                names = {info.alias or name: name for name, info in type(node).model_fields.items()}
                node = getattr(node, names[str(part)], None) if str(part) in names else None
            elif isinstance(node, list):
                node = node[part] if isinstance(part, int) and part < len(node) else None  # pyright: ignore
            elif isinstance(node, dict):
                node = node.get(part)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(node, list) and len(node) == 1:  # pyright: ignore[reportUnknownArgumentType]
            node = node[0]  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(node, BlockRef | Group):
            raise self.error(path, "a block")
        return node

    # editing --------------------------------------------------------------------------------------------------------

    def with_override(self, path: str | Path, value: Any) -> Record:
        """Return a record with one value replaced or added; comments and layout stay.

        Args:
            path: a dotted path such as ``optimizer.lr``; mappings on the way are made where absent.
            value: plain data.

        Raises:
            RecordError: the path leads nowhere, or the new record is wrong.
        """
        return self.with_overrides({path: value})

    def with_overrides(self, values: Mapping[Any, Any], *, without: Sequence[str | Path] = ()) -> Record:
        """Return a record with several values replaced and some removed, checked once at the end.

        Args:
            values: new values by dotted path.
            without: paths to remove first (``steps`` where ``epochs`` is set).

        Raises:
            RecordError: as :meth:`with_override`.
        """
        document, marks = self.document, list(self.document.overrides)
        for dotted in without:
            text = edit.remove(document, document.path(dotted))
            document = sml.parse(text, document.name)
        for dotted, value in values.items():
            path = document.path(dotted)
            text = edit.set_value(document, path, plain(value, path))
            document = sml.parse(text, document.name)
            marks.append(path)
        origins = {key: origin for key, origin in self.document.origins.items() if document.find((key,)) is not None}
        document.origins, document.overrides = origins, tuple(dict.fromkeys(marks))
        return Record(document, self.base)

    def without(self, *paths: str | Path) -> Record:
        """Return a record without these keys or items; comments and layout of the rest stay.

        Raises:
            RecordError: nothing stands at a path, or the new record is wrong.
        """
        return self.with_overrides({}, without=paths)

    def merged_with(self, stored: Record) -> Record:
        """Return this record with what it leaves out taken from the stored model version that it names.

        Taken are the architecture and each other key that is absent, except ``determinism_tier``; ``steps`` and
        ``epochs`` count as one. Errors name the stored record where a key came from it. A record that has an
        architecture of its own is returned as it is.

        Args:
            stored: the stored record, as the store found it for :attr:`stored`.

        Raises:
            RecordError: the stored record has no architecture, or the two do not fit together.
        """
        if self.stored is None:
            return self
        if not any(key in stored.data for key in ARCHITECTURE):
            raise stored.error("architecture", f"an architecture in the stored model {self.spec.model}", "none")
        length = [key for key in ("epochs", "steps") if key in self.data]
        taken = {
            k: v
            for k, v in stored.data.items()
            if k not in self.data and k not in _OWN and not (length and k in ("epochs", "steps"))
        }
        document = edit.add_keys(self.document, _ordered(taken))
        document.origins = {**self.document.origins, **dict.fromkeys(taken, stored.document)}
        document.overrides = self.document.overrides
        return Record(document, self.base)


def dumps(record: Record) -> str:
    """Return a record freshly printed: keys in the schema's order, no comments; same canonical bytes."""
    return sml.dumps(_ordered(record.to_dict()))


def parse_override(text: str) -> tuple[str, Value]:
    """Return path and value of ``optimizer.lr=3e-4``; the value is SML, flow style for lists and mappings.

    Raises:
        RecordError: no ``=``, an empty path or a value that is not SML.
    """
    path, sign, value = text.partition("=")
    path = path.strip()
    if not sign or not value.strip() or not path.isprintable() or not all(path.split(".")):
        raise RecordError("override", "key=value", repr(text), "optimizer.lr=3e-4")
    return path, sml.parse(value.strip(), f"override {path}").root.data()


def _ordered(data: Mapping[str, Value]) -> dict[str, Value]:
    order = [info.alias or name for name, info in Schema.model_fields.items()]
    return {key: data[key] for key in [*(k for k in order if k in data), *(k for k in data if k not in order)]}


def _validate(document: Document) -> Schema:
    data = document.root.data()
    if not isinstance(data, dict):
        got = "an empty file" if document.root.scalar is None and document.root.kind == "scalar" else document.got(())
        raise RecordError(document.where(()), "a mapping of keys", got, "starting with: sml: 1")
    faults: list[Fault] = rules.check(document, data)
    schema: Schema | None = None
    try:
        schema = Schema.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        faults += translate(document, error, Schema, what="a key of the record")
    if faults or schema is None:
        raise first(faults)
    return schema
