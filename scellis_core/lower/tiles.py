"""Tile shapes of the matrix kernels and the choice among them.

The choice is a cost model in cycles of one core (streaming multiprocessor, compute unit), so that it is the same on
every run of one device; :data:`GPU` and the ``CPU_`` names hold its constants. ``benchmarks/kernels.py --variants``
measures every candidate against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from scellis_core.errors import DeviceError
from scellis_core.lower.program import Limits

Layout = Literal["k", "x"]
"""Along what a tile's vec4s run in shared memory: ``k`` (the summed axis) or ``x`` (rows or columns)."""

CPU_FEATURE = "cpu-adapter"
"""Listed in ``Limits.features`` by a host whose adapter is a CPU (lavapipe, SwiftShader)."""


@dataclass(frozen=True)
class Tile:
    """One workgroup computes ``bm`` x ``bn`` results in steps of ``bk``; one thread ``tm`` x ``tn`` of them.

    Attributes:
        bm, bn, bk, tm, tn: elements; ``bk`` is a multiple of 4.
        wx: columns of threads that 32 consecutive threads span; 0: all of them.
        double: two shared tiles taken in turn, so one barrier a step instead of two.
        shared: False reads operands straight from their buffers (``bk`` is then the unrolling).
    """

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    wx: int = 0
    double: bool = False
    shared: bool = True

    @property
    def tx(self) -> int:
        """Columns of threads."""
        return self.bn // self.tn

    @property
    def ty(self) -> int:
        """Rows of threads."""
        return self.bm // self.tm

    @property
    def threads(self) -> int:
        """Invocations of a workgroup."""
        return self.tx * self.ty

    def __str__(self) -> str:
        tail = (f"w{self.wx}" if self.wx else "") + ("d" if self.double else "") + ("" if self.shared else "g")
        return f"{self.bm}x{self.bn}x{self.bk}_{self.tm}x{self.tn}{tail}"

    def layout(self, preferred: Layout, per_thread: int) -> Layout:
        """The layout of an operand of which a thread takes ``per_thread`` rows or columns."""
        return "x" if preferred == "x" and per_thread % 4 == 0 else "k"

    def layouts(self, a: Layout, b: Layout) -> tuple[Layout, Layout]:
        """Layouts of both tiles, given the preferred ones."""
        return self.layout(a, self.tm), self.layout(b, self.tn)

    def pads(self, a: Layout, b: Layout, limits: Limits) -> tuple[int, int] | None:
        """vec4s of padding a row of each tile against bank conflicts; None where the tile does not fit."""
        if not self.shared:
            return (0, 0)
        room = limits.max_compute_workgroup_storage_size
        for pad_a, pad_b in ((1, 1), (0, 1), (0, 0)):
            if self.bytes(a, b, pad_a, pad_b) <= room:
                return (pad_a if a == "k" else 0, pad_b if b == "k" else 0)
        return None

    def bytes(self, a: Layout, b: Layout, pad_a: int, pad_b: int) -> int:
        """Shared bytes of both tiles with those paddings."""
        kv = self.bk // 4
        size_a = self.bm * (kv + pad_a) if a == "k" else self.bm * kv
        size_b = self.bn * (kv + pad_b) if b == "k" else self.bn * kv
        return 16 * (size_a + size_b) * (2 if self.double else 1)


@dataclass(frozen=True)
class Profile:
    """Constants of the cost model.

    Attributes:
        cores: streaming multiprocessors the choice aims to fill (about those of a large GPU; a smaller one only
            sees more, smaller workgroups than it needs).
        rate: multiply-adds a cycle and core at best.
        full: threads a core needs to hide latency.
        bandwidth: bytes a cycle of the whole device.
        launch: cycles that a further dispatch costs.
        step: cycles of one step of the K loop besides its arithmetic.
        start: cycles of a workgroup's beginning and end.
        tiles: candidates with the share of ``rate`` that each reaches when it fills the core.
    """

    cores: int
    rate: int
    full: int
    bandwidth: int
    launch: int
    step: int
    start: int
    tiles: tuple[tuple[Tile, float], ...]


GPU = Profile(
    cores=132,
    rate=128,
    full=384,
    bandwidth=2000,
    launch=6000,
    step=60,
    start=1200,
    tiles=(
        (Tile(64, 128, 16, 8, 8), 0.74),
        (Tile(128, 64, 16, 8, 8), 0.72),
        (Tile(64, 64, 16, 8, 4), 0.58),
        (Tile(64, 64, 16, 4, 4), 0.46),
        (Tile(32, 64, 16, 4, 4), 0.44),
        (Tile(64, 32, 16, 4, 4), 0.44),
        (Tile(32, 32, 32, 4, 4), 0.40),
        (Tile(16, 64, 32, 2, 4), 0.30),
        (Tile(64, 16, 32, 4, 2), 0.28),
        (Tile(8, 128, 16, 2, 4), 0.28),
        (Tile(128, 8, 16, 4, 2), 0.26),
    ),
)
"""Shares are estimates from the measurements at hand on an H200, where f32 matmuls reach 38 of 67 TFLOP/s."""

CPU_TILES = (
    Tile(32, 32, 4, 8, 16, shared=False),
    Tile(32, 64, 4, 8, 8, shared=False),
    Tile(64, 16, 4, 8, 8, shared=False),
    Tile(8, 64, 4, 8, 8, shared=False),
    Tile(16, 16, 4, 4, 4, shared=False),
    Tile(4, 32, 4, 4, 4, shared=False),
    Tile(1, 32, 4, 1, 4, shared=False),
    Tile(32, 4, 4, 4, 1, shared=False),
)
"""Candidates for CPU adapters: no shared memory, since they pay for barriers and gain no locality."""

CPU_CORES = 2
CPU_LANES = 8
CPU_LOAD = 300
"""Cycles that lavapipe takes to load one element for each of its eight lanes."""
CPU_FMA = 6
CPU_COMPILE = 25_000
"""Cycles of a pipeline's compilation for each accumulator, over the runs it may count on."""
CPU_LAUNCH = 100_000


def is_cpu(limits: Limits) -> bool:
    """Whether the device is a CPU adapter."""
    return CPU_FEATURE in limits.features


@dataclass(frozen=True)
class Choice:
    """A tile, and over how many workgroups the summed axis is split."""

    tile: Tile
    splits: int


def cpu_cost(tile: Tile, m: int, n: int, k: int, batch: int, splits: int) -> float:
    """Estimated cycles of one product on a CPU adapter."""
    steps = -(-k // tile.bk)
    per = -(-steps // splits)
    groups = -(-m // tile.bm) * -(-n // tile.bn) * batch * -(-steps // per)
    one = CPU_LOAD * (tile.tm + tile.tn) + CPU_FMA * tile.tm * tile.tn
    work = per * tile.bk * one * -(-tile.threads // CPU_LANES)
    extra = CPU_LAUNCH + CPU_LOAD * m * n * batch * splits / CPU_LANES / CPU_CORES if splits > 1 else 0
    return -(-groups // CPU_CORES) * work + CPU_COMPILE * tile.tm * tile.tn + extra


def cost(p: Profile, tile: Tile, share: float, m: int, n: int, k: int, batch: int, splits: int) -> float:
    """Estimated cycles of one product."""
    tiles = -(-m // tile.bm) * -(-n // tile.bn) * batch
    steps = -(-k // tile.bk)
    per = -(-steps // splits)
    groups = tiles * -(-steps // per)
    waves = -(-groups // p.cores)
    resident = min(waves * tile.threads, p.full) / p.full
    work = tile.bm * tile.bn * tile.bk / (p.rate * share * resident**0.6)
    total = waves * per * work + per * p.step + p.start * (1 + waves * tile.threads / 2048)
    if splits > 1:
        total += p.launch + 8.0 * m * n * batch * splits / p.bandwidth
    return total


def candidates(limits: Limits, a: Layout, b: Layout, tiles: Iterable[Tile]) -> list[Tile]:
    """Those of the tiles that the device's limits allow for operands of those preferred layouts."""
    top = min(limits.max_compute_invocations_per_workgroup, limits.max_compute_workgroup_size_x)
    return [t for t in tiles if t.threads <= top and t.pads(*t.layouts(a, b), limits) is not None]


def choose(
    limits: Limits,
    size: tuple[int, int, int, int],
    layouts: tuple[Layout, Layout],
    can_split: Callable[[int], bool] = lambda _: True,
) -> Choice:
    """The cheapest tile and split.

    Args:
        limits: of the device.
        size: m, n, k, batch.
        layouts: preferred layouts of the two operands.
        can_split: whether the partial results of that many splits fit the device.

    Raises:
        DeviceError: if no tile fits the limits.
    """
    k = size[2]
    cpu = is_cpu(limits)
    options = [(t, 1.0) for t in CPU_TILES] if cpu else list(GPU.tiles)
    best: tuple[float, Choice] | None = None
    fitting = set(candidates(limits, *layouts, (t for t, _ in options)))
    for tile, share in options:
        if tile not in fitting:
            continue
        for splits in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
            if splits > 1 and (splits * tile.bk * 4 > k or not can_split(splits)):
                break
            price = cpu_cost(tile, *size, splits) if cpu else cost(GPU, tile, share, *size, splits)
            if best is None or price < best[0]:
                best = (price, Choice(tile, splits))
    if best is None:
        raise DeviceError(
            "matrix kernel",
            "at least 64 invocations and 8 KiB of shared memory a workgroup",
            f"{min(limits.max_compute_invocations_per_workgroup, limits.max_compute_workgroup_size_x)} and "
            f"{limits.max_compute_workgroup_storage_size} bytes",
            "another device",
        )
    return best[1]
