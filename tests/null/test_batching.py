"""Trap 2: how many updates an epoch has, and where each micro step stands."""

import pytest

from scellis_core.train.batching import Schedule, eval_sizes


@pytest.mark.parametrize(
    ("batches", "accumulation", "epochs", "updates"), [(7, 4, 3, 6), (8, 4, 1, 2), (3, 4, 1, 1), (3, 4, 5, 5)]
)
def test_updates(batches: int, accumulation: int, epochs: int, updates: int) -> None:
    plan = Schedule.plan(batches * 10, 10, accumulation, epochs, None)
    assert plan.total == updates
    assert plan.epochs == epochs


def test_every_micro_step_belongs_to_one_update() -> None:
    plan = Schedule.plan(73, 10, 3, 4, None)
    seen = [(plan.position(u)[0], m) for u in range(plan.total) for m in plan.micros(u)]
    assert seen == [(e, m) for e in range(4) for m in range(8)]
    assert plan.batch_sizes() == [10, 3]
    for update in range(plan.total):
        assert plan.micros_before(update) == sum(len(plan.micros(u)) for u in range(update))


def test_steps_may_end_inside_an_epoch() -> None:
    plan = Schedule.plan(100, 10, 1, None, 25)
    assert (plan.total, plan.epochs, plan.position(24)) == (25, 3, (2, 4))


def test_a_dataset_smaller_than_the_batch() -> None:
    plan = Schedule.plan(3, 10, 1, 2, None)
    assert plan.batch_sizes() == [3]
    assert plan.total == 2
    assert eval_sizes(3, 10) == [3]
    assert eval_sizes(25, 10) == [10, 5]
    assert eval_sizes(0, 10) == []
