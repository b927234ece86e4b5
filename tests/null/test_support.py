"""Keys that this version does not serve are refused with their place, never ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from scellis_core.catalog import Catalog
from scellis_core.compile import compile_run
from scellis_core.compile.support import LEAST
from scellis_core.errors import DeviceError, RecordError
from scellis_core.lower.program import Limits
from scellis_core.model import resolve_run
from scellis_core.record import Record

TEXT = (Path(__file__).parents[2] / "examples" / "digits.sml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "precision",
            {"policy": "mixed_f16"},
            "precision.policy: expected f32 (this version does no other), got mixed_f16",
        ),
        ("remat", {"blocks": ["hidden.*"]}, "remat: expected none (this version does no other), got rematerialisation"),
        ("optimizer.groups", [{"match": "*.bias", "weight_decay": 0.0}], None),
        ("freeze", ["hidden.0.*"], None),
    ],
)
def test_refused(key: str, value: object, text: str | None) -> None:
    record = Record.parse(TEXT, "digits.sml").with_override(key, value)
    run = resolve_run(record, Catalog.discover(), record.base)
    if text is None:
        compile_run(run, Limits(), train=[8])
        return
    with pytest.raises(RecordError) as caught:
        compile_run(run, Limits(), train=[8])
    assert text in str(caught.value)


def refused(limits: Limits, hidden: list[int], batch: int = 8) -> str:
    record = Record.parse(TEXT, "digits.sml").with_override("architecture.hidden", hidden)
    run = resolve_run(record, Catalog.discover(), record.base)
    with pytest.raises(DeviceError) as caught:
        compile_run(run, limits, train=[batch])
    return str(caught.value)


def test_the_least_limits() -> None:
    """A small net compiles within all of them at once; below one of them nothing does."""
    small = (
        "sml: 1\ninputs: { x: { shape: [batch, 4] } }\ngraph: { h: { block_id: layer/linear, in: x, features: 8 } }\n"
    )
    run = resolve_run(Record.parse(small + "outputs: { y: h }\n"), Catalog.discover(), Path())
    compile_run(run, Limits().with_(**LEAST), predict=[8])
    for name, least in LEAST.items():
        assert refused(Limits().with_(**{name: least - 1}), [4]) == (
            f"limits: {name}: expected at least {least}, got {least - 1}; "
            f"try leaving it out: WebGPU's default is {getattr(Limits(), name)}"
        )
    for wrong in (0, 96, 512):
        assert refused(Limits(min_storage_buffer_offset_alignment=wrong), [4]) == (
            f"limits: min_storage_buffer_offset_alignment: expected a power of two up to 256, got {wrong}; try 256"
        )


def test_what_passes_a_limit_is_named() -> None:
    assert refused(Limits(max_buffer_size=1 << 20), [4000, 4000]) == (
        "tensor hidden.1.linear.weight: expected at most 1048576 bytes (the device's max-buffer-size), got 64000000; "
        "try a smaller model, or a device with larger buffers"
    )
    text = refused(Limits(max_storage_buffer_binding_size=1 << 20), [4000, 4000])
    assert text.startswith("block hidden.1.linear: kernel matmul_")
    assert text.endswith(
        ": expected at most 8 storage bindings of 1048576 bytes, got 63 (tensor b of 64000000 bytes takes 62); "
        "try a device with larger limits, or smaller tensors"
    )
    assert refused(Limits(max_buffer_size=1 << 15), [32], 1000) == (
        "block hidden.0.act: its output: expected at most 32768 bytes (the device's max-buffer-size), got 128000; "
        "try a smaller batch_size with grad_accumulation"
    )
