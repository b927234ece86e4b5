"""Training from Python: the same that the command line does.

Example:
    >>> import scellis
    >>> record = scellis.load("examples/digits.sml").with_override("epochs", 2)  # doctest: +SKIP
    >>> result = scellis.train(record, on_event=print)  # doctest: +SKIP
    >>> result.metrics["val_accuracy"]  # doctest: +SKIP
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scellis_core.blocks import Dataset
from scellis_core.catalog import Catalog
from scellis_core.compile import compile_run
from scellis_core.errors import DataError, RecordError, StoreError
from scellis_core.lower.program import Limits
from scellis_core.model import ResolvedRun, resolve_run
from scellis_core.planner import Plan
from scellis_core.planner import plan as price
from scellis_core.record import Record
from scellis_core.store import Checkpoint, RunRow, Store, encode
from scellis_core.train.batching import eval_sizes
from scellis_core.train.events import Event
from scellis_core.train.loop import Loop, LoopState
from scellis_core.train.recorder import Recorder, environment
from scellis_core.train.session import Session, batches, learning_rate, open_session

if TYPE_CHECKING:
    from numpy.typing import NDArray

Callbacks = Sequence[Callable[[Event], None]]


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Attributes:
        run: its id in the store.
        state: ``finished`` or ``interrupted``.
        step, applied, skipped: updates done, applied, and skipped for non-finite gradients.
        metrics: newest value of each, such as ``val_accuracy``.
        store: the store's folder.
        reason: why it ended early, if it did.
    """

    run: str
    state: str
    step: int
    applied: int
    skipped: int
    metrics: Mapping[str, float]
    store: Path
    reason: str = ""


def load(record: Record | str | Path, *, store: str | Path | None = None) -> Record:
    """A record ready to use: read from a file, its stored model version filled in.

    Args:
        record: a record, or the path of an SML file.
        store: where stored models are; ``.scellis`` beside the record where None.

    Raises:
        RecordError: if the record is wrong.
        StoreError: if it names a stored model that is not there.
    """
    if not isinstance(record, (Record, str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        hint = "scellis.Record.from_dict(...)" if isinstance(record, Mapping) else ""
        raise RecordError("record", "a Record or the path of an SML file", type(record).__name__, hint)
    loaded = record if isinstance(record, Record) else Record.load(record)
    wanted = loaded.stored
    if wanted is None:
        return loaded
    root = Store(store_path(loaded, store))
    try:
        found = root.load_model(str(wanted._replace(version=None)), wanted.version)
    except StoreError as error:
        if not error.where.startswith("model "):
            raise
        hint = error.hint or "scellis save of a record that has its architecture"
        raise StoreError(loaded.where("model"), f"a model stored in {root.root}", str(wanted), hint) from error
    return loaded.merged_with(found)


def store_path(record: Record, store: str | Path | None) -> Path:
    """The store's folder: as given, or ``.scellis`` beside the record."""
    return Path(store) if store is not None else record.base / ".scellis"


def plan(
    record: Record | str | Path,
    *,
    limits: Limits | None = None,
    catalog: Catalog | None = None,
    store: str | Path | None = None,
) -> Plan:
    """What a run will allocate, by class, without a device.

    Args:
        record: the run; one without a pipeline is priced as inference at batch 1.
        limits: of the device it is for; WebGPU's defaults where None.
        catalog: where blocks are found.
        store: where stored models are.
    """
    ready = load(record, store=store)
    run = resolve_run(ready, catalog or Catalog.discover(), ready.base)
    sizes = dict(run.data.spec.sizes) if run.data else {}
    schedule, training, evaluation = batches(ready, sizes, not ready.pipeline_missing())
    if schedule:
        learning_rate(run, schedule, 0, {})
    inference = [] if schedule else [ready.spec.batch_size or 1]
    return price(compile_run(run, limits or Limits(), train=training, evaluate=evaluation, predict=inference))


def train(
    record: Record | str | Path,
    *,
    store: str | Path | None = None,
    device: str = "auto",
    on_event: Callable[[Event], None] | None = None,
    callbacks: Callbacks = (),
    catalog: Catalog | None = None,
    limits: Limits | None = None,
) -> Result:
    """Train a record from its initial weights.

    Args:
        record: a record or the path of one.
        store: folder of objects and provenance; ``.scellis`` beside the record where None.
        device: ``auto``, ``oracle``, or part of an adapter's name.
        on_event: receives every event (:mod:`scellis_core.train.events`).
        callbacks: receive every event before it.
        catalog: where blocks are found.
        limits: ask the device for smaller limits than it has.

    Raises:
        ScellisError: if record, data, device or store do not allow it; nothing of the run is left half-written.
    """
    ready = load(record, store=store)
    root = Store(store_path(ready, store))
    session = open_session(ready, catalog or Catalog.discover(), device=device, limits=limits)
    with closing(session):
        session.initialise()
        _start_from(session, root)
        loop = Loop(session, _all(callbacks, on_event))
        facts = environment(session)
        total = session.require_plan().total
        run = root.create_run(ready, device=facts["device"]["adapter"], environment=facts, total=total, base=ready.base)
        return _go(loop, root, run, resumed=False)


def resume(
    run: str | None = None,
    *,
    step: int | None = None,
    store: str | Path = ".scellis",
    device: str = "auto",
    on_event: Callable[[Event], None] | None = None,
    callbacks: Callbacks = (),
    catalog: Catalog | None = None,
    limits: Limits | None = None,
) -> Result:
    """Go on with a run from its newest checkpoint (or from its start where it has none), to the same bits.

    Args:
        run: id, or the beginning of one; the latest interrupted run where None.
        step: of the checkpoint to go on from instead; what was logged and saved after it is dropped.
        store: the store's folder.
        device: as for :func:`train`; another device than before may give other bits.
        on_event: as for :func:`train`.
        callbacks: as for :func:`train`.
        catalog: as for :func:`train`.
        limits: as for :func:`train`.

    Raises:
        StoreError: if there is no such run, it is running or finished, or its checkpoint is damaged.
        DataError: if the data is not what the run began with.
    """
    root = Store(Path(store))
    row = root.find_run(run)
    root.hold(row.id)
    try:
        session = open_session(record_of(row, root), catalog or Catalog.discover(), device=device, limits=limits)
        with closing(session):
            _check_data(session, root, row.id)
            session.initialise()
            _start_from(session, root)
            state = None
            if step is not None or root.checkpoints(row.id):
                state = LoopState.from_json(restore(session, root, row.id, step=step).loop)
            loop = Loop(session, _all(callbacks, on_event), state)
            facts = environment(session)
            epoch, _ = session.require_plan().position(session.step)
            skipped = state.skipped if state else 0
            adapter = facts["device"]["adapter"]
            root.resume_run(row.id, session.step, adapter, facts, epoch=epoch, skipped=skipped)
            return _go(loop, root, row.id, resumed=True)
    finally:
        root.release(row.id)


def record_of(row: RunRow, store: Store) -> Record:
    """The record of a stored run, its stored model version filled in."""
    record = Record.parse(row.record, f"run {row.id}", base=Path(row.base))
    return load(record, store=store.root)


def restore(
    session: Session,
    store: Store,
    run: str,
    *,
    best: bool = False,
    step: int | None = None,
    optimizer: bool = True,
) -> Checkpoint:
    """Write a checkpoint's tensors to the device and set the session to its step."""
    row, bundle = store.checkpoint(run, best=best, step=step)
    if bundle.record != session.record.digest:
        raise StoreError(f"checkpoint at step {row.step}", f"record {session.record.digest}", bundle.record)
    with store.reading(run, row):
        weights = store.tensors(bundle.weights)
        rest = store.tensors(bundle.optimizer_state) if optimizer else {}
    session.load(weights, session.weight_names(), f"checkpoint at step {row.step}")
    if optimizer:
        session.load(rest, session.optimizer_names(), f"checkpoint at step {row.step}")
        session.step = bundle.step
        session.scheduler_state = dict(bundle.scheduler)
        expected = int(bundle.rng_state["counter"])
        if session.counter != expected:
            raise StoreError(f"checkpoint at step {row.step}", f"random counter {session.counter}", str(expected))
    return bundle


def _start_from(session: Session, store: Store) -> None:
    """Weights that the record's ``init`` names."""
    init = session.record.spec.init
    if init is not None:
        where = session.record.where("init.from")
        try:
            tensors = store.tensors(init.source.removeprefix("object:"))
        except StoreError as error:
            raise StoreError(f"{where}: {error.where}", error.expected, error.got, error.hint) from error
        session.load(tensors, session.weight_names(), where)


def _check_data(session: Session, store: Store, run: str) -> None:
    """Refuse data that has changed since the run began."""
    dataset, known = session.dataset, store.datasets(run)
    if dataset is not None and known and dataset.digest != known[-1]["digest"]:
        where, hint = session.record.where("data"), "the files that the run began with, or a new run"
        raise DataError(where, f"data of {known[-1]['digest']}, as the run began with", dataset.digest, hint)


def _all(callbacks: Callbacks, on_event: Callable[[Event], None] | None) -> Callbacks:
    return callbacks if on_event is None else [*callbacks, on_event]


def _go(loop: Loop, store: Store, run: str, *, resumed: bool) -> Result:
    try:
        data, dataset = loop.session.run.data, loop.session.dataset
        if data is not None and dataset is not None:
            store.set_dataset(run, dataset.digest, data.block.id, data.params.model_dump_json(), dataset.spec.sizes)
        ended = loop.run(Recorder(store, run, loop.session.record.spec.checkpoint.keep), resumed=resumed)
    finally:
        store.release(run)
    return Result(run, ended.state, ended.step, ended.applied, ended.skipped, ended.metrics, store.root, ended.reason)


# -- using a run ----------------------------------------------------------------------------------------------
def open_run(
    run: str | None,
    *,
    store: str | Path = ".scellis",
    device: str = "auto",
    best: bool = False,
    evaluate: bool = True,
    predict: Sequence[int] = (1,),
    catalog: Catalog | None = None,
) -> Session:
    """A trained run ready for prediction and evaluation; close it when done.

    Args:
        run: id or the beginning of one; the latest run where None.
        store: the store's folder.
        device: as for :func:`train`.
        best: use the best checkpoint instead of the newest.
        evaluate: compile the evaluation of every split.
        predict: batch sizes to compile for prediction.
        catalog: where blocks are found.

    Raises:
        StoreError: if there is no such run, it has no checkpoint yet, or its checkpoint is damaged.
    """
    root = Store(Path(store))
    row = _find(root, run)
    session = open_session(
        record_of(row, root),
        catalog or Catalog.discover(),
        device=device,
        train=False,
        evaluate=evaluate,
        predict=predict,
    )
    with ExitStack() as stack:
        stack.callback(session.close)
        restore(session, root, row.id, best=best, optimizer=False)
        stack.pop_all()
    return session


def _find(store: Store, run: str | None) -> RunRow:
    """A run by id or the beginning of one; the latest where None."""
    if run is not None:
        return store.find_run(run)
    rows = store.runs()
    if not rows:
        raise StoreError(f"store {store.root}", "a run", "none", "scellis train run.sml")
    return rows[0]


def predict(
    run: str | None,
    inputs: Mapping[str, NDArray[Any]],
    *,
    batch_size: int | None = None,
    store: str | Path = ".scellis",
    device: str = "auto",
    best: bool = False,
) -> dict[str, NDArray[Any]]:
    """A trained run's outputs for arrays.

    Args:
        run: as for :func:`open_run`.
        inputs: arrays by input name, each with the examples as its first dimension.
        batch_size: examples that the device sees at once; the record's where None.
        store: as for :func:`open_run`.
        device: as for :func:`open_run`.
        best: as for :func:`open_run`.

    Returns:
        Outputs by name, examples first.

    Raises:
        DataError: if an input is missing, unknown or has another shape.
    """
    import numpy as np

    if not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] what notebooks pass
        raise DataError("predict", "arrays by input name", type(inputs).__name__, '{"x": array}')
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    sizes = {array.shape[0] if array.ndim else 0 for array in arrays.values()}
    if len(sizes) != 1 or 0 in sizes or (batch_size is not None and batch_size < 1):
        got = ", ".join(f"{n} of shape {list(a.shape)}" for n, a in arrays.items()) or "none"
        raise DataError("predict", "inputs of one number of examples, at least 1, and a batch of at least 1", got)
    examples = sizes.pop()
    root = Store(Path(store))
    row = _find(root, run)
    batch = min(examples, batch_size or record_of(row, root).spec.batch_size or examples)
    session = open_run(
        row.id, store=store, device=device, best=best, evaluate=False, predict=eval_sizes(examples, batch)
    )
    with closing(session):
        parts = [
            session.predict({name: array[start : start + batch] for name, array in arrays.items()})
            for start in range(0, examples, batch)
        ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def evaluate(
    run: str | None,
    *,
    split: str = "val",
    store: str | Path = ".scellis",
    device: str = "auto",
    best: bool = False,
) -> dict[str, float]:
    """Loss and metrics of a trained run over a split of its data.

    Args:
        run: as for :func:`open_run`.
        split: its name; ``train`` too is evaluated without dropout.
        store: as for :func:`open_run`.
        device: as for :func:`open_run`.
        best: as for :func:`open_run`.

    Raises:
        DataError: if the data has no such split.
    """
    with closing(open_run(run, store=store, device=device, best=best, predict=())) as session:
        return session.evaluate(split)


def export(
    run: str | None,
    out: str | Path,
    *,
    store: str | Path = ".scellis",
    best: bool = False,
    step: int | None = None,
) -> Path:
    """Write a run's weights (parameters and running statistics, by path) as safetensors in f32.

    Args:
        run: id or the beginning of one; the latest run where None.
        out: file to write; an existing one is replaced in one move.
        store: the store's folder.
        best: the best checkpoint instead of the newest.
        step: the checkpoint of this step instead.

    Returns:
        The file's path.

    Raises:
        StoreError: if there is no such run, it has no checkpoint yet, or its checkpoint is damaged.
        DataError: if the file cannot be written.
    """
    import numpy as np

    root = Store(Path(store))
    row = _find(root, run)
    kept, bundle = root.checkpoint(row.id, best=best, step=step)
    with root.reading(row.id, kept):
        weights = root.tensors(bundle.weights)
    tensors = {
        name.removeprefix("state:"): array.astype(np.float32) if array.dtype == np.float64 else array
        for name, array in weights.items()
    }
    metadata = {
        "format": "pt",
        "scellis.run": row.id,
        "scellis.step": str(bundle.step),
        "scellis.record": row.record_digest,
    }
    target = Path(out)
    if target.exists() and not target.is_file():
        got = "a folder" if target.is_dir() else "a device or pipe"
        raise DataError(str(target), "a file that can be replaced, or none yet", got, "another file name")
    temporary = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(encode(tensors, metadata))
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        got, hint = error.strerror or str(error), "another file name, or room on the disk"
        raise DataError(str(target), "a file that can be written", got, hint) from error
    return target


def metrics(
    run: str | None = None, name: str | None = None, *, store: str | Path = ".scellis"
) -> list[tuple[int, int, str, float]]:
    """Logged rows (step, epoch, name, value) of a run, in order of steps.

    Args:
        run: id or the beginning of one; the latest run where None.
        name: of one metric; all where None.
        store: the store's folder.

    Raises:
        StoreError: if there is no such run.
    """
    root = Store(Path(store))
    return root.metrics(_find(root, run).id, name)


def sample(
    run: str | None,
    prompt: str,
    *,
    length: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    seed: int = 0,
    store: str | Path = ".scellis",
    device: str = "auto",
    catalog: Catalog | None = None,
) -> Iterator[str]:
    """Text that a trained language model writes after a prompt, piece by piece.

    Each token is drawn from the ``sample`` stream of ``seed``. The context's window slides once it is full.

    Args:
        run: as for :func:`open_run`.
        prompt: text before; at least one token.
        length: tokens to write.
        temperature: 0 takes the likeliest token.
        top_k: draw among the likeliest ``k`` only.
        seed: of the draws.
        store: as for :func:`open_run`.
        device: as for :func:`open_run`.
        catalog: as for :func:`open_run`.

    Raises:
        DataError: if the run's data is no text, or the prompt has a token that the data has not.
    """
    import numpy as np

    from scellis_core import rng

    if not 0 <= temperature < math.inf or length < 0 or (top_k is not None and top_k < 1):
        got = f"{temperature}, {length}, {top_k}"
        raise DataError("sample", "a finite temperature and a length of at least 0, top_k of at least 1", got)
    with closing(open_run(run, store=store, device=device, evaluate=False, catalog=catalog)) as session:
        dataset = session.require_dataset()
        names = list(session.run.graph.inputs)
        output = next(iter(session.run.graph.outputs))
        shape = session.run.graph.inputs[names[0]].shape
        if len(names) != 1 or len(shape) != 1:
            raise RecordError(session.record.where("data"), "a model of one token sequence", ", ".join(names))
        context = shape[0]
        ids = _encoded(dataset, prompt)
        if not ids:
            raise DataError("--prompt", "at least one token", "an empty text")
        draws = rng.uniform64(seed, "sample", 0, length)
        for step in range(length):
            window = ids[-context:]
            padded = np.zeros((1, context), np.int32)
            padded[0, : len(window)] = window
            logits = np.asarray(session.predict({names[0]: padded})[output], np.float64)[0, len(window) - 1]
            ids.append(_draw(logits, temperature, top_k, float(draws[step])))
            yield dataset.decode(ids[-1:])


def _encoded(dataset: Dataset, prompt: str) -> list[int]:
    """Token ids of a prompt; an error names its position in the prompt."""
    try:
        return list(dataset.encode(prompt))
    except DataError as error:
        place, _, position = error.where.rpartition(": ")
        if not place:
            raise
        raise DataError(f"--prompt: {position}", error.expected, error.got, error.hint) from error


def _draw(logits: NDArray[Any], temperature: float, top_k: int | None, unit: float) -> int:
    import numpy as np

    order = np.argsort(-logits, kind="stable")[: top_k or len(logits)]
    if temperature == 0:
        return int(order[0])
    scaled = (logits[order] - logits[order[0]]) / temperature
    total = np.cumsum(np.exp(scaled))
    return int(order[min(int(np.searchsorted(total, unit * total[-1], side="right")), len(order) - 1)])


def resolve(record: Record | str | Path, catalog: Catalog | None = None) -> ResolvedRun:
    """A record with its blocks, for looking inside."""
    ready = load(record)
    return resolve_run(ready, catalog or Catalog.discover(), ready.base)
