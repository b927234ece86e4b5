"""Rows of a CSV file: numeric features and one target column."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from scellis_core.plugin import (
    ArraySet,
    BlockParams,
    Data,
    DataContext,
    DataError,
    DataSpec,
    InputSpec,
    data_path,
    field,
    file_digest,
    nearest,
    split_problem,
    split_rows,
    split_sizes,
)

if TYPE_CHECKING:
    from pathlib import Path


class CsvParams(BlockParams):
    """Parameters of ``data/csv``."""

    path: str = field(help="a CSV file whose first line names the columns; relative to the record's folder")
    target: str = field(help="column to predict")
    task: Literal["classification", "regression"] = field(help="target: a class by name, or a number")
    ignore: tuple[str, ...] = field((), help="columns that are left out")
    delimiter: str = field(",", min_length=1, max_length=1, help="what stands between two values")
    normalise: bool = field(False, help="shift and scale features to mean 0 and deviation 1 of the train split")
    split: dict[str, float] = field({"val": 0.2}, help="share of the rows in each split but train")
    split_seed: int = field(0, ge=0, help="another seed gives another split")

    def problem(self) -> str | None:
        """Shares must leave something for training."""
        return split_problem(self.split)


@dataclass(frozen=True)
class _Table:
    """What was read: feature names, rows of numbers, and the target of each row as text with its line."""

    features: list[str]
    rows: list[list[float]]
    targets: list[tuple[str, int]]


def _number(text: str, where: str, column: str, instead: str = "") -> float:
    hint = f"removing the row, filling in a number, or {instead or f'ignore: [{column}]'}"
    if not text.strip():
        raise DataError(where, f"a number in column {column!r}", "nothing", hint)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(where, f"a finite number in column {column!r}", repr(text.strip()), hint)
    try:
        struct.pack("<f", value)
    except OverflowError as error:
        raise DataError(where, f"a number that f32 holds in column {column!r}", repr(text.strip()), hint) from error
    return value


def _columns(header: list[str], params: CsvParams, where: str) -> tuple[int, list[int]]:
    """Positions of the target and of the features."""
    if not header:
        raise DataError(where, "a first line that names the columns", "nothing", "a line such as a,b,kind")
    for name in header:
        if not name.isprintable():
            raise DataError(where, "names of columns, as text", "control characters", "a CSV file")
        if header.count(name) > 1:
            raise DataError(where, "column names that differ", f"{name!r} {header.count(name)} times")
    for name in (params.target, *params.ignore):
        if name not in header:
            hint, got = nearest(name, header), f"{len(header)} others" if len(header) > 1 else "one other"
            for other in (",", ";", "\t", "|"):
                if len(header) == 1 and name in (part.strip() for part in header[0].split(other)):
                    hint = f"delimiter: {json.dumps(other)}"
            raise DataError(where, f"a column named {name!r}", got, hint)
    skipped = {params.target, *params.ignore}
    features = [i for i, name in enumerate(header) if name not in skipped]
    if not features:
        raise DataError(where, "at least one feature column", "none beside the target and ignored ones")
    return header.index(params.target), features


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        got = f"byte 0x{raw[error.start]:02x} at {error.start}"
        raise DataError(f"{path}:{line}", "UTF-8 text", got, "saving the file as UTF-8") from error


def _read(params: CsvParams, ctx: DataContext) -> _Table:
    path = data_path(ctx, params.path)
    rows: list[list[float]] = []
    targets: list[tuple[str, int]] = []
    reader = csv.reader(io.StringIO(_text(path), newline=""), delimiter=params.delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader, list[str]())]
        target, features = _columns(header, params, f"{path}:1")
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if not row:
                continue
            if len(row) != len(header):
                hint = f"removing the row, or quotes around a value that holds {json.dumps(params.delimiter)}"
                raise DataError(where, f"{len(header)} values, as in the first line", f"{len(row)}", hint)
            rows.append([_number(row[i], where, header[i]) for i in features])
            value = row[target].strip()
            if not value:
                raise DataError(where, f"a value in target column {params.target!r}", "nothing", "removing the row")
            if params.task == "regression":
                _number(value, where, params.target, "task: classification")
            targets.append((value, reader.line_num))
    except csv.Error as error:
        hint = "closing the quote, or another delimiter"
        raise DataError(f"{path}:{reader.line_num}", "CSV", str(error), hint) from error
    if not rows:
        raise DataError(str(path), "rows of data after the first line", "none")
    return _Table([header[i] for i in features], rows, targets)


def _whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal()


def _classes(table: _Table) -> tuple[str, ...]:
    """Distinct target values: by number where all are whole numbers, else by text."""
    names = {value for value, _ in table.targets}
    if all(_whole(name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def _spec(table: _Table, params: CsvParams, ctx: DataContext) -> DataSpec:
    classes = _classes(table) if params.task == "classification" else ()
    target = InputSpec((), "i32", limit=len(classes)) if classes else InputSpec((1,))
    return DataSpec(
        inputs={"x": InputSpec((len(table.features),))},
        targets={"y": target},
        sizes=split_sizes(len(table.rows), params.split, f"{ctx.where}.split"),
        classes=classes,
    )


def describe(params: CsvParams, ctx: DataContext) -> DataSpec:
    """``x`` f32[features]; ``y`` i32[] (classification) or f32[1] (regression).

    Every column but the target and the ignored ones is a feature.

    Args:
        params: see :class:`CsvParams`.
        ctx: where relative paths start.

    Returns:
        What one example holds.

    Raises:
        DataError: naming file and line, where a value is missing or no number, or a row has another length.
    """
    return _spec(_read(params, ctx), params, ctx)


def open(params: CsvParams, ctx: DataContext) -> ArraySet:
    """Read the table.

    Args:
        params: see :class:`CsvParams`.
        ctx: where relative paths start.

    Returns:
        The dataset. With ``normalise``, features are shifted and scaled by the train split's mean and
        standard deviation (biased); a feature that is constant there is shifted only.

    Raises:
        DataError: as :func:`describe`.
    """
    import numpy as np

    table = _read(params, ctx)
    spec = _spec(table, params, ctx)
    path = data_path(ctx, params.path)
    rows = split_rows(len(table.rows), params.split, params.split_seed, f"{ctx.where}.split")
    x = np.array(table.rows, dtype=np.float64)
    if params.normalise:
        train = x[rows["train"]]
        deviation = train.std(axis=0)
        x = (x - train.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    if params.task == "classification":
        number = {name: i for i, name in enumerate(spec.classes)}
        y = np.array([number[value] for value, _ in table.targets], dtype=np.int32)
    else:
        values = [[_number(value, f"{path}:{line}", params.target)] for value, line in table.targets]
        y = np.array(values, dtype=np.float32)
    return ArraySet(spec, file_digest(path), {"x": x.astype(np.float32), "y": y}, rows)


CSV = Data(
    id="data/csv@1",
    title="CSV file",
    summary="Numeric columns as features and one column as class or number to predict.",
    params=CsvParams,
    source="Shafranovich, Common Format and MIME Type for CSV Files, 2005, RFC 4180, "
    "https://www.rfc-editor.org/rfc/rfc4180",
    deviation="the first line must name the columns; empty lines are skipped",
    describe=describe,
    open=open,
)
