"""The door: all that a block author may import.

Author contracts (:class:`Optimizer`, :class:`Layer`, :class:`Loss` ...), the functional ops (``ops.exp``,
``ops.matmul`` ...), and the errors a block may raise. Nothing else of the core is part of the API.
"""

from scellis_core import ops
from scellis_core.blocks import *  # noqa: F403
from scellis_core.blocks import __all__ as _blocks
from scellis_core.errors import ContractError, DataError, RecordError, ScellisError
from scellis_core.ir import Graph, Type, Value

__all__ = ["ContractError", "DataError", "Graph", "RecordError", "ScellisError", "Type", "Value", "ops", *_blocks]
