"""Index arithmetic of generated kernels: symbolic u32 indices, mixed-radix positions, and the text they become.

An element of a tensor is named by a :class:`Position`: digits of a mixed-radix number whose radices multiply to
the tensor's element count. A linear index is the one-digit case, so reshapes are free, and a view converts the
position only to the coarsest radix that it needs. :class:`Code` collects WGSL, one ``let`` an operation, each
distinct expression named once and placed in the outermost block where its operands are known.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache
from math import gcd

Shape = tuple[int, ...]
LANES = "xyzw"


class Ix:
    """A u32 expression with what is known of it.

    Attributes:
        text: a name or a literal; for a lane (see ``base``) only an identity.
        size: exclusive upper bound.
        depth: the innermost block it depends on.
        const: its value where known.
        factor: a number that divides it.
        product: ``(x, m)`` where it is ``x * m``.
        base: for lane ``lane`` of a quad: the value is ``4 * base + lane``.
    """

    __slots__ = ("base", "const", "depth", "factor", "lane", "product", "size", "text")

    def __init__(
        self,
        text: str,
        size: int,
        depth: int = 0,
        const: int | None = None,
        factor: int = 1,
        product: tuple[Ix, int] | None = None,
        base: Ix | None = None,
        lane: int = 0,
    ) -> None:
        self.text = text
        self.size = size
        self.depth = depth
        self.const = const
        self.factor = factor
        self.product = product
        self.base = base
        self.lane = lane


def constant(value: int) -> Ix:
    """A known index."""
    return Ix(f"{value}u", value + 1, const=value, factor=value)


def lane(base: Ix, k: int) -> Ix:
    """Lane ``k`` of the quad at ``4 * base``."""
    return Ix(f"{base.text}:{k}", 4 * base.size, base.depth, base=base, lane=k)


class Position:
    """Digits ``at`` in the radices ``dims`` (no radix is 1; a single element has no digits)."""

    __slots__ = ("at", "depth", "dims", "key")

    def __init__(self, dims: Shape, at: tuple[Ix, ...]) -> None:
        self.dims = dims
        self.at = at
        self.depth = max((ix.depth for ix in at), default=0)
        self.key: Hashable = (dims, tuple([ix.text for ix in at]))


ORIGIN = Position((), ())


def linear(ix: Ix, numel: int) -> Position:
    """The position of a linear index."""
    return Position((numel,), (ix,)) if numel != 1 else ORIGIN


class Code:
    """WGSL statements in nested blocks.

    ``let`` places a statement as far out as its operands allow. Values are never moved out of an ``if`` (that
    would read what the condition guards); index arithmetic is.
    """

    def __init__(self) -> None:
        self.blocks: list[list[str]] = [[]]
        self.memos: list[dict[Hashable, tuple[str, int]]] = [{}]
        self.floors: list[int] = [0]
        self.count = 0

    @property
    def depth(self) -> int:
        """How deep the current block is."""
        return len(self.blocks) - 1

    def name(self, prefix: str = "v") -> str:
        """A fresh name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def line(self, text: str, depth: int = -1) -> None:
        """Append a statement to a block."""
        self.blocks[depth].append(text)

    def find(self, key: Hashable) -> tuple[str, int] | None:
        """What :meth:`keep` kept in this block or one around it."""
        for memo in reversed(self.memos):
            if key in memo:
                return memo[key]
        return None

    def keep(self, key: Hashable, text: str, depth: int) -> tuple[str, int]:
        """Remember an expression for later uses of the same key."""
        self.memos[depth][key] = found = (text, depth)
        return found

    def let(self, key: Hashable, text: str, depth: int, *, value: bool = False, prefix: str = "v") -> tuple[str, int]:
        """The name of an expression, written once; ``value`` marks what may not leave an ``if``."""
        found = self.find(key)
        if found is not None:
            return found
        if value:
            depth = max(depth, self.floors[-1])
        name = self.name(prefix)
        self.blocks[depth].append(f"let {name} = {text};")
        return self.keep(key, name, depth)

    def open(self, head: str, *, guard: bool) -> None:
        """Begin a block; ``guard`` for one that may not run."""
        self.blocks.append([head + " {"])
        self.memos.append({})
        self.floors.append(self.depth if guard else self.floors[-1])

    def close(self) -> None:
        """End the block begun last."""
        lines = self.blocks.pop()
        self.memos.pop()
        self.floors.pop()
        self.blocks[-1] += [lines[0], *("  " + line for line in lines[1:]), "}"]

    def text(self, indent: str = "  ") -> str:
        """All statements."""
        return "\n".join(indent + line for line in self.blocks[0])

    # -- index arithmetic ------------------------------------------------------------------------------------
    def index(self, text: str, size: int, depth: int | None = None) -> Ix:
        """An index that some statement has named."""
        return Ix(text, size, self.depth if depth is None else depth)

    def scalar(self, ix: Ix) -> str:
        """An index as WGSL text."""
        if ix.base is None:
            return ix.text
        return self._op(self.mul(ix.base, 4), "+", f"{ix.lane}u", ix.depth) if ix.lane else self.mul(ix.base, 4).text

    def _op(self, a: Ix, op: str, b: str, depth: int) -> str:
        text = f"{self.scalar(a)} {op} {b}"
        return self.let(text, text, depth, prefix="ix")[0]

    def add(self, a: Ix, b: Ix) -> Ix:
        """``a + b``."""
        if a.const == 0:
            return b
        if b.const == 0:
            return a
        if a.const is not None and b.const is not None:
            return constant(a.const + b.const)
        if b.base is None and a.base is not None:
            a, b = b, a
        if b.base is not None and a.base is None and a.factor % 4 == 0:
            return lane(self.add(self.div(a, 4), b.base), b.lane)
        depth = max(a.depth, b.depth)
        text = self._op(a, "+", self.scalar(b), depth)
        return Ix(text, a.size + b.size - 1, depth, factor=gcd(a.factor, b.factor))

    def mul(self, a: Ix, m: int) -> Ix:
        """``a * m``."""
        if m == 1:
            return a
        if a.const is not None:
            return constant(a.const * m)
        if a.product is not None:
            return self.mul(a.product[0], a.product[1] * m)
        text = self._op(a, "*", f"{m}u", a.depth)
        return Ix(text, (a.size - 1) * m + 1, a.depth, factor=a.factor * m, product=(a, m))

    def div(self, a: Ix, m: int) -> Ix:
        """``a / m``, rounded down."""
        if m == 1:
            return a
        if a.const is not None:
            return constant(a.const // m)
        if a.size <= m:
            return constant(0)
        if a.product is not None and a.product[1] % m == 0:
            return self.mul(a.product[0], a.product[1] // m)
        if a.base is not None and m % 4 == 0:
            return self.div(a.base, m // 4)
        factor = a.factor // m if a.factor % m == 0 else 1
        return Ix(self._op(a, "/", f"{m}u", a.depth), (a.size - 1) // m + 1, a.depth, factor=factor)

    def mod(self, a: Ix, m: int) -> Ix:
        """``a % m``."""
        if m == 1 or (a.product is not None and a.product[1] % m == 0):
            return constant(0)
        if a.const is not None:
            return constant(a.const % m)
        if a.size <= m:
            return a
        if a.base is not None and m % 4 == 0:
            return lane(self.mod(a.base, m // 4), a.lane)
        return Ix(self._op(a, "%", f"{m}u", a.depth), m, a.depth, factor=gcd(a.factor, m))

    def sub(self, a: Ix, m: int) -> Ix:
        """``a - m``, for an ``a`` known to be no less."""
        if m == 0:
            return a
        if a.const is not None:
            return constant(max(a.const - m, 0))
        if a.base is not None and m % 4 == 0:
            return lane(self.sub(a.base, m // 4), a.lane)
        return Ix(self._op(a, "-", f"{m}u", a.depth), max(a.size - m, 1), a.depth, factor=gcd(a.factor, m))

    def below(self, a: Ix, n: int) -> Ix:
        """``min(a, n - 1)``."""
        if a.size <= n:
            return a
        text = f"min({self.scalar(a)}, {n - 1}u)"
        return Ix(self.let(text, text, a.depth, prefix="ix")[0], n, a.depth)

    # -- positions -------------------------------------------------------------------------------------------
    def digits(self, position: Position, dims: Shape, need: tuple[bool, ...] | None = None) -> tuple[Ix, ...]:
        """The digits of a position in other radices of the same product; those not in ``need`` are left 0."""
        if dims == position.dims:
            return position.at
        out: list[Ix] = []
        for a0, a1, b0, b1 in segments(position.dims, dims):
            if need is not None and not any(need[b0:b1]):
                out += [constant(0)] * (b1 - b0)
                continue
            whole, stride = constant(0), 1
            if a1 - a0 == 1:
                whole = position.at[a0]
            else:
                sizes = position.dims[a0:a1]
                strides = [1] * len(sizes)
                for k in range(len(sizes) - 2, -1, -1):
                    strides[k] = strides[k + 1] * sizes[k + 1]
                for ix, stride in zip(position.at[a0:a1], strides, strict=True):
                    whole = self.add(whole, self.mul(ix, stride))
            split: list[Ix] = []
            for k in range(b1 - 1, b0, -1):
                wanted = need is None or need[k]
                split.append(self.mod(whole, dims[k]) if wanted else constant(0))
                whole = self.div(whole, dims[k]) if need is None or any(need[b0:k]) else constant(0)
            out.append(whole)
            out += reversed(split)
        return tuple(out)

    def flat(self, position: Position, numel: int) -> Ix:
        """The linear index of a position."""
        return self.digits(position, (numel,))[0] if numel != 1 else constant(0)

    def broadcast(self, position: Position, source: Shape, target: Shape) -> Position:
        """Where an element of ``source`` seen at shape ``target`` comes from."""
        dims, kept = broadcast_dims(source, target)
        at = self.digits(position, dims, kept)
        return Position(
            tuple([d for d, k in zip(dims, kept, strict=True) if k]),
            tuple([a for a, k in zip(at, kept, strict=True) if k]),
        )

    def permute(self, position: Position, source: Shape, perm: Shape) -> Position:
        """Where an element of the permuted tensor comes from."""
        dims, order = permute_dims(source, perm)
        at = self.digits(position, dims)
        return Position(tuple([dims[k] for k in order]), tuple([at[k] for k in order]))

    def window(self, position: Position, parts: tuple[tuple[int, int, int, int], ...]) -> Position:
        """Where an element of a slice comes from; ``parts`` as :func:`slice_dims` gives them."""
        at = self.digits(position, tuple([p[0] for p in parts if p[0] != 1]))
        out: list[Ix] = []
        given = iter(at)
        for size, _, start, step in parts:
            ix = next(given) if size != 1 else constant(0)
            if step < 0:
                text = f"{start}u - {self.scalar(self.mul(ix, -step))}"
                out.append(Ix(self.let(text, text, ix.depth, prefix="ix")[0], start + 1, ix.depth))
            else:
                out.append(self.add(constant(start), self.mul(ix, step)))
        wide = [(p[1], ix) for p, ix in zip(parts, out, strict=True) if p[1] != 1]
        return Position(tuple([w[0] for w in wide]), tuple([w[1] for w in wide]))


_LET = re.compile(r"\s*let (\w+) = ")
_WORD = re.compile(r"[A-Za-z_]\w*")


def without_unused(text: str) -> str:
    """WGSL statements without the ``let`` statements that nothing after them names.

    Parts of one kernel that differ only in where they begin become one text.
    """
    used: set[str] = set()
    kept: list[str] = []
    for line in reversed(text.split("\n")):
        found = _LET.match(line)
        if found is None or found[1] in used:
            used.update(_WORD.findall(line))
            kept.append(line)
    return "\n".join(reversed(kept))


def plain(shape: Shape) -> Shape:
    """A shape without its ones."""
    return tuple([d for d in shape if d != 1])


@lru_cache(maxsize=4096)
def segments(a: Shape, b: Shape) -> tuple[tuple[int, int, int, int], ...]:
    """Shortest runs ``a[a0:a1]``, ``b[b0:b1]`` of equal products, in order."""
    out: list[tuple[int, int, int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        i0, j0 = i, j
        x, y = a[i], b[j]
        i, j = i + 1, j + 1
        while x != y:
            if x < y:
                x, i = x * a[i], i + 1
            else:
                y, j = y * b[j], j + 1
        out.append((i0, i, j0, j))
    return tuple(out)


@lru_cache(maxsize=4096)
def broadcast_dims(source: Shape, target: Shape) -> tuple[Shape, tuple[bool, ...]]:
    """``target`` merged into runs that are all kept from ``source`` or all repeated."""
    dims: list[int] = []
    kept: list[bool] = []
    short = (1,) * (len(target) - len(source)) + source
    for have, want in zip(short, target, strict=True):
        if want == 1:
            continue
        keep = have != 1
        if kept and kept[-1] == keep:
            dims[-1] *= want
        else:
            dims.append(want)
            kept.append(keep)
    return tuple(dims), tuple(kept)


@lru_cache(maxsize=4096)
def permute_dims(source: Shape, perm: Shape) -> tuple[Shape, Shape]:
    """The permuted shape merged where neighbours stay neighbours, and for each source run its place in that."""
    runs: list[list[int]] = []
    places = {axis: k for k, axis in enumerate(a for a in range(len(source)) if source[a] != 1)}
    for axis in perm:
        if source[axis] == 1:
            continue
        if runs and places[runs[-1][-1]] + 1 == places[axis]:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    dims: list[int] = []
    for run in runs:
        size = 1
        for axis in run:
            size *= source[axis]
        dims.append(size)
    order = sorted(range(len(runs)), key=lambda k: runs[k][0])
    return tuple(dims), tuple(order)


@lru_cache(maxsize=4096)
def slice_dims(source: Shape, starts: Shape, steps: Shape, target: Shape) -> tuple[tuple[int, int, int, int], ...]:
    """Runs ``(target size, source size, start, step)``, untouched axes merged."""
    out: list[tuple[int, int, int, int]] = []
    for have, start, step, want in zip(source, starts, steps, target, strict=True):
        whole = start == 0 and step == 1 and have == want
        if whole and have == 1:
            continue
        if whole and out and out[-1][2] == 0 and out[-1][3] == 1 and out[-1][0] == out[-1][1]:
            out[-1] = (out[-1][0] * want, out[-1][1] * have, 0, 1)
        else:
            out.append((want, have, start, step))
    return tuple(out)
