"""Random graphs, edits and records in numbers that the default run has no time for."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import test_sml
from graph_runner import compare
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

from scellis_core.ir import digest, parse_graph, print_graph
from scellis_core.lower.program import Limits

SEEDS = int(os.environ.get("SCELLIS_FUZZ_SEEDS", "300"))
MIB = Limits(max_storage_buffer_binding_size=1 << 20, features=("shader-f16", "subgroup"))


@pytest.mark.parametrize("start", range(0, SEEDS, 10))
def test_random_graphs_agree_with_the_oracle(start: int, device_name: str) -> None:
    for seed in range(100_000 + start, 100_000 + start + 10):
        graph, arrays = random_graph(seed, size=12 + seed % 40)
        compare(graph, arrays, fuse=seed % 3 != 0)


@pytest.mark.parametrize("start", range(0, SEEDS // 3, 10))
def test_random_graphs_in_windows_of_a_mebibyte(start: int, device_name: str) -> None:
    for seed in range(200_000 + start, 200_000 + start + 10):
        graph, arrays = random_graph(seed, size=10, limit=900_000)
        compare(graph, arrays, limits=MIB)


@pytest.mark.parametrize("start", range(0, SEEDS * 4, 100))
def test_graphs_print_and_parse_back(start: int) -> None:
    for seed in range(start, start + 100):
        graph, _ = random_graph(seed, size=30)
        text = print_graph(graph)
        again = parse_graph(text)
        assert print_graph(again) == text
        assert digest(again) == digest(graph)


@settings(max_examples=SEEDS * 30, deadline=None, derandomize=False)
@given(
    st.dictionaries(test_sml.plain_keys, test_sml.plain_values, min_size=1, max_size=4),
    test_sml.plain_values,
    st.randoms(use_true_random=False),
)
def test_edits_of_records_many_times(data: dict[str, Any], value: Any, rng: random.Random) -> None:
    test_sml.test_edits_read_back_and_keep_comments.hypothesis.inner_test(data, value, rng)  # type: ignore[attr-defined]
