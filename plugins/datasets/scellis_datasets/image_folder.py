"""Images sorted into one folder a class."""

from __future__ import annotations

import hashlib
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
    split_problem,
    split_rows,
    split_sizes,
)

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""Endings of files that are read, in small or capital letters; others in the folders are left alone."""


class ImageFolderParams(BlockParams):
    """Parameters of ``data/image_folder``."""

    path: str = field(help="a folder that holds one folder of images a class; relative to the record's folder")
    size: int | tuple[int, int] = field(unit="elements", help="height and width that images are resized to")
    mode: Literal["grayscale", "rgb"] = field("rgb", help="one channel or three")
    split: dict[str, float] = field({"val": 0.2}, help="share of the images in each split but train")
    split_seed: int = field(0, ge=0, help="another seed gives another split")

    def problem(self) -> str | None:
        """Sizes must be positive, and shares leave something for training."""
        if min(_pair(self.size)) < 1:
            return f"size must be greater than 0, not {self.size}"
        return split_problem(self.split)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _list(params: ImageFolderParams, ctx: DataContext) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    """Names of classes, and each image with its class; both in order of their names."""
    root = data_path(ctx, params.path, "folder")
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    images: list[tuple[Path, int]] = []
    for number, folder in enumerate(folders):
        found = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
        if not found:
            raise DataError(str(folder), "images", "none", f"files that end in {', '.join(SUFFIXES)}")
        images += [(path, number) for path in found]
    if not folders:
        raise DataError(str(root), "one folder of images a class", "no folders")
    return tuple(p.name for p in folders), images


def describe(params: ImageFolderParams, ctx: DataContext) -> DataSpec:
    """``x`` f32[channels, height, width] from 0 to 1, ``y`` i32[]; only names are read.

    Args:
        params: see :class:`ImageFolderParams`.
        ctx: where relative paths start.

    Returns:
        What one example holds.

    Raises:
        DataError: if the folder is missing, or a class has no images.
    """
    classes, images = _list(params, ctx)
    channels = 1 if params.mode == "grayscale" else 3
    return DataSpec(
        inputs={"x": InputSpec((channels, *_pair(params.size)))},
        targets={"y": InputSpec((), "i32", limit=len(classes))},
        sizes=split_sizes(len(images), params.split, f"{ctx.where}.split"),
        classes=classes,
    )


def open(params: ImageFolderParams, ctx: DataContext) -> ArraySet:
    """Read, convert and resize every image (bilinear, proportions not kept).

    Args:
        params: see :class:`ImageFolderParams`.
        ctx: where relative paths start.

    Returns:
        The dataset, in memory. Its digest covers names and bytes of all images.

    Raises:
        DataError: as :func:`describe`, and naming the file that is no readable image.
    """
    import io

    import numpy as np
    from PIL import Image, UnidentifiedImageError

    spec = describe(params, ctx)
    _, images = _list(params, ctx)
    root = data_path(ctx, params.path, "folder")
    height, width = _pair(params.size)
    x = np.empty((len(images), *spec.inputs["x"].shape), np.float32)
    y = np.array([number for _, number in images], dtype=np.int32)
    digest = hashlib.sha256()
    for i, (path, _) in enumerate(images):
        raw = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{hashlib.sha256(raw).hexdigest()}\n".encode())
        try:
            with Image.open(io.BytesIO(raw)) as image:
                picture = image.convert("L" if params.mode == "grayscale" else "RGB")
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            got = "none that Pillow can read" if isinstance(error, UnidentifiedImageError) else str(error)
            raise DataError(str(path), "an image", got, "removing or replacing the file") from error
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), dtype=np.float32) / 255.0
        x[i] = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    rows = split_rows(len(images), params.split, params.split_seed, f"{ctx.where}.split")
    return ArraySet(spec, digest.hexdigest(), {"x": x, "y": y}, rows)


IMAGE_FOLDER = Data(
    id="data/image_folder@1",
    title="Folder of images",
    summary="Images in one folder a class, resized to one size.",
    params=ImageFolderParams,
    source="torchvision.datasets.ImageFolder, https://docs.pytorch.org/vision/stable/generated/"
    "torchvision.datasets.ImageFolder.html",
    deviation="folders are not searched below the class; all images are held in memory as f32",
    describe=describe,
    open=open,
)
