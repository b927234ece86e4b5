"""Keys that this version does not serve are refused with their place, never ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from scellis_core.catalog import Catalog
from scellis_core.compile import compile_run
from scellis_core.errors import RecordError
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
