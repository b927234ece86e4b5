"""Losses on the device follow PyTorch's: same weights, same batches, 50 steps. curves.npz is made by make_curves.py."""

from __future__ import annotations

from pathlib import Path

import curves
import numpy as np
import pytest

from scellis_core.catalog import Catalog
from scellis_core.record import Record
from scellis_core.train.session import open_session

GOLDEN = Path(__file__).parents[1] / "golden"


def losses(record: Record, device: str) -> np.ndarray:
    session = open_session(record, Catalog.discover(), device=device)
    try:
        session.initialise()
        return np.array([session.report(session.update())["loss"] for _ in range(curves.STEPS)])
    finally:
        session.close()


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "curves.npz") as data:
        return dict(data)


@pytest.mark.parametrize("tier", ["prod", "debug"])
def test_the_decoder_follows_pytorch(
    tmp_path: Path, golden: dict[str, np.ndarray], tier: str, device_name: str
) -> None:
    record = curves.decoder(tmp_path).with_override("determinism_tier", tier)
    found = losses(record, device_name)
    np.testing.assert_allclose(found, golden["decoder_f32"], rtol=1e-4)
    np.testing.assert_allclose(found, golden["decoder_f64"], rtol=1e-4)
    assert found[-1] < 0.8 * found[0]


def test_the_digits_cnn_follows_pytorch(golden: dict[str, np.ndarray], device_name: str) -> None:
    found = losses(curves.cnn(), device_name)
    np.testing.assert_allclose(found, golden["cnn_f32"], rtol=1e-4, atol=1e-5)
    assert found[-1] < 0.2 * found[0]


def test_the_oracle_follows_pytorch_in_double(tmp_path: Path, golden: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(losses(curves.decoder(tmp_path), "oracle"), golden["decoder_f64"], rtol=1e-6)
    np.testing.assert_allclose(losses(curves.cnn(), "oracle"), golden["cnn_f64"], rtol=1e-6)
