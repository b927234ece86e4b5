"""The UCI handwritten digits, shipped with the package."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

from scellis_core.plugin import (
    ArraySet,
    BlockParams,
    Data,
    DataContext,
    DataError,
    DataSpec,
    InputSpec,
    field,
    split_problem,
    split_rows,
    split_sizes,
)

EXAMPLES, SIDE, CLASSES, WHITE = 1797, 8, 10, 16
DIGEST = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
"""SHA-256 of the uncompressed table."""


class DigitsParams(BlockParams):
    """Parameters of ``data/digits``."""

    split: dict[str, float] = field({"val": 0.2}, help="share of the examples in each split but train")
    layout: Literal["flat", "image"] = field("flat", help="flat: x of 64 pixels; image: 1 x 8 x 8")
    split_seed: int = field(0, ge=0, help="another seed gives another split")

    def problem(self) -> str | None:
        """Shares must leave something for training."""
        return split_problem(self.split)


def describe(params: DigitsParams, ctx: DataContext) -> DataSpec:
    """``x`` f32[64] or f32[1, 8, 8] from 0 to 1, ``y`` i32[] from 0 to 9.

    Args:
        params: see :class:`DigitsParams`.
        ctx: for errors.

    Returns:
        What one example holds.
    """
    shape = (SIDE * SIDE,) if params.layout == "flat" else (1, SIDE, SIDE)
    return DataSpec(
        inputs={"x": InputSpec(shape)},
        targets={"y": InputSpec((), "i32", limit=CLASSES)},
        sizes=split_sizes(EXAMPLES, params.split, f"{ctx.where}.split"),
        classes=tuple(str(n) for n in range(CLASSES)),
    )


def open(params: DigitsParams, ctx: DataContext) -> ArraySet:
    """Read the shipped table; splits are drawn from ``split_seed``.

    Args:
        params: see :class:`DigitsParams`.
        ctx: for errors.

    Returns:
        The dataset, all in memory (115,008 pixels).

    Raises:
        DataError: if the installed file is damaged.
    """
    import gzip
    import hashlib

    import numpy as np

    file = files("scellis_datasets") / "data" / "digits.csv.gz"
    raw = gzip.decompress(file.read_bytes())
    digest = hashlib.sha256(raw).hexdigest()
    if digest != DIGEST:
        raise DataError(str(file), f"a table of SHA-256 {DIGEST}", digest, "installing scellis again")
    table = np.array([line.split(b",") for line in raw.split()], dtype=np.int32)
    spec = describe(params, ctx)
    pixels = (table[:, :-1] / np.float32(WHITE)).astype(np.float32)
    return ArraySet(
        spec=spec,
        digest=digest,
        arrays={"x": pixels.reshape(EXAMPLES, *spec.inputs["x"].shape), "y": table[:, -1]},
        rows=split_rows(EXAMPLES, params.split, params.split_seed, f"{ctx.where}.split"),
    )


DIGITS = Data(
    id="data/digits@1",
    title="Handwritten digits",
    summary="1,797 images of handwritten digits, 8 x 8, shipped with the package.",
    params=DigitsParams,
    source="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998, UCI Machine Learning "
    "Repository, https://doi.org/10.24432/C50P49, CC BY 4.0",
    deviation="the test set alone, pixels divided by 16",
    describe=describe,
    open=open,
)
