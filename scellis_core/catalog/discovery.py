"""What is installed: entry points of the group ``scellis.blocks`` and one-file plugins. Imports no block.

The name of an entry point is the block's versioned id. Nothing is dropped on the way: two distributions that
claim one id, or own one file, are both kept and say so in their state.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from importlib_metadata import Distribution, EntryPoint, entry_points

from scellis_core.blocks import Block
from scellis_core.errors import CatalogError

GROUP = "scellis.blocks"

ID = re.compile(r"(?P<family>[a-z][a-z0-9_]*(?:/[a-z][a-z0-9_]*)*)/(?P<name>[a-z][a-z0-9_]*)@(?P<version>[1-9][0-9]*)")


@dataclass
class Candidate:
    """One claim to a block id, by one distribution.

    Attributes:
        id: as claimed; the file's name where a one-file plugin does not import.
        distribution: its name; ``file lion.py`` for a one-file plugin.
        version: of the distribution; the first 12 digits of the file's SHA-256 for a one-file plugin.
        module: module that holds it.
        attr: its name in there, dotted.
        fault: why it cannot be used, as far as that is known without importing it.
        block: the block, where it is at hand already.
        owned: absolute path that the distribution says its module has, or empty.
    """

    id: str
    distribution: str
    version: str
    module: str
    attr: str
    fault: str = ""
    block: Block | None = None
    owned: str = ""

    @property
    def origin(self) -> str:
        """``scellis-lion 0.1``."""
        return f"{self.distribution} {self.version}"


@dataclass
class Provider:
    """A distribution with entry points of one group."""

    dist: Distribution
    name: str
    version: str
    points: list[EntryPoint] = field(default_factory=list[EntryPoint])
    files: set[str] = field(default_factory=set[str])
    root: str = ""


def providers(group: str = GROUP) -> list[Provider]:
    """Every distribution on the path that has entry points of a group, by name; repeated names are all kept."""
    found: dict[int, Provider] = {}
    for point in entry_points(group=group):
        dist = point.dist
        if id(dist) not in found:
            found[id(dist)] = Provider(dist, dist.name or "unnamed", dist.version or "unknown")
        found[id(dist)].points.append(point)
    return sorted(found.values(), key=lambda p: p.name)


def find_installed() -> list[Candidate]:
    """Candidates of every installed distribution."""
    all_of_them = providers()
    for provider in all_of_them:
        provider.root = os.path.realpath(str(provider.dist.locate_file("")))
        provider.files = _files(provider.dist, provider.root)
    shared = _shared(all_of_them)
    return [_candidate(provider, point, shared) for provider in all_of_them for point in provider.points]


def _candidate(provider: Provider, point: EntryPoint, shared: dict[str, list[str]]) -> Candidate:
    claim = Candidate(point.name, provider.name, provider.version, point.module, point.attr or "")
    stem = os.path.join(provider.root, *point.module.split("."))
    claim.owned = next((p for p in (stem + ".py", os.path.join(stem, "__init__.py")) if p in provider.files), "")
    if ID.fullmatch(point.name) is None:
        claim.fault = f"its name {point.name!r} is no block id such as layer/linear@1"
    elif not point.attr:
        claim.fault = f"its entry point {point.value!r} names a module, not a block such as lion:LION"
    else:
        top = os.path.join(provider.root, point.module.split(".")[0])
        for path, owners in shared.items():
            if provider.name in owners and (path == top + ".py" or path.startswith(top + os.sep)):
                claim.fault = f"file {os.path.relpath(path, provider.root)} is owned by {' and '.join(owners)}"
                break
    return claim


def _files(dist: Distribution, root: str) -> set[str]:
    """Absolute paths of the Python files that a distribution's RECORD lists."""
    text = dist.read_text("RECORD") or ""
    rows = csv.reader(line for line in text.splitlines() if ".py" in line)
    names = (row[0] for row in rows if row and row[0].endswith(".py"))
    return {os.path.normpath(os.path.join(root, name)) for name in names}


def _shared(owning: Iterable[Provider]) -> dict[str, list[str]]:
    """Files that more than one distribution owns, with the owners."""
    owners: dict[str, list[str]] = {}
    for provider in owning:
        for path in provider.files:
            owners.setdefault(path, []).append(provider.name)
    return {path: names for path, names in sorted(owners.items()) if len(names) > 1}


def find_in_folder(folder: Path) -> list[Candidate]:
    """Candidates of the one-file plugins in a folder: each ``.py`` file is run, its module-level blocks are taken.

    Raises:
        CatalogError: if there is no such folder.
    """
    if not folder.is_dir():
        raise CatalogError(f"plugins folder {folder}", "a folder of .py files", "none", "an existing folder")
    found: list[Candidate] = []
    for path in sorted(folder.glob("*.py")):
        version = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        name = f"scellis_plugin_files.{path.stem}_{version}"
        base = Candidate(path.name, f"file {path.name}", version, name, "", owned=os.path.realpath(path))
        try:
            module = _run_file(name, path)
        except (Exception, SystemExit) as error:  # noqa: BLE001  one broken plugin stops nothing else
            base.fault = why(error)
            found.append(base)
            continue
        blocks = {id(v): (k, v) for k, v in vars(module).items() if isinstance(v, Block)}
        if not blocks:
            base.fault = "it holds no block"
            found.append(base)
        for attr, block in blocks.values():
            fault = "" if ID.fullmatch(block.id) else f"its id {block.id!r} is no block id such as layer/linear@1"
            found.append(Candidate(block.id, base.distribution, version, name, attr, fault, block, base.owned))
    return found


def _run_file(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def import_module(name: str) -> Any:
    """Import a plugin's module."""
    return sys.modules[name] if name in sys.modules else importlib.import_module(name)


def why(error: BaseException) -> str:
    """A plugin's failure in one line: ``ImportError: No module named 'x'``."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
