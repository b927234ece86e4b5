"""The catalog: every block of this environment by id, imported when it is asked for."""

from __future__ import annotations

import difflib
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from scellis_core.blocks import (
    Augment,
    Average,
    Block,
    BlockParams,
    Clip,
    Codec,
    Data,
    Layer,
    Loss,
    Metric,
    Model,
    Optimizer,
    Peft,
    Scheduler,
    Wrapper,
)
from scellis_core.catalog.checking import Where, validate
from scellis_core.catalog.describing import describe_block
from scellis_core.catalog.discovery import ID, Candidate, find_in_folder, find_installed, import_module, why
from scellis_core.errors import CatalogError, RecordError, ScellisError, nearest

B = TypeVar("B", bound=Block)

FAMILIES: dict[str, type[Block]] = {
    kind.family: kind
    for kind in (
        Layer, Model, Optimizer, Scheduler, Loss, Peft, Clip, Wrapper, Average, Metric, Data, Augment, Codec
    )
}  # fmt: skip
"""The contract of each family."""


@dataclass(frozen=True)
class Entry:
    """One line of the listing: a claim to a block id by a distribution.

    Attributes:
        id: versioned block id.
        title: empty until the block is imported.
        distribution, version: where it comes from.
        module: ``scellis_lion:LION``.
        state: ``ok``, ``clash: ...`` or ``broken: ...``.
    """

    id: str
    title: str
    distribution: str
    version: str
    module: str
    state: str

    def to_json(self) -> dict[str, str]:
        """Plain data, the shape of ``scellis catalog --json``: id, title, distribution, version, module, state."""
        return asdict(self)


@dataclass(frozen=True)
class Origin:
    """Where a block's code comes from, for provenance.

    Attributes:
        distribution, version: of the package.
        sha256: of the module's file, hexadecimal.
    """

    distribution: str
    version: str
    sha256: str


class Catalog:
    """Blocks by id. Made by :meth:`discover`; importing a block happens in :meth:`resolve` and is done once."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._claims: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            self._claims.setdefault(candidate.id, []).append(candidate)
        self._newest: dict[str, str] = {}
        for block_id in self._claims:
            base, _, version = block_id.partition("@")
            if ID.fullmatch(block_id) and int(version) > int(self._newest.get(base, "@0").partition("@")[2]):
                self._newest[base] = block_id
        self._loaded: dict[tuple[str, str], Block | str] = {}
        self._blocks: dict[str, Block] = {}

    @classmethod
    def discover(cls, plugins_dir: str | os.PathLike[str] | None = None) -> Catalog:
        """Find every installed block, and those of one-file plugins in a folder.

        Installed blocks are listed without importing any; the files of the folder are run.

        Args:
            plugins_dir: the folder of ``--plugins-dir``.

        Raises:
            CatalogError: if there is no such folder.
        """
        found = find_installed()
        if plugins_dir is not None:
            found += find_in_folder(Path(plugins_dir))
        return cls(found)

    @property
    def ids(self) -> list[str]:
        """Every id that is claimed, in the order of the listing."""
        return sorted(self._claims, key=_order)

    def entries(self, family: str | None = None, *, load: bool = False) -> list[Entry]:
        """The listing.

        Args:
            family: only this family (``layer``) or what lies below (``training``).
            load: import each block, for its title and to find the broken ones.

        Raises:
            CatalogError: if there is no such family.
        """
        wanted = (family or "").strip("/")
        known = {part for name in FAMILIES for part in (name, name.split("/")[0])}
        known |= {i.rsplit("/", 1)[0] for i in self._claims if "/" in i}
        if wanted and wanted not in known:
            block = wanted in {name for i in self.ids for name in (i, i.partition("@")[0])}
            hint = f"scellis catalog show {wanted}" if block else nearest(wanted, known)
            raise CatalogError("catalog", "a family of blocks", repr(family), hint)
        rows: list[Entry] = []
        for block_id in self.ids:
            if wanted and not block_id.startswith(wanted + "/"):
                continue
            for claim in self._claims[block_id]:
                rows.append(self._entry(claim, load=load))
        return rows

    def _entry(self, claim: Candidate, *, load: bool) -> Entry:
        title, state = "", "ok"
        clash = self._clash(claim.id)
        loaded = self._load(claim) if load and not clash else self._loaded.get((claim.id, claim.origin), "")
        if isinstance(loaded, Block):
            title = loaded.title
        if clash:
            state = f"clash: {clash}"
        elif claim.fault:
            state = f"broken: {claim.fault}"
        elif isinstance(loaded, str) and loaded:
            state = f"broken: {loaded}"
        module = f"{claim.module}:{claim.attr}" if claim.attr else claim.module
        return Entry(claim.id, title, claim.distribution, claim.version, module, state)

    def find(self, block_id: str, where: str = "", family: str | None = None) -> str:
        """Return the versioned id that an id means: a bare one means the newest installed. Imports nothing.

        Args:
            block_id: as written.
            where: its place, for errors.
            family: the family that must have it.

        Raises:
            RecordError: (with ``where``; CatalogError without) no such block, version or family; nearest three ids.
        """
        fault = RecordError if where else CatalogError
        place = where or f"block {block_id}"
        found = self._newest.get(block_id) if "@" not in block_id else block_id
        if found is None or found not in self._claims:
            base = block_id.partition("@")[0]
            versions = [i for i in self.ids if i.partition("@")[0] == base]
            if versions:
                shown = ", ".join(versions[-3:])
                raise fault(place, f"an installed version of {base}", repr(block_id), shown)
            raise fault(place, "the id of an installed block", repr(block_id), self._nearest(base, family))
        if family is not None and found.rsplit("/", 1)[0] != family:
            raise fault(place, f"a block of family {family}", repr(found), self._nearest(block_id, family))
        return found

    def _nearest(self, block_id: str, family: str | None) -> str:
        head, _, name = block_id.rpartition("/")
        if any(b.startswith(f"{block_id}/") for b in self._newest):
            return f"a block of that family: scellis catalog {block_id}"
        bases = [b for b in self._newest if family is None or b.rsplit("/", 1)[0] == family]
        same = [b for b in bases if b.rsplit("/", 1)[1] == name]
        if same:
            return ", ".join(same[:3])
        beside = {b.rsplit("/", 1)[1]: b for b in bases if b.rsplit("/", 1)[0] == head}
        if beside:
            close = difflib.get_close_matches(name, beside, n=3, cutoff=0.5) or sorted(beside)[:3]
            return "one of: " + ", ".join(beside[c] for c in close)
        return nearest(block_id, bases) or f"`scellis catalog`: no block of {family or head} is installed"

    def resolve(self, block_id: str, where: str = "", family: str | None = None) -> Block:
        """Return a block, imported now if it was not.

        Args:
            block_id: versioned, or bare for the newest installed version.
            where: its place in the record, for errors.
            family: the family that must have it.

        Raises:
            RecordError: as :meth:`find` (CatalogError where no place is given).
            CatalogError: two distributions claim the id, or the plugin that has it is broken.
        """
        known = self._blocks.get(block_id)
        if known is not None and (family is None or known.family == family):
            return known
        found = self.find(block_id, where, family)
        place = where or f"block {found}"
        clash = self._clash(found)
        if clash:
            raise CatalogError(place, f"one distribution that provides {found}", clash, "uninstalling one of them")
        claim = self._claims[found][0]
        loaded = self._load(claim)
        if isinstance(loaded, str):
            got = f"plugin {claim.origin} is broken: {loaded}"
            raise CatalogError(place, f"{found} to load", got, f"reinstalling {claim.distribution}, or another block")
        self._blocks[block_id] = self._blocks[found] = loaded
        return loaded

    def resolve_as(self, kind: type[B], block_id: str, where: str = "") -> B:
        """As :meth:`resolve`, typed: ``catalog.resolve_as(Optimizer, "training/optimizer/adamw")``."""
        block = self.resolve(block_id, where, kind.family)
        if not isinstance(block, kind):
            raise CatalogError(where or f"block {block_id}", f"a block of family {kind.family}", repr(block.id))
        return block

    def validate(self, block: Block, raw: Mapping[str, Any], where: Where) -> BlockParams:
        """Check a block's parameters; see :func:`scellis_core.catalog.checking.validate`."""
        return validate(block, raw, where)

    def describe(self, block_id: str) -> dict[str, Any]:
        """A block as plain data: what it declares, its parameters, its origin and state.

        Returns:
            The keys of :func:`scellis_core.catalog.describing.describe_block`, and ``distribution``, ``version``,
            ``module``, ``sha256``, ``state``.

        Raises:
            CatalogError: as :meth:`resolve`.
        """
        block = self.resolve(block_id)
        claim = self._claims[block.id][0]
        entry = self._entry(claim, load=False)
        where_from = {k: v for k, v in entry.to_json().items() if k not in ("id", "title")}
        return {**describe_block(block), **where_from, "sha256": self.origin(block.id).sha256}

    def origin(self, block_id: str) -> Origin:
        """Distribution, version and the SHA-256 of the module's file of a block, which is imported.

        Raises:
            CatalogError: as :meth:`resolve`, or the file cannot be read.
        """
        block = self.resolve(block_id)
        claim = self._claims[block.id][0]
        file = getattr(sys.modules.get(claim.module), "__file__", None) or claim.owned
        try:
            data = Path(file).read_bytes() if file else _source(claim.module)
        except OSError as error:
            got = (error.strerror or str(error)).lower()
            raise CatalogError(
                f"block {block.id}", f"the file of module {claim.module}", got, "reinstalling it"
            ) from error
        return Origin(claim.distribution, claim.version, hashlib.sha256(data).hexdigest())

    def _clash(self, block_id: str) -> str:
        claims = self._claims[block_id]
        if len(claims) < 2 or ID.fullmatch(block_id) is None:
            return ""
        return "both of " + " and ".join(c.origin for c in claims)

    def _load(self, claim: Candidate) -> Block | str:
        """The block of a claim, or the reason why it is broken."""
        key = (claim.id, claim.origin)
        if key not in self._loaded:
            self._loaded[key] = claim.fault or _import(claim)
        return self._loaded[key]


def _source(module: str) -> bytes:
    loader = getattr(getattr(sys.modules.get(module), "__spec__", None), "loader", None)
    text = loader.get_source(module) if loader is not None and hasattr(loader, "get_source") else None
    if text is None:
        raise OSError("it has no source")
    return text.encode()


def _order(block_id: str) -> tuple[str, str, int]:
    base, _, version = block_id.partition("@")
    return (base.rpartition("/")[0], base, int(version) if version.isdecimal() else 0)


def _import(claim: Candidate) -> Block | str:
    try:
        module = None if claim.block is not None else import_module(claim.module)
        found: Any = claim.block if module is None else attrgetter(claim.attr)(module)
    except ScellisError as error:
        return why(error)
    except AttributeError as error:
        return f"{claim.module} has no {claim.attr}" if claim.module in sys.modules else why(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001  one broken plugin stops nothing else
        return why(error)
    file = getattr(module, "__file__", None)
    if claim.owned and file and os.path.realpath(file) != os.path.realpath(claim.owned):
        return f"module {claim.module} is imported from {file}, not from its own file {claim.owned}"
    return check_block(claim.id, found) or found


def check_block(block_id: str, found: Any) -> str:
    """Why an object is not the block that its id says; empty where it is."""
    if not isinstance(found, Block):
        return f"it is {_a(type(found))}, not a block"
    if found.id != block_id:
        return f"it says that its id is {found.id}"
    family = block_id.rsplit("/", 1)[0]
    kind = FAMILIES.get(family)
    if kind is None:
        return f"there is no family {family}"
    if not isinstance(found, kind):
        return f"it is {_a(type(found))}, not {_a(kind)} as its id says"
    params: Any = found.params
    if not (isinstance(params, type) and issubclass(params, BlockParams)):
        return "its params are no subclass of BlockParams"
    if isinstance(found, Layer) and (found.lower is None) == (found.compose is None):
        return "a layer has either lower or compose"
    return ""


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[0].lower() in 'aeiou' else 'a'} {kind.__name__}"
