"""The host loop on the oracle: resumed runs are the uninterrupted ones, states are true, nothing is logged twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import STEPS, arrays, digest, in_processes, plant_infinity, state_of, tiny, unix

from scellis_core.blocks import ArraySet
from scellis_core.catalog import Catalog
from scellis_core.errors import DataError, RecordError, ScellisError, StoreError
from scellis_core.record import Record
from scellis_core.store import Store
from scellis_core.train import api
from scellis_core.train.batching import indices, order
from scellis_core.train.events import Checkpointed, Event, RunEnded, RunStarted, StepDone, Validated
from scellis_core.train.session import Session, open_session

CONSTANT = {"scheduler": {"block_id": "training/scheduler/constant"}}
POINTS = ["write", "fsync", "rename"] * 3 + ["row"]


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """What a run leaves that is not interrupted, by changes of its record."""
    known: dict[str, dict[str, Any]] = {}

    def find(changes: dict[str, Any] = {}) -> dict[str, Any]:  # noqa: B006 never written to
        key = json.dumps(changes)
        if key not in known:
            folder = tmp_path_factory.mktemp("whole")
            known[key] = state_of(folder, api.train(tiny(folder, changes), store=folder, device="oracle").run)
        return known[key]

    return find


def opened(record: Record, **options: Any) -> Session:
    session = open_session(record, Catalog.discover(), device="oracle", **options)
    session.initialise()
    return session


def refusal(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(ScellisError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def raiser(kind: type[Event], step: int, error: BaseException) -> Any:
    def on_event(event: Event) -> None:
        if isinstance(event, kind) and getattr(event, "step", 0) == step:
            raise error

    return on_event


# -- interruption and resume ----------------------------------------------------------------------------------
@unix
@pytest.mark.parametrize("changes", [{}, {"grad_accumulation": 2}])
def test_killed_runs_go_on_to_the_same_bits(tmp_path: Path, changes: dict[str, Any], at_once: Any) -> None:
    """Killed in an epoch, just after its edge, twice while a checkpoint was being written, and once after."""
    ends = [["kill", 11, 0], ["kill", 13, 0], ["write", 16, 2], ["write", 20, 5], ["saved", 24, 0], ["none", 0, 0]]
    [said] = in_processes((tmp_path, ends, changes))
    assert said == [*(f"{i} SIGKILL" for i in range(5)), f"5 finished {STEPS}"]
    store = Store(tmp_path / "store")
    run = store.runs()[0].id
    assert state_of(store.root, run) == at_once(changes)
    steps = [step for step, _ in store.environments(run)]
    assert (steps[0], steps[-1]) == (0, 24)
    assert steps == sorted(steps)


@unix
def test_killed_at_each_point_of_a_checkpoint(tmp_path: Path, at_once: Any) -> None:
    folders = [tmp_path / str(point) for point in range(len(POINTS))]
    changes = {"steps": 18}
    for folder in folders:
        folder.mkdir()
    ends = [[["write", 13, point], ["none", 0, 0]] for point in range(len(POINTS))]
    said = in_processes(*((folder, end, changes) for folder, end in zip(folders, ends, strict=True)))
    assert said == [["0 SIGKILL", "1 finished 18"]] * len(POINTS)
    for folder, point in zip(folders, POINTS, strict=True):
        store = Store(folder / "store")
        run = store.runs()[0].id
        assert state_of(store.root, run) == at_once(changes)
        assert store.environments(run)[1][0] == (16 if point == "row" else 12)


@unix
def test_a_killed_run_counts_as_interrupted_and_only_one_process_may_go_on(tmp_path: Path) -> None:
    in_processes((tmp_path, [["kill", 9, 0]], {}))
    store = tmp_path / "store"
    row = Store(store).runs()[0]
    assert (row.state, row.error) == ("interrupted", "")
    seen: list[str] = []

    def again(event: Event) -> None:
        if isinstance(event, RunStarted):
            assert (event.step, event.resumed) == (8, True)
            seen.append(refusal(api.resume, row.id, store=store, device="oracle"))
            seen.append(refusal(api.resume, store=store, device="oracle"))

    api.resume(row.id, store=store, device="oracle", on_event=again)
    assert seen == [
        f"run {row.id}: expected a run that is not running, got running in another process",
        f"store {store}: expected an interrupted run, got none; {row.id} is running; try scellis runs --store {store}",
    ]
    finished = refusal(api.resume, row.id, store=store, device="oracle")
    assert finished == f"run {row.id}: expected an interrupted run, got one that has finished; try scellis runs"


@pytest.mark.parametrize(("word", "step"), [("SIGINT", 4), ("SIGTERM", 10), ("SIGINT", STEPS - 2)])
def test_a_signal_finishes_the_step_and_saves(tmp_path: Path, word: str, step: int, at_once: Any) -> None:
    """Reports lag by two updates, so these signals come at an epoch's edge (6, 12) and at the last step."""
    store, events, changes = tmp_path / "store", list[Event](), {"checkpoint": {"every": STEPS}}

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, StepDone) and event.step == step:
            os.kill(os.getpid(), signal.Signals[word])

    result = api.train(tiny(tmp_path, changes), store=store, device="oracle", on_event=on_event)
    assert (result.state, result.reason, result.step) == ("interrupted", word, step + 2)
    row = Store(store).find_run()
    assert (row.id, row.step, row.state) == (result.run, step + 2, "interrupted")
    assert Store(store).checkpoints(row.id)[0].step == step + 2
    assert isinstance(events[-1], RunEnded)
    assert not any(isinstance(e, Validated) and e.step == step + 2 for e in events), "left to the resumed run"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    api.resume(store=store, device="oracle", on_event=events.append)
    assert state_of(store, row.id) == at_once(changes)
    assert [e.step for e in events if isinstance(e, StepDone)] == list(range(1, STEPS + 1))
    assert [e.step for e in events if isinstance(e, Validated)] == [6, 12, 18, 24, 30]


@unix
def test_a_second_signal_acts_at_once(tmp_path: Path, at_once: Any) -> None:
    [said] = in_processes((tmp_path, [["SIGINT", 9, 1], ["SIGTERM", 10, 1], ["none", 0, 0]], {}))
    assert said == ["0 KeyboardInterrupt: ", "1 SIGTERM", f"2 finished {STEPS}"]
    store = Store(tmp_path / "store")
    assert state_of(store.root, store.runs()[0].id) == at_once()


def test_an_interrupt_outside_the_signals_leaves_the_run_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        api.train(tiny(tmp_path), store=tmp_path, device="oracle", on_event=raiser(StepDone, 5, KeyboardInterrupt()))
    row = Store(tmp_path).find_run()
    assert (row.state, row.step, row.error) == ("interrupted", 5, "")


def test_a_failed_run_carries_its_error_and_can_go_on(tmp_path: Path, at_once: Any) -> None:
    events: list[Event] = []
    fail = raiser(StepDone, 9, ValueError("callback broke"))
    with pytest.raises(ValueError, match="callback broke"):
        api.train(tiny(tmp_path), store=tmp_path, device="oracle", on_event=fail, callbacks=[events.append])
    row = Store(tmp_path).runs()[0]
    assert (row.state, row.error, row.step) == ("failed", "ValueError: callback broke", 9)
    assert events[-1] == RunEnded(row.id, "failed", 9, 9, 0, events[-1].metrics, "ValueError: callback broke")
    hint = refusal(api.resume, store=tmp_path, device="oracle")
    assert hint == f"store {tmp_path}: expected an interrupted run, got none; try scellis resume {row.id}"
    api.resume(row.id, store=tmp_path, device="oracle")
    assert state_of(tmp_path, row.id) == at_once()
    assert Store(tmp_path).find_run(row.id).error == ""


def test_what_breaks_while_a_run_fails_does_not_hide_why_it_failed(tmp_path: Path) -> None:
    def on_event(event: Event) -> None:
        if isinstance(event, RunEnded):
            raise RuntimeError("second")
        if isinstance(event, StepDone):
            raise ValueError("first")

    with pytest.raises(ValueError, match="first") as caught:
        api.train(tiny(tmp_path), store=tmp_path, device="oracle", on_event=on_event)
    assert str(caught.value.__cause__) == "second"
    assert Store(tmp_path).runs()[0].error == "ValueError: first"


def test_a_damaged_checkpoint_is_refused_and_the_run_stays_as_it_was(tmp_path: Path, at_once: Any) -> None:
    fail = raiser(StepDone, 9, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        api.train(tiny(tmp_path), store=tmp_path, device="oracle", on_event=fail)
    store = Store(tmp_path)
    row = store.find_run()
    kept = [r.step for r in store.checkpoints(row.id)]
    assert len(kept) > 1
    _, bundle = store.checkpoint(row.id)
    path = store.objects.path(bundle.optimizer_state)
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    found = refusal(api.resume, row.id, store=tmp_path, device="oracle")
    assert found.startswith(
        f"checkpoint at step {kept[0]}: object {bundle.optimizer_state}: expected bytes of that digest in {path}, "
        f"got {len(data) - 100} bytes of sha"
    )
    assert found.endswith(f"; try --step of another checkpoint ({', '.join(map(str, kept[1:]))})")
    path.unlink()
    found = refusal(api.resume, row.id, store=tmp_path, device="oracle")
    assert found.startswith(f"checkpoint at step {kept[0]}: object {bundle.optimizer_state}: expected a file {path}, ")
    assert refusal(api.resume, row.id, step=1000, store=tmp_path, device="oracle") == (
        f"run {row.id}: expected a checkpoint of step 1000, got none; try one of {', '.join(map(str, kept))}"
    )
    assert Store(tmp_path).find_run(row.id).state == "interrupted"
    older = tmp_path / "older"
    shutil.copytree(tmp_path / "objects", older / "objects")
    shutil.copy(tmp_path / "provenance.sqlite", older)
    api.resume(row.id, step=kept[1], store=older, device="oracle")
    assert state_of(older, row.id) == at_once()
    path.write_bytes(data)
    api.resume(row.id, store=tmp_path, device="oracle")
    assert state_of(tmp_path, row.id) == at_once()


def test_changed_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        api.train(tiny(tmp_path), store=tmp_path, device="oracle", on_event=raiser(StepDone, 9, KeyboardInterrupt()))
    np.savez(tmp_path / "tiny.npz", **arrays(54))
    found = refusal(api.resume, store=tmp_path, device="oracle")
    assert f"data: expected data of {Store(tmp_path).find_run().dataset}, as the run began with, got " in found
    assert found.endswith("; try the files that the run began with, or a new run")
    assert Store(tmp_path).find_run().state == "interrupted"


# -- stop rules, best checkpoints -----------------------------------------------------------------------------
def stopping(folder: Path) -> Record:
    """A run whose validation cannot improve twice."""
    return tiny(folder, {"optimizer.lr": 1e-30, "stop": {"metric": "val_loss", "patience": 2, "min_delta": 10.0}})


def test_early_stopping(tmp_path: Path) -> None:
    result = api.train(stopping(tmp_path), store=tmp_path, device="oracle")
    assert (result.state, result.step) == ("finished", 18)
    assert result.reason == "val_loss has not improved for 2 validations"
    assert Store(tmp_path).checkpoints(result.run)[0].step == 18


def test_a_run_that_was_about_to_stop_stops_when_it_goes_on(tmp_path: Path) -> None:
    fail, events = raiser(Checkpointed, 18, ValueError("just after saving")), list[Event]()
    with pytest.raises(ValueError, match="just after"):
        api.train(stopping(tmp_path), store=tmp_path, device="oracle", on_event=fail)
    run = Store(tmp_path).runs()[0].id
    result = api.resume(run, store=tmp_path, device="oracle", on_event=events.append)
    assert (result.state, result.step) == ("finished", 18)
    assert [type(e) for e in events] == [RunStarted, RunEnded]


@pytest.mark.parametrize(("metric", "better"), [("val_loss", min), ("val_accuracy", max)])
def test_the_best_checkpoint_is_kept_beside_the_newest(tmp_path: Path, metric: str, better: Any) -> None:
    record = tiny(tmp_path, {"optimizer.lr": 0.5, "validate": {"every": 2}, "checkpoint.best.metric": metric})
    result = api.train(record, store=tmp_path, device="oracle")
    store = Store(tmp_path)
    values = {step: value for step, _, _, value in store.metrics(result.run, metric)}
    best = next(step for step, value in values.items() if value == better(values.values()))
    assert best < 26
    assert [(c.step, c.best) for c in store.checkpoints(result.run)] == [(30, False), (28, False), (best, True)]
    found = api.evaluate(result.run, store=tmp_path, device="oracle", best=True)
    assert found[metric.removeprefix("val_")] == values[best]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"steps": 5}, "scheduler.warmup_steps: expected fewer than the run's 5 updates, got 5; try 0, or more epochs"),
        (
            {"stop": {"metric": "val_los"}},
            "stop.metric: expected a metric of the validation, got 'val_los'; try one of: val_loss, val_accuracy",
        ),
        (
            {"data.split": {}, "stop": {"patience": 3}},
            "stop: expected data with a split 'val' to validate on, got train; try split: { val: 0.1 } under data",
        ),
        ({"validate": {"on": "test"}}, "validate.on: expected a split of the data, got 'test'; try one of: train, val"),
    ],
)
def test_rules_that_watch_nothing_are_refused_before_the_run(tmp_path: Path, changes: Any, text: str) -> None:
    with pytest.raises(RecordError) as caught:
        api.train(tiny(tmp_path, changes), store=tmp_path, device="oracle")
    assert str(caught.value).endswith(text)
    assert Store(tmp_path).runs() == []


def test_without_a_split_there_is_no_validation(tmp_path: Path) -> None:
    record = tiny(tmp_path, {"data.split": {}, "steps": 3, "checkpoint": {"every": 2}, **CONSTANT})
    assert list(api.train(record, store=tmp_path, device="oracle").metrics) == ["loss"]


def test_validation_may_be_on_the_training_examples(tmp_path: Path) -> None:
    record = tiny(tmp_path, {"validate": {"on": "train"}, "checkpoint.best.metric": "train_loss", "steps": 6})
    assert "train_accuracy" in api.train(record, store=tmp_path, device="oracle").metrics


# -- arithmetic -----------------------------------------------------------------------------------------------
COUNTS = [2, 6, 0, 1, 3, 6, 5, 2, 4, 1, 6, 6]
TOKENS = """
sml: 1
architecture: { block_id: model/decoder_transformer, vocab_size: 11, context: 6, width: 8, layers: 1, heads: 2 }
data: { block_id: data/arrays, path: tokens.npz, split: {} }
optimizer: { block_id: training/optimizer/adamw, lr: 0.01 }
loss: { block_id: training/loss/cross_entropy }
grad_clip: { max_norm: 0.1 }
epochs: 2
batch_size: 12
determinism_tier: prod
"""


def tokens(folder: Path, **changes: Any) -> Record:
    """Twelve texts of which so many tokens count as :data:`COUNTS` says."""
    generator = np.random.default_rng(1)
    x, y = generator.integers(0, 11, (2, 12, 6)).astype(np.int32)
    for row, count in enumerate(COUNTS):
        y[row, count:] = -100
    np.savez(folder / "tokens.npz", x=x, y=y)
    return Record.parse(TOKENS, "tokens.sml", base=folder).with_overrides(changes)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 6])
def test_accumulation_is_the_mean_over_all_that_counts(tmp_path: Path, batch: int) -> None:
    """Traps 3 and 4: groups of other sizes, a short group, two epochs; always as one batch of all twelve."""
    whole = opened(tokens(tmp_path))
    parts = opened(tokens(tmp_path, batch_size=batch, grad_accumulation=12))
    assert parts.require_plan().total == whole.require_plan().total == 2
    for _ in range(2):
        one, many = whole.report(whole.update()), parts.report(parts.update())
        assert many["loss"] == pytest.approx(one["loss"], rel=1e-12)
        assert many["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-10)
        grads = [n for n in parts.compiled.program.tensors if n.startswith("grad:")]
        assert all(not parts.executor.read(n).any() for n in grads)
        for name in whole.weight_names():
            np.testing.assert_allclose(parts.executor.read(name), whole.executor.read(name), rtol=1e-9, atol=1e-12)


def test_a_group_where_nothing_counts_changes_nothing(tmp_path: Path) -> None:
    session = opened(tokens(tmp_path, batch_size=1, epochs=1))
    skips = 0
    for _ in range(12):
        before = digest(session.read(session.weight_names()))
        report = session.report(session.update())
        skips += report["ok"] == 0.0
        assert (before == digest(session.read(session.weight_names()))) == (report["ok"] == 0.0)
    assert skips == COUNTS.count(0)


def test_the_first_step_takes_the_largest_batch(tmp_path: Path) -> None:
    """So memory is at its most before anything has been trained."""
    session = opened(tiny(tmp_path))
    plan = session.require_plan()
    sizes = [len(indices(plan, order(3, 0, plan.examples), m)) for u in range(6) for m in plan.micros(u)]
    assert sizes == [8, 8, 8, 8, 8, 2]
    assert plan.batch_sizes() == [8, 2]


def test_every_epoch_sees_every_example_once_in_another_order(tmp_path: Path) -> None:
    plan = opened(tiny(tmp_path)).require_plan()
    orders = [order(3, epoch, plan.examples).tolist() for epoch in range(3)]
    assert all(sorted(o) == list(range(42)) for o in orders)
    assert orders[0] != orders[1] != orders[2]


def test_evaluation_in_parts_is_evaluation_at_once(tmp_path: Path) -> None:
    record = tiny(tmp_path)
    found = []
    for batch in (1, 4, 8, 42):
        session = opened(record.with_override("batch_size", batch), train=False)
        found.append({split: session.evaluate(split) for split in ("train", "val")})
    for other in found[1:]:
        for split in ("train", "val"):
            assert other[split] == pytest.approx(found[0][split], rel=1e-12)


def test_moments_follow_names(tmp_path: Path) -> None:
    """Trap 5."""
    session = opened(tiny(tmp_path))
    session.update()
    saved = session.read(session.optimizer_names())
    other = opened(tiny(tmp_path))
    other.load(dict(reversed(saved.items())), other.optimizer_names(), "other")
    assert digest(other.read(other.optimizer_names())) == digest(saved)
    assert len(set(digest(saved).values())) > 4


# -- steps without a finite gradient --------------------------------------------------------------------------
@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One update of each epoch has no finite gradient."""
    plant_infinity(monkeypatch)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_without_finite_gradients_changes_nothing(tmp_path: Path, accumulation: int) -> None:
    """Trap 7: running statistics too keep their bits, and Adam counts applied updates only."""
    session = opened(tiny(tmp_path, {"grad_accumulation": accumulation}))
    names = [*session.weight_names(), *session.compiled.slots]
    skipped = []
    for update in range(12):
        before = digest(session.read(names))
        report = session.report(session.update())
        if report["ok"] == 0.0:
            skipped.append(update)
        assert (digest(session.read(names)) == before) == (report["ok"] == 0.0)
    epochs = [session.require_plan().position(u)[0] for u in skipped]
    assert epochs == list(range(len(skipped)))
    assert len(skipped) == 12 * accumulation // 6
    assert (float(session.executor.read("global:t")), report["t"]) == (12 - len(skipped), 12 - len(skipped))
    assert float(session.executor.read("global:skipped")) == len(skipped)
    assert all(np.isfinite(a).all() for a in session.read(names).values())


@pytest.mark.usefixtures("planted")
def test_skipped_steps_are_counted_and_reported_once(tmp_path: Path) -> None:
    events: list[Event] = []
    result = api.train(tiny(tmp_path), store=tmp_path, device="oracle", on_event=events.append)
    skips = [e.step for e in events if isinstance(e, StepDone) and not e.applied]
    assert len(skips) == 5
    assert (result.step, result.applied, result.skipped) == (30, 25, 5)
    row = Store(tmp_path).find_run(result.run)
    assert (row.step, row.applied, row.skipped) == (30, 25, 5)
    assert [step for step, *_ in Store(tmp_path).metrics(result.run, "skipped")] == skips
    assert np.isfinite(result.metrics["loss"])


@pytest.mark.usefixtures("planted")
def test_skips_are_counted_once_by_a_run_that_goes_on(tmp_path: Path) -> None:
    whole = api.train(tiny(tmp_path), store=tmp_path / "whole", device="oracle")
    fail = raiser(StepDone, 17, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        api.train(tiny(tmp_path), store=tmp_path, device="oracle", on_event=fail)
    result = api.resume(store=tmp_path, device="oracle")
    assert result.skipped == whole.skipped == 5
    assert state_of(tmp_path, result.run) == state_of(tmp_path / "whole", whole.run)


# -- refused data and weights ---------------------------------------------------------------------------------
def test_ids_out_of_range_are_refused_with_their_place(tmp_path: Path) -> None:
    """Trap 22."""
    record = tokens(tmp_path, batch_size=5)
    for name, bad in (("x", 11), ("y", -1)):
        data = dict(np.load(tmp_path / "tokens.npz"))
        data[name][3, 0] = bad
        np.savez(tmp_path / "bad.npz", **data)
        found = refusal(api.train, record.with_override("data.path", "bad.npz"), store=tmp_path, device="oracle")
        room = ", or a model with room for ids up to 11" if bad == 11 else ""
        assert found == (
            f"tokens.sml:4:7 data: {name}[3, 0]: expected an id from 0 to 10, got {bad}; try mending the data{room}"
        )
    assert Store(tmp_path).runs() == []


def test_ids_out_of_range_in_a_batch_are_refused_too(tmp_path: Path) -> None:
    """Of data that is not in memory as a whole, only the batch shows them."""
    session = opened(tokens(tmp_path, batch_size=5))
    assert isinstance(session.dataset, ArraySet)
    session.dataset.arrays["x"][3, 0] = 11
    text = refusal(lambda: [session.update() for _ in range(3)])
    assert text == "data train example 3: x[0]: expected an id from 0 to 10, got 11"


def test_weights_of_another_run_as_a_start(tmp_path: Path) -> None:
    first = api.train(tiny(tmp_path), store=tmp_path, device="oracle")
    store = Store(tmp_path)
    row, bundle = store.checkpoint(first.run)
    record = tiny(
        tmp_path, {"init": {"from": f"object:{bundle.weights}"}, "optimizer.lr": 1e-30, "steps": 1, **CONSTANT}
    )
    second = api.train(record, store=tmp_path, device="oracle")
    weights = store.tensors(store.checkpoint(second.run)[1].weights)
    for name, array in store.tensors(bundle.weights).items():
        if not name.startswith("state:"):
            np.testing.assert_allclose(weights[name], array, rtol=1e-12)
    assert row.weights != store.checkpoints(second.run)[0].weights
    store.collect()
    assert bundle.weights in store.objects

    wider = record.with_overrides({"graph.h.features": 9})
    found = refusal(api.train, wider, store=tmp_path, device="oracle")
    assert found == "override init.from: h.weight: expected shape [9, 6], got [8, 6]"
    missing = record.with_override("init.from", "object:sha256:" + "0" * 64)
    assert refusal(api.train, missing, store=tmp_path, device="oracle").startswith(
        f"override init.from: object sha256:{'0' * 64}: expected a file "
    )


def test_refused_weights_name_the_tensor(tmp_path: Path) -> None:
    session = opened(tiny(tmp_path))
    names = session.weight_names()
    good = session.read(names)
    with pytest.raises(DataError) as caught:
        session.load({**good, "h.weigth": good["h.weight"]}, names, "weights")
    assert str(caught.value).startswith("weights: expected tensors of this model only, got 'h.weigth'; try")
    with pytest.raises(DataError) as caught:
        session.load({n: a for n, a in good.items() if n != "o.bias"}, names, "weights")
    assert str(caught.value).startswith("weights: expected a tensor 'o.bias', got none of that name")


def test_a_checkpoint_of_another_record_is_refused(tmp_path: Path) -> None:
    run = api.train(tiny(tmp_path), store=tmp_path, device="oracle").run
    session = opened(tiny(tmp_path, {"optimizer.lr": 0.02}))
    with pytest.raises(StoreError) as caught:
        api.restore(session, Store(tmp_path), run)
    other = tiny(tmp_path).digest
    assert str(caught.value) == f"checkpoint at step 30: expected record {session.record.digest}, got {other}"


def test_a_batch_in_which_nothing_counts_is_skipped_for_that_reason(tmp_path: Path) -> None:
    record = tokens(tmp_path, batch_size=5)
    data = dict(np.load(tmp_path / "tokens.npz"))
    data["y"][:] = -100
    np.savez(tmp_path / "none.npz", **data)
    seen: list[StepDone] = []
    api.train(
        record.with_override("data.path", "none.npz"),
        store=tmp_path,
        device="oracle",
        on_event=lambda event: seen.append(event) if isinstance(event, StepDone) else None,
    )
    assert {(e.applied, e.reason) for e in seen} == {
        (False, "no target of the batch counts (all are ignored or have weight 0)")
    }
