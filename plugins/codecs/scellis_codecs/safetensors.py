"""Tensors in the safetensors format, single files and sharded sets."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from scellis_core.plugin import BlockParams, Codec, DataError, Imported

ITEM = {
    "BOOL": ("?", 1),
    "U8": ("<u1", 1),
    "I8": ("<i1", 1),
    "U16": ("<u2", 2),
    "I16": ("<i2", 2),
    "F16": ("<f2", 2),
    "BF16": ("<u2", 2),
    "U32": ("<u4", 4),
    "I32": ("<i4", 4),
    "F32": ("<f4", 4),
    "U64": ("<u8", 8),
    "I64": ("<i8", 8),
    "F64": ("<f8", 8),
}
"""NumPy's name and the size in bytes of each dtype that is read."""

LARGEST_HEADER = 100_000_000
"""Bytes; the format's own bound."""

INDEX = ".safetensors.index.json"


class SafetensorsParams(BlockParams):
    """``codec/safetensors`` has no parameters."""


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header and where tensor data starts, both checked against the file's size."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > min(size - 8, LARGEST_HEADER):
            raise DataError(
                f"{path} header",
                f"a length in the first 8 bytes and as many bytes of header in a file of {size} bytes",
                f"length {length}" if len(start) == 8 else f"{len(start)} bytes in all",
                "downloading or exporting the file again",
            )
        raw = file.read(length)
    try:
        header = json.loads(raw, object_pairs_hook=lambda pairs: _unique(path, pairs))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} header", "JSON", str(error), "downloading or exporting the file again") from error
    if not isinstance(header, dict):
        raise DataError(f"{path} header", "a mapping from names to tensors", type(header).__name__)
    return cast("dict[str, Any]", header), 8 + length


def _unique(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise DataError(f"{path} header", "each name once", f"{key!r} twice", "exporting the file again")
        found[key] = value
    return found


def _sizes(value: Any) -> list[int] | None:
    """A list of whole numbers from 0 on, or None."""
    if not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    return items if all(type(n) is int and n >= 0 for n in items) else None


def _texts(value: Any) -> dict[str, str] | None:
    """A mapping from text to text, or None."""
    if not isinstance(value, dict):
        return None
    items = cast("dict[str, Any]", value)
    return items if all(isinstance(v, str) for v in items.values()) else None


def _entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Dtype, shape and byte range of one tensor, checked for themselves."""
    where = f"{path} tensor {name!r}"
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    dtype, shape, offsets = (
        fields.get("dtype"),
        _sizes(fields.get("shape")),
        _sizes(fields.get("data_offsets")),
    )
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        raise DataError(where, "dtype, shape and two data_offsets", json.dumps(entry)[:120])
    if dtype not in ITEM:
        raise DataError(where, f"one of the dtypes {', '.join(ITEM)}", dtype, "converting the file to F32 or F16")
    begin, end = offsets
    needed = math.prod(shape) * ITEM[dtype][1]
    if end - begin != needed:
        raise DataError(where, f"{needed} bytes for {dtype} {shape}", f"offsets {begin} to {end}, {end - begin} bytes")
    return dtype, tuple(shape), begin, end


def _entries(path: Path) -> tuple[dict[str, tuple[str, tuple[int, ...], int, int]], dict[str, str], int]:
    """Checked tensors, metadata, and where data starts.

    The format wants the ranges to cover the data from the first byte to the last, without gap or overlap.
    """
    header, start = _header(path)
    raw = header.pop("__metadata__", {})
    metadata = _texts(raw)
    if metadata is None:
        raise DataError(f"{path} __metadata__", "a mapping from text to text", json.dumps(raw)[:120])
    room = path.stat().st_size - start
    entries = {name: _entry(path, name, entry) for name, entry in header.items()}
    position, before = 0, ""
    for name, (_, _, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        where = f"{path} tensor {name!r}"
        if end > room:
            raise DataError(
                where,
                f"data up to byte {start + end} of the file",
                f"a file of {start + room} bytes",
                "downloading or exporting the file again: it is cut off",
            )
        if begin < position:
            raise DataError(where, f"data from byte {position} on, after {before!r}", f"from {begin}: they overlap")
        if begin > position:
            raise DataError(where, f"data from byte {position} on", f"from {begin}: a gap of {begin - position} bytes")
        position, before = end, name
    if position != room:
        raise DataError(str(path), f"{start + position} bytes, as the header says", f"{start + room} bytes")
    return entries, metadata, start


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Tensors (views of the mapped file where no conversion is needed), metadata and notes."""
    import numpy as np

    entries, metadata, start = _entries(path)
    tensors: dict[str, Any] = {}
    notes: list[str] = []
    data = np.memmap(path, dtype=np.uint8, mode="r")
    for name, (dtype, shape, begin, end) in entries.items():
        array = data[start + begin : start + end]
        if (start + begin) % ITEM[dtype][1]:
            array = np.array(array)
        array = array.view(ITEM[dtype][0]).reshape(shape)
        if dtype == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
            notes.append(f"{name}: bf16 widened to f32, exactly")
        elif dtype == "F16":
            array = array.astype(np.float32)
            notes.append(f"{name}: f16 widened to f32, exactly")
        elif dtype == "F64":
            with np.errstate(over="ignore"):
                narrow = array.astype(np.float32)
            lost = int(np.count_nonzero(np.isfinite(array) & ~np.isfinite(narrow)))
            if lost:
                raise DataError(
                    f"{path} tensor {name!r}",
                    "f64 values within the range of f32",
                    f"{lost} outside it",
                    "smaller values",
                )
            array = narrow
            notes.append(f"{name}: f64 narrowed to f32, rounded")
        tensors[name] = array
    return tensors, metadata, notes


def _read_index(path: Path) -> dict[str, list[str]]:
    """Files of a sharded set, and the tensors that each must hold."""
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(str(path), "JSON", str(error)) from error
    table = _texts(cast("dict[str, Any]", index).get("weight_map")) if isinstance(index, dict) else None
    if not table:
        raise DataError(str(path), "weight_map: tensor name to file name", json.dumps(index)[:120])
    shards: dict[str, list[str]] = {}
    for name, file in table.items():
        if Path(file).name != file or file in ("", ".", ".."):
            raise DataError(f"{path} weight_map {name!r}", "a file name in the index's own folder", repr(file))
        shards.setdefault(file, []).append(name)
    return shards


def read(path: Path, params: SafetensorsParams) -> Imported:
    """Read one file, or the set that an index (``*.safetensors.index.json``) names.

    Files are mapped, so that a tensor is paged in when it is used. Floating tensors arrive as f32: bf16 and
    f16 are widened, f64 narrowed with a note; integers stay as they are. Of a set, only the files and tensors
    that the index names count.

    Args:
        path: the file.
        params: none.

    Returns:
        Tensors by name, metadata and notes.

    Raises:
        DataError: if the file is missing, cut off or too long, or a tensor's offsets overlap, leave a gap,
            lie outside the file or do not fit its shape; if a shard, or a tensor in its shard, is missing.
    """
    if not path.is_file():
        raise DataError(str(path), "a safetensors file", "nothing there")
    if not path.name.endswith(INDEX):
        tensors, metadata, notes = _read_file(path)
        return Imported(tensors, metadata=metadata, notes=tuple(notes))
    tensors: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    notes: list[str] = []
    for file, names in _read_index(path).items():
        shard = path.parent / file
        if not shard.is_file():
            raise DataError(str(path), f"shard {file} beside the index", "nothing there", f"downloading {file}")
        found, extra, remarks = _read_file(shard)
        for name in names:
            if name not in found:
                raise DataError(str(shard), f"tensor {name!r}, as {path.name} says", f"{len(found)} others")
            tensors[name] = found[name]
        metadata |= extra
        notes += [r for r in remarks if r.partition(":")[0] in names]
    return Imported(tensors, metadata=metadata, notes=tuple(notes))


def write(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write one file: to a temporary name beside it, flushed to disk, then renamed over it.

    Args:
        path: the file.
        tensors: NumPy arrays by name; any strides (they are stored row-major).
        metadata: text by name.

    Raises:
        DataError: if a tensor's dtype has no name in the format.
    """
    import numpy as np
    from safetensors.numpy import save

    names = {np.dtype(code): name for name, (code, _) in ITEM.items() if name != "BF16"}
    arrays: dict[str, Any] = {}
    for name, value in tensors.items():
        array = np.asarray(value)
        if array.dtype not in names:
            raise DataError(f"{path} tensor {name!r}", f"one of {', '.join(map(str, names))}", str(array.dtype))
        # ascontiguousarray makes a scalar one-dimensional.
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
    raw = save(arrays, metadata=dict(metadata) or None)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


SAFETENSORS = Codec(
    id="codec/safetensors@1",
    title="Safetensors",
    summary="Tensors by name in the safetensors format; sharded sets by their index.",
    params=SafetensorsParams,
    source="Hugging Face, safetensors, format, https://github.com/huggingface/safetensors#format",
    deviation="floating tensors are read as f32; gaps between tensors are refused, as the format asks",
    capabilities=frozenset({"read", "write", "shards"}),
    suffixes=(".safetensors", INDEX),
    read=read,
    write=write,
)
