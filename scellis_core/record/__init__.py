r"""The record: schema, SML, canonical bytes, digest, graph projection, and the place of every path.

Example:
    >>> record = Record.parse("sml: 1\narchitecture: { block_id: model/mlp }")
    >>> record.where("architecture.block_id")
    'run.sml:2:27 architecture.block_id'
    >>> record.pipeline_missing()
    ['data', 'optimizer', 'loss', 'epochs', 'batch_size', 'determinism_tier']
"""

from scellis_core.record.canonical import canonical_bytes
from scellis_core.record.core import Record, dumps, parse_override
from scellis_core.record.graph import GraphNode, GraphView, Source
from scellis_core.record.reference import KeyInfo, reference_table, schema_keys
from scellis_core.record.schema import (
    At,
    Best,
    BlockRef,
    Checkpoint,
    ClipRef,
    Group,
    Init,
    InputSpec,
    LossRef,
    LossScaling,
    MetricRef,
    ModelName,
    NodeRef,
    OptimizerRef,
    Precision,
    Remat,
    Schema,
    Stop,
    Unfreeze,
    Validate,
    parse_model_name,
)
from scellis_core.record.sml import Document, Value

__all__ = [
    "At",
    "Best",
    "BlockRef",
    "Checkpoint",
    "ClipRef",
    "Document",
    "GraphNode",
    "GraphView",
    "Group",
    "Init",
    "InputSpec",
    "KeyInfo",
    "LossRef",
    "LossScaling",
    "MetricRef",
    "ModelName",
    "NodeRef",
    "OptimizerRef",
    "Precision",
    "Record",
    "Remat",
    "Schema",
    "Source",
    "Stop",
    "Unfreeze",
    "Validate",
    "Value",
    "canonical_bytes",
    "dumps",
    "parse_model_name",
    "parse_override",
    "reference_table",
    "schema_keys",
]
