"""Windows of a text, by bytes or characters, for next-token prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from scellis_core.plugin import (
    BlockParams,
    Data,
    DataContext,
    DataError,
    DataSpec,
    InputSpec,
    data_path,
    field,
    file_digest,
    split_problem,
)

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np


class TextParams(BlockParams):
    """Parameters of ``data/text``."""

    path: str = field(help="a text file; relative paths start at the record's folder")
    sha256: str | None = field(None, pattern="^[0-9a-f]{64}$", help="digest that the file must have")
    tokens: Literal["byte", "char"] = field(
        "byte", help="byte: ids 0 to 255; char: one id for each distinct character of a UTF-8 file, in order"
    )
    context: int = field(64, gt=0, unit="tokens", help="length of a window")
    stride: int | None = field(None, gt=0, unit="tokens", help="distance between windows; context where left out")
    split: dict[str, float] = field({"val": 0.1}, help="share of the text in each split but train, from its end")

    def problem(self) -> str | None:
        """Shares must leave something for training."""
        return split_problem(self.split)


@dataclass(frozen=True)
class TextSet:
    """An opened text.

    Attributes:
        spec: ``x`` and ``y`` i32[context].
        digest: SHA-256 of the file.
        alphabet: characters by id; None for bytes.
        ids: tokens of each split.
        stride: tokens between the starts of windows.
        where: for errors.
    """

    spec: DataSpec
    digest: str
    alphabet: str | None
    ids: dict[str, np.ndarray]
    stride: int
    where: str

    def batch(self, split: str, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Windows numbered ``indices`` of a split; ``y`` is ``x`` one token later."""
        import numpy as np

        context = self.spec.inputs["x"].shape[0]
        at = np.asarray(indices)[:, None] * self.stride + np.arange(context + 1)
        window = self.ids[split][at].astype(np.int32)
        return {"x": window[:, :-1].copy(), "y": window[:, 1:].copy()}

    def encode(self, text: str) -> list[int]:
        """Token ids of a text.

        Raises:
            DataError: if a character is not in the alphabet.
        """
        if self.alphabet is None:
            return list(text.encode())
        known = {c: i for i, c in enumerate(self.alphabet)}
        for position, character in enumerate(text):
            if character not in known:
                raise DataError(
                    f"{self.where}: text position {position}",
                    f"one of the {len(known)} characters of the training text",
                    repr(character),
                    "those characters only, or a run whose data has tokens: byte",
                )
        return [known[c] for c in text]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids; bytes that are not UTF-8 show as U+FFFD.

        Raises:
            DataError: if an id is not below the vocabulary's size.
        """
        size = 256 if self.alphabet is None else len(self.alphabet)
        for position, i in enumerate(ids):
            if not 0 <= i < size:
                raise DataError(f"{self.where}: id position {position}", f"an id from 0 to {size - 1}", str(i))
        if self.alphabet is None:
            return bytes(ids).decode(errors="replace")
        return "".join(self.alphabet[i] for i in ids)


def _characters(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}:{line}", "UTF-8 text", f"byte 0x{raw[error.start]:02x} at {error.start}", "tokens: byte"
        ) from error


def _lengths(total: int, params: TextParams, where: str) -> dict[str, int]:
    """Tokens in each split, in the order of the text."""
    lengths = {name: round(total * share) for name, share in params.split.items()}
    lengths = {"train": total - sum(lengths.values()), **lengths}
    for name, length in lengths.items():
        if length <= params.context:
            raise DataError(
                where,
                f"more than context = {params.context} tokens in {name}",
                f"{length} of {total}",
                "a longer text, a smaller context or another split",
            )
    return lengths


def _spec(params: TextParams, lengths: dict[str, int], vocab_size: int) -> DataSpec:
    stride = params.stride or params.context
    window = InputSpec((params.context,), "i32", limit=vocab_size)
    return DataSpec(
        inputs={"x": window},
        targets={"y": window},
        sizes={name: (length - params.context - 1) // stride + 1 for name, length in lengths.items()},
        vocab_size=vocab_size,
    )


def describe(params: TextParams, ctx: DataContext) -> DataSpec:
    """``x`` and ``y``, i32[context]; ``y`` is ``x`` moved on by one token.

    Of bytes only the file's size is read.

    Args:
        params: see :class:`TextParams`.
        ctx: where relative paths start.

    Returns:
        What one example holds; a split's size is its number of whole windows.

    Raises:
        DataError: if the file is missing, too short, or not UTF-8 where tokens are characters.
    """
    path = data_path(ctx, params.path)
    if params.tokens == "byte":
        return _spec(params, _lengths(path.stat().st_size, params, str(path)), 256)
    text = _characters(path)
    return _spec(params, _lengths(len(text), params, str(path)), len(set(text)))


def open(params: TextParams, ctx: DataContext) -> TextSet:
    """Read the text and check its digest.

    Args:
        params: see :class:`TextParams`.
        ctx: where relative paths start.

    Returns:
        The dataset; splits follow one another in the text, train first.

    Raises:
        DataError: as :func:`describe`, and if the digest is not ``sha256``.
    """
    import numpy as np

    path = data_path(ctx, params.path)
    digest = file_digest(path)
    if params.sha256 is not None and params.sha256 != digest:
        raise DataError(f"{ctx.where}.sha256", f"{params.sha256} for {path}", digest, "the file that the record means")
    alphabet = None
    if params.tokens == "byte":
        tokens = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    else:
        codes = np.frombuffer(_characters(path).encode("utf-32-le"), dtype=np.uint32)
        known, tokens = np.unique(codes, return_inverse=True)
        alphabet = "".join(chr(c) for c in known)
    lengths = _lengths(len(tokens), params, str(path))
    ids: dict[str, np.ndarray] = {}
    start = 0
    for name, length in lengths.items():
        ids[name] = tokens[start : start + length]
        start += length
    spec = _spec(params, lengths, 256 if alphabet is None else len(alphabet))
    return TextSet(spec, digest, alphabet, ids, params.stride or params.context, ctx.where)


TEXT = Data(
    id="data/text@1",
    title="Text",
    summary="Windows of a text file by bytes or characters; the target is the next token.",
    params=TextParams,
    source="Karpathy, char-rnn, 2015, https://github.com/karpathy/char-rnn (windows of a text, next character)",
    deviation="each window is an example of its own: no state passes from one to the next",
    describe=describe,
    open=open,
)
