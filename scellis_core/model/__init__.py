"""L4 to L3 to L2: a record resolved into blocks, and traced into an op graph."""

from scellis_core.model.lowering import Lowered, Mode, count_params, lower
from scellis_core.model.resolve import (
    AugmentUse,
    DataUse,
    GroupUse,
    LossUse,
    MetricUse,
    PeftUse,
    ResolvedRun,
    resolve_run,
)
from scellis_core.model.show import print_blocks
from scellis_core.model.tensors import initial_tensors
from scellis_core.model.trace import TensorMeta

__all__ = [
    "AugmentUse",
    "DataUse",
    "GroupUse",
    "LossUse",
    "Lowered",
    "MetricUse",
    "Mode",
    "PeftUse",
    "ResolvedRun",
    "TensorMeta",
    "count_params",
    "initial_tensors",
    "lower",
    "print_blocks",
    "resolve_run",
]
