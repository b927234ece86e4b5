"""Philox in plain integers: Random123's known-answer vectors, keys of streams, counters."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scellis_core import rng

# Random123, tests/kat_vectors, philox4x32 with 10 rounds: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: str, key: str, expected: str) -> None:
    found = rng.philox4x32(tuple(int(w, 16) for w in counter.split()), tuple(int(w, 16) for w in key.split()))
    assert [f"{w:08x}" for w in found] == expected.split()


def test_stream_keys_are_fixed() -> None:
    assert rng.stream_key(42, "dropout") == (0x0995BF19, 0x7A547F04)
    assert rng.stream_key(0, "init/head.weight") == (0xECD6BC69, 0x79E53A57)
    assert rng.stream_key(2**80, "rauschen-ü") == (0xB9660904, 0xBFE92C37)


def test_stream_keys_do_not_depend_on_the_hash_seed() -> None:
    code = "from scellis_core.rng import stream_key; print(stream_key(7, 'shuffle'))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert found == {f"{rng.stream_key(7, 'shuffle')}\n".encode()}


def test_streams_and_seeds_differ() -> None:
    keys = {rng.stream_key(s, n) for s in range(50) for n in ("init", "dropout", "shuffle", "augment")}
    assert len(keys) == 200


def test_a_draw_is_addressed_by_its_counter() -> None:
    key = rng.stream_key(3, "dropout")
    whole = rng.words(key, 0, 23)
    assert len(whole) == 23
    assert rng.words(key, 2, 9) == whole[8:17]
    assert rng.blocks_of(0) == 0
    assert [rng.blocks_of(n) for n in (1, 4, 5)] == [1, 1, 2]


def test_counters_are_64_bits_and_wrap() -> None:
    key = (5, 6)
    edge = rng.words(key, 2**32 - 1, 8)
    assert tuple(edge[:4]) == rng.philox4x32((0xFFFFFFFF, 0, 0, 0), key)
    assert tuple(edge[4:]) == rng.philox4x32((0, 1, 0, 0), key)
    assert rng.words(key, 2**64 - 1, 8)[4:] == rng.words(key, 0, 4)
