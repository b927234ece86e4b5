"""The door: all that a block author may import.

Author contracts (:class:`Optimizer`, :class:`Layer`, :class:`Loss` ...), the functional ops (``ops.exp``,
``ops.matmul`` ...), the errors a block may raise, and the marker of hooks. Nothing else of the core is part of
the API.
"""

import pluggy

from scellis_core import ops
from scellis_core.blocks import *  # noqa: F403
from scellis_core.blocks import __all__ as _blocks
from scellis_core.errors import ContractError, DataError, RecordError, ScellisError, nearest
from scellis_core.ir import Graph, Type, Value

hookimpl = pluggy.HookimplMarker("scellis")
"""Marks a function as a hook of a plugin in the group ``scellis.hooks``."""

__all__ = [
    "ContractError",
    "DataError",
    "Graph",
    "RecordError",
    "ScellisError",
    "Type",
    "Value",
    "hookimpl",
    "nearest",
    "ops",
    *_blocks,
]
