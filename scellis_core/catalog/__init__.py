"""Discovery of blocks and hooks, pickers, clash and broken-plugin reports, and origins for provenance.

Example:
    >>> catalog = Catalog.discover()
    >>> catalog.find("layer/linear")
    'layer/linear@1'
"""

from scellis_core.catalog.checking import parameter_names, unknown_parameter, validate
from scellis_core.catalog.core import FAMILIES, Catalog, Entry, Origin, check_block
from scellis_core.catalog.describing import describe_block, parameters
from scellis_core.catalog.hooks import HOOKS, HookPlugin, Hooks
from scellis_core.catalog.names import suggest

__all__ = [
    "FAMILIES",
    "HOOKS",
    "Catalog",
    "Entry",
    "HookPlugin",
    "Hooks",
    "Origin",
    "check_block",
    "describe_block",
    "parameter_names",
    "parameters",
    "suggest",
    "unknown_parameter",
    "validate",
]
