"""Philox in NumPy: the bits of the integer form; distributions and permutations by their stated rule."""

from __future__ import annotations

import numpy as np
import pytest

from scellis_core import rng

KNOWN = [
    ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: list[int], key: tuple[int, int], expected: list[int]) -> None:
    found = rng.philox_numpy(np.array([counter, counter], np.uint32), key)
    assert found.dtype == np.uint32
    assert found.tolist() == [expected, expected]


def test_same_bits_as_the_integer_form() -> None:
    generator = np.random.default_rng(0)
    counters = generator.integers(0, 2**32, (500, 4), dtype=np.uint32)
    key = (0x12345678, 0xFEDCBA98)
    expected = [list(rng.philox4x32(tuple(row), key)) for row in counters.tolist()]
    assert rng.philox_numpy(counters, key).tolist() == expected


@pytest.mark.parametrize("counter", [0, 1, 2**32 - 2, 2**40 + 5, 2**64 - 2])
@pytest.mark.parametrize("n", [0, 1, 4, 7, 30])
def test_draw_equals_words(counter: int, n: int) -> None:
    with np.errstate(all="raise"):
        assert rng.draw((9, 8), counter, n).tolist() == rng.words((9, 8), counter, n)


def test_uniform_is_24_bits_below_one() -> None:
    drawn = rng.uniform(1, "dropout", 0, (3, 5))
    expected = (rng.bits(1, "dropout", 0, 15) >> 8) / 2.0**24
    assert drawn.dtype == np.float32
    np.testing.assert_array_equal(drawn, expected.reshape(3, 5))
    many = rng.uniform(1, "dropout", 10, (200_000,))
    assert many.min() >= 0.0
    assert many.max() < 1.0
    assert abs(float(many.mean(dtype=np.float64)) - 0.5) < 0.003
    assert rng.uniform(1, "dropout", 0, ()).shape == ()


def test_uniform64_is_53_bits_below_one() -> None:
    words = rng.words(rng.stream_key(1, "init"), 4, 6)
    expected = [((a >> 5) * 2**26 + (b >> 6)) / 2**53 for a, b in zip(words[::2], words[1::2], strict=True)]
    assert rng.uniform64(1, "init", 4, 3).tolist() == expected


def test_normal_moments_and_addressing() -> None:
    drawn = rng.normal(11, "init", 0, 200_001)
    assert drawn.shape == (200_001,)
    assert abs(drawn.mean()) < 0.01
    assert abs(drawn.var() - 1.0) < 0.02
    assert abs((drawn**3).mean()) < 0.05
    assert abs((drawn**4).mean() - 3.0) < 0.1
    np.testing.assert_array_equal(rng.normal(11, "init", 7, 11), drawn[14:25])


def test_permutation_follows_its_rule() -> None:
    words = rng.words(rng.stream_key(2, "shuffle"), 5, 2 * 301)
    keys = [(words[2 * i] << 32 | words[2 * i + 1], i) for i in range(301)]
    found = rng.permutation(2, "shuffle", 5, 301)
    assert found.tolist() == [i for _, i in sorted(keys)]
    assert sorted(found.tolist()) == list(range(301))
    assert rng.permutation(2, "shuffle", 5, 0).tolist() == []


def test_equal_keys_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rng, "bits", lambda *_: np.array([3, 1, 0, 9, 3, 1, 3, 0], np.uint32))
    assert rng.permutation(0, "shuffle", 0, 4).tolist() == [1, 3, 0, 2]
