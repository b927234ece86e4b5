"""NumPy arrays from an .npz file or a folder of .npy files."""

from __future__ import annotations

import ast
import hashlib
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal

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

    import numpy as np

Dtype = Literal["auto", "f32", "i32"]


class ArraysParams(BlockParams):
    """Parameters of ``data/arrays``."""

    path: str = field(help="an .npz file, or a folder of .npy files; relative to the record's folder")
    x: str = field("x", help="name of the array of inputs, axis 0 counting examples")
    y: str = field("y", help="name of the array of targets, axis 0 counting examples")
    x_dtype: Dtype = field("auto", help="auto: floats become f32, integers and booleans i32")
    y_dtype: Dtype = field("auto", help="the same for targets")
    vocab_size: int | None = field(None, gt=0, unit="tokens", help="integer inputs must be below this")
    classes: int | None = field(None, gt=0, help="integer targets must be below this")
    split: dict[str, float] = field({"val": 0.2}, help="share of the examples in each split but train")
    split_seed: int = field(0, ge=0, help="another seed gives another split")

    def problem(self) -> str | None:
        """Shares must leave something for training."""
        return split_problem(self.split)


@dataclass(frozen=True)
class _Header:
    """Of an .npy stream: NumPy's dtype text and the shape."""

    dtype: str
    shape: tuple[int, ...]


def _header(file: IO[bytes], where: str) -> _Header:
    """Read the header of an .npy stream (format 1 to 3) without NumPy."""
    start = file.read(8)
    if len(start) < 8 or start[:6] != b"\x93NUMPY":
        raise DataError(where, "an array in .npy format", f"a file that starts with {start[:6]!r}")
    width, code = (2, "<H") if start[6] == 1 else (4, "<I")
    size = file.read(width)
    text = file.read(struct.unpack(code, size)[0]) if len(size) == width else b""
    try:
        fields: dict[str, Any] = ast.literal_eval(text.decode("utf-8" if start[6] >= 3 else "latin-1"))
        return _Header(str(fields["descr"]), tuple(int(n) for n in fields["shape"]))
    except (ValueError, SyntaxError, KeyError, TypeError) as error:
        raise DataError(where, "a whole .npy header", "one that is cut off or damaged") from error


def _stream(path: Path, name: str, where: str) -> tuple[IO[bytes], str]:
    """One array's bytes, and how errors call it."""
    if path.is_dir():
        file = path / f"{name}.npy"
        if not file.is_file():
            raise DataError(
                where, f"a file {file}", "nothing there", nearest(name, (p.stem for p in path.glob("*.npy")))
            )
        return file.open("rb"), str(file)
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise DataError(str(path), "an .npz archive", "a file that is none", "numpy.savez") from error
    names = [n.removesuffix(".npy") for n in archive.namelist()]
    if name not in names:
        raise DataError(where, f"an array named {name!r} in {path}", f"{len(names)} others", nearest(name, names))
    try:
        return archive.open(f"{name}.npy"), f"{path}:{name}"
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}:{name}", "an array that can be read", str(error), "numpy.savez") from error


def _each(params: ArraysParams, ctx: DataContext, read: Callable[[IO[bytes], str], Any]) -> dict[str, Any]:
    """``read(stream, name for errors)`` of ``x`` and ``y``."""
    path = ctx.base / params.path
    path = data_path(ctx, params.path, "folder" if path.is_dir() else "file")
    found: dict[str, Any] = {}
    for key, name in (("x", params.x), ("y", params.y)):
        stream, label = _stream(path, name, f"{ctx.where}.{key}")
        try:
            with stream:
                found[key] = read(stream, label)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise DataError(label, "a whole array", str(error), "writing the file again") from error
    return found


def _dtype(header: _Header, wanted: Dtype, where: str) -> str:
    kind = header.dtype.lstrip("<>|=")[:1]
    if kind not in "fiub" or not kind:
        got = f"dtype {header.dtype}" + (", pickled objects, which are never loaded" if kind == "O" else "")
        raise DataError(where, "numbers (float, integer or boolean)", got, "saving it as float32 or int32")
    natural = "f32" if kind == "f" else "i32"
    if wanted == "i32" and natural == "f32":
        raise DataError(where, "integers for i32", f"dtype {header.dtype}", "dtype f32")
    return natural if wanted == "auto" else wanted


def _spec(headers: dict[str, _Header], params: ArraysParams, ctx: DataContext) -> DataSpec:
    counts = {key: header.shape[0] if header.shape else 0 for key, header in headers.items()}
    if counts["x"] != counts["y"] or counts["x"] == 0:
        raise DataError(
            f"{ctx.where}.path",
            "x and y with one example or more along axis 0, equally many",
            f"x {list(headers['x'].shape)}, y {list(headers['y'].shape)}",
            "arrays of the same examples",
        )
    wanted: dict[str, tuple[Dtype, int | None]] = {
        "x": (params.x_dtype, params.vocab_size),
        "y": (params.y_dtype, params.classes),
    }
    specs: dict[str, InputSpec] = {}
    for key, (choice, limit) in wanted.items():
        dtype = _dtype(headers[key], choice, f"{ctx.where}.{key}")
        specs[key] = InputSpec(headers[key].shape[1:], dtype, limit if dtype == "i32" else None)
    return DataSpec(
        inputs={"x": specs["x"]},
        targets={"y": specs["y"]},
        sizes=split_sizes(counts["x"], params.split, f"{ctx.where}.split"),
        vocab_size=specs["x"].limit,
        classes=tuple(str(n) for n in range(specs["y"].limit or 0)),
    )


def describe(params: ArraysParams, ctx: DataContext) -> DataSpec:
    """``x`` and ``y`` as the arrays' shapes without axis 0, f32 or i32; only headers are read.

    Args:
        params: see :class:`ArraysParams`.
        ctx: where relative paths start.

    Returns:
        What one example holds.

    Raises:
        DataError: if a file or array is missing or damaged, holds no numbers, or the counts differ.
    """
    return _spec(_each(params, ctx, _header), params, ctx)


def _convert(array: np.ndarray, spec: InputSpec, where: str) -> np.ndarray:
    """The array in its device dtype; refuses what does not fit, naming the position."""
    import numpy as np

    if spec.dtype == "f32":
        with np.errstate(over="ignore"):
            out = array.astype(np.float32)
        bad, expected = ~np.isfinite(out), "finite numbers (f32)"
    else:
        low, high = (0, spec.limit - 1) if spec.limit is not None else (-(2**31), 2**31 - 1)
        bad, expected = (
            (array < low) | (array > high) if array.dtype != bool else np.zeros(1, bool),
            f"{low} to {high}",
        )
        out = array.astype(np.int32)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise DataError(f"{where}{list(at)}", expected, str(array[at]), "mending or removing the example")
    return np.ascontiguousarray(out)


def open(params: ArraysParams, ctx: DataContext) -> ArraySet:
    """Read both arrays; pickled objects are never loaded.

    Args:
        params: see :class:`ArraysParams`.
        ctx: where relative paths start.

    Returns:
        The dataset, in memory.

    Raises:
        DataError: as :func:`describe`, and if a value is not finite or outside its range.
    """
    import numpy as np

    spec = describe(params, ctx)

    labels: list[str] = []

    def load(stream: IO[bytes], where: str) -> np.ndarray:
        labels.append(where)
        try:
            return np.lib.format.read_array(stream, allow_pickle=False)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(where, "a whole array", str(error), "writing the file again") from error

    raw = _each(params, ctx, load)
    specs = {**spec.inputs, **spec.targets}
    arrays = {key: _convert(raw[key], specs[key], label) for key, label in zip(raw, labels, strict=True)}
    rows = split_rows(len(arrays["x"]), params.split, params.split_seed, f"{ctx.where}.split")
    return ArraySet(spec, _digest(params, ctx), arrays, rows)


def _digest(params: ArraysParams, ctx: DataContext) -> str:
    """Of the .npz file; of both files' digests where they are two."""
    path = ctx.base / params.path
    if path.is_file():
        return file_digest(path)
    parts = [file_digest(path / f"{name}.npy") for name in (params.x, params.y)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


ARRAYS = Data(
    id="data/arrays@1",
    title="NumPy arrays",
    summary="Inputs and targets from an .npz file or a folder of .npy files.",
    params=ArraysParams,
    source="NumPy, numpy.lib.format, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html",
    deviation="arrays of Python objects are refused",
    describe=describe,
    open=open,
)
