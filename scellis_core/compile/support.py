"""What a record may ask for and this version does not compile: refused by name, never ignored."""

from __future__ import annotations

from scellis_core.errors import DeviceError, RecordError
from scellis_core.lower.program import ALIGN, Limits
from scellis_core.lower.wgsl import ScalarTable
from scellis_core.model import ResolvedRun

LEAST = {
    "max_storage_buffer_binding_size": ALIGN,
    "max_buffer_size": 4 * ScalarTable.CAPACITY,
    "max_storage_buffers_per_shader_stage": 4,
    "max_compute_invocations_per_workgroup": 64,
    "max_compute_workgroup_size_x": 64,
    "max_compute_workgroup_storage_size": 8 * 1024,
}
"""Smallest limits that any step program can be made for; a larger program may need more."""


def check_limits(limits: Limits) -> None:
    """Refuse limits below what any run needs.

    Raises:
        DeviceError: naming the limit.
    """
    for name, least in LEAST.items():
        has = getattr(limits, name)
        if has < least:
            hint = f"leaving it out: WebGPU's default is {getattr(Limits(), name)}"
            raise DeviceError(f"limits: {name}", f"at least {least}", str(has), hint)
    alignment = limits.min_storage_buffer_offset_alignment
    if not 0 < alignment <= ALIGN or ALIGN % alignment:
        name = "min_storage_buffer_offset_alignment"
        raise DeviceError(f"limits: {name}", f"a power of two up to {ALIGN}", str(alignment), str(ALIGN))


def check_supported(run: ResolvedRun) -> None:
    """Refuse the keys that the schema knows and the compiler does not serve yet.

    Raises:
        RecordError: at the first such key, with what to write instead.
    """
    spec, record = run.record.spec, run.record
    refusals = (
        (spec.precision.policy != "f32", "precision.policy", "f32", spec.precision.policy, "policy: f32"),
        (
            spec.precision.loss_scaling != "none",
            "precision.loss_scaling",
            "none in f32",
            "loss scaling",
            "loss_scaling: none",
        ),
        (bool(run.wrappers), "wrappers", "no wrappers", "wrappers", "leaving wrappers out"),
        (run.averaging is not None, "averaging", "no averaging", "averaging", "leaving averaging out"),
        (spec.remat.blocks != "none", "remat", "none", "rematerialisation", "remat: none"),
        (bool(spec.unfreeze), "unfreeze", "weights that stay frozen", "unfreezing", "leaving unfreeze out"),
    )
    for found, path, expected, got, hint in refusals:
        if found:
            raise RecordError(record.where(path), f"{expected} (this version does no other)", got, hint)
    optimizer = run.optimizer[0] if run.optimizer else None
    if optimizer is not None:
        asks = (
            (optimizer.passes > 1, "one gradient pass a step"),
            (optimizer.fallback is not None, "one optimizer for all weights"),
            (optimizer.eval_weights is not None, "evaluation on the trained weights themselves"),
        )
        for found, expected in asks:
            if found:
                where = record.where("optimizer.block_id")
                raise RecordError(where, f"{expected} (this version does no other)", optimizer.id, "another optimizer")
