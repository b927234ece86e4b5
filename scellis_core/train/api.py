"""Training from Python: the same that the command line does.

Example:
    >>> import scellis
    >>> record = scellis.load("examples/digits.sml").with_override("epochs", 2)  # doctest: +SKIP
    >>> result = scellis.train(record, on_event=print)  # doctest: +SKIP
    >>> result.metrics["val_accuracy"]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scellis_core.catalog import Catalog
from scellis_core.compile import compile_run
from scellis_core.errors import DataError, RecordError, StoreError
from scellis_core.lower.program import Limits
from scellis_core.model import ResolvedRun, resolve_run
from scellis_core.planner import Plan
from scellis_core.planner import plan as price
from scellis_core.record import Record
from scellis_core.store import Checkpoint, RunRow, Store, encode
from scellis_core.train.events import Event, RunEnded
from scellis_core.train.loop import Loop, LoopState
from scellis_core.train.recorder import Recorder, environment
from scellis_core.train.session import Session, batches, open_session

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
    loaded = record if isinstance(record, Record) else Record.load(record)
    wanted = loaded.stored
    if wanted is None:
        return loaded
    found = Store(store_path(loaded, store)).load_model(str(wanted._replace(version=None)), wanted.version)
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
        on_event, callbacks: receive every event (:mod:`scellis_core.train.events`).
        catalog: where blocks are found.
        limits: ask the device for smaller limits than it has.

    Raises:
        ScellisError: if record, data, device or store do not allow it; nothing of the run is left half-written.
    """
    ready = load(record, store=store)
    root = Store(store_path(ready, store))
    session = open_session(ready, catalog or Catalog.discover(), device=device, limits=limits)
    try:
        session.initialise()
        _start_from(session, root)
        run = root.create_run(
            ready,
            device=str(session.executor.describe()["adapter"]),
            environment=environment(session),
            total=session.require_plan().total,
            base=ready.base,
        )
        _note_dataset(session, root, run)
        return _go(session, root, run, None, [*callbacks, *([on_event] if on_event else [])])
    finally:
        session.close()


def resume(
    run: str | None = None,
    *,
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
        store: the store's folder.
        device, on_event, callbacks, catalog, limits: as for :func:`train`.

    Raises:
        StoreError: if there is no such run, it is running or finished, or its checkpoint is damaged.
    """
    root = Store(Path(store))
    row = root.find_run(run)
    if row.state == "running":
        raise StoreError(f"run {row.id}", "a run that is not running", "running in another process")
    if row.state == "finished":
        raise StoreError(f"run {row.id}", "an interrupted run", "one that has finished", "scellis runs")
    record = record_of(row, root)
    session = open_session(record, catalog or Catalog.discover(), device=device, limits=limits)
    try:
        session.initialise()
        _start_from(session, root)
        bundle = None
        if root.checkpoints(row.id):
            bundle = restore(session, root, row.id)
        root.resume_run(row.id, session.step, str(session.executor.describe()["adapter"]))
        return _go(session, root, row.id, bundle, [*callbacks, *([on_event] if on_event else [])])
    finally:
        session.close()


def record_of(row: RunRow, store: Store) -> Record:
    """The record of a stored run, its stored model version filled in."""
    record = Record.parse(row.record, f"run {row.id}", base=Path(row.base))
    return load(record, store=store.root)


def restore(session: Session, store: Store, run: str, *, best: bool = False, optimizer: bool = True) -> Checkpoint:
    """Write a checkpoint's tensors to the device and set the session to its step."""
    row, bundle = store.checkpoint(run, best=best)
    if bundle.record != session.record.digest:
        raise StoreError(f"checkpoint at step {row.step}", f"record {session.record.digest}", bundle.record)
    session.load(store.tensors(bundle.weights), session.weight_names(), f"checkpoint at step {row.step}")
    if optimizer:
        names = session.optimizer_names()
        session.load(store.tensors(bundle.optimizer_state), names, f"checkpoint at step {row.step}")
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
        digest = init.source.removeprefix("object:")
        session.load(store.tensors(digest), session.weight_names(), session.record.where("init.from"))


def _note_dataset(session: Session, store: Store, run: str) -> None:
    data, dataset = session.run.data, session.dataset
    if data is not None and dataset is not None:
        store.set_dataset(run, dataset.digest, data.block.id, data.params.model_dump_json(), dataset.spec.sizes)


def _go(session: Session, store: Store, run: str, bundle: Checkpoint | None, callbacks: Callbacks) -> Result:
    keep = session.record.spec.checkpoint.keep
    state = LoopState.from_json(bundle.loop) if bundle else LoopState()
    loop = Loop(session, Recorder(store, run, keep, state.skipped), callbacks, state)
    ended: RunEnded = loop.run(resumed=bundle is not None)
    return Result(
        run, ended.state, ended.step, ended.applied, ended.skipped, ended.metrics, store.root, ended.reason
    )


# -- using a run ----------------------------------------------------------------------------------------------
def open_run(
    run: str | None,
    *,
    store: str | Path = ".scellis",
    device: str = "auto",
    best: bool = False,
    predict: Sequence[int] = (1,),
    catalog: Catalog | None = None,
) -> Session:
    """A trained run ready for prediction and evaluation; close it when done.

    Args:
        run: id or the beginning of one; the latest run where None.
        store: the store's folder.
        device: as for :func:`train`.
        best: use the best checkpoint instead of the newest.
        predict: batch sizes to compile.
        catalog: where blocks are found.
    """
    root = Store(Path(store))
    rows = root.runs()
    if run is None and not rows:
        raise StoreError(f"store {root.root}", "a run", "none", "scellis train run.sml")
    row = rows[0] if run is None else root.find_run(run)
    record = record_of(row, root)
    session = open_session(record, catalog or Catalog.discover(), device=device, train=False, predict=predict)
    try:
        restore(session, root, row.id, best=best, optimizer=False)
    except BaseException:
        session.close()
        raise
    return session


def predict(
    run: str | None,
    inputs: Mapping[str, NDArray[Any]],
    *,
    store: str | Path = ".scellis",
    device: str = "auto",
    best: bool = False,
) -> dict[str, NDArray[Any]]:
    """A trained run's outputs for arrays.

    Args:
        run, store, device, best: as for :func:`open_run`.
        inputs: arrays by input name, each with the batch as its first dimension.

    Returns:
        Outputs by name, batch first.

    Raises:
        DataError: if an input is missing or has another shape.
    """
    sizes = {len(a) for a in inputs.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError("predict", "inputs of one batch size, at least 1", str(sorted(sizes)))
    session = open_run(run, store=store, device=device, best=best, predict=sorted(sizes))
    try:
        return session.predict(inputs)
    finally:
        session.close()


def evaluate(
    run: str | None,
    *,
    split: str = "val",
    store: str | Path = ".scellis",
    device: str = "auto",
    best: bool = False,
) -> dict[str, float]:
    """Loss and metrics of a trained run over a split of its data."""
    session = open_run(run, store=store, device=device, best=best, predict=())
    try:
        return session.evaluate(split)
    finally:
        session.close()


def export(run: str | None, out: str | Path, *, store: str | Path = ".scellis", best: bool = False) -> Path:
    """Write a run's weights (parameters and running statistics, by path) as safetensors.

    Args:
        run: id or the beginning of one; the latest run where None.
        out: file to write; an existing one is replaced in one move.
        store: the store's folder.
        best: the best checkpoint instead of the newest.

    Returns:
        The file's path.
    """
    root = Store(Path(store))
    rows = root.runs()
    if run is None and not rows:
        raise StoreError(f"store {root.root}", "a run", "none", "scellis train run.sml")
    row = rows[0] if run is None else root.find_run(run)
    _, bundle = root.checkpoint(row.id, best=best)
    tensors = {n.removeprefix("state:"): a for n, a in root.tensors(bundle.weights).items()}
    metadata = {"format": "pt", "scellis.run": row.id, "scellis.step": str(bundle.step), "scellis.record": row.record_digest}
    target = Path(out)
    temporary = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(encode(tensors, metadata))
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataError(str(target), "a file that can be written", str(error)) from error
    return target


def metrics(run: str | None = None, name: str | None = None, *, store: str | Path = ".scellis") -> list[tuple[int, int, str, float]]:
    """Logged rows (step, epoch, name, value) of a run; of the latest where None."""
    root = Store(Path(store))
    rows = root.runs()
    if run is None and not rows:
        raise StoreError(f"store {root.root}", "a run", "none", "scellis train run.sml")
    return root.metrics(rows[0].id if run is None else root.find_run(run).id, name)


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
) -> Iterator[str]:
    """Text that a trained language model writes after a prompt, piece by piece.

    Each token is drawn from the ``sample`` stream of ``seed``. The context's window slides once it is full.

    Args:
        run, store, device: as for :func:`open_run`.
        prompt: text before; at least one token.
        length: tokens to write.
        temperature: 0 takes the likeliest token.
        top_k: draw among the likeliest ``k`` only.
        seed: of the draws.

    Raises:
        DataError: if the run's data is no text, or the prompt has a token that the data has not.
    """
    import numpy as np

    from scellis_core import rng

    if temperature < 0 or length < 0 or (top_k is not None and top_k < 1):
        raise DataError("sample", "temperature and length of at least 0, top_k of at least 1", f"{temperature}, {length}, {top_k}")
    session = open_run(run, store=store, device=device)
    try:
        dataset = session.require_dataset()
        names = list(session.run.graph.inputs)
        output = next(iter(session.run.graph.outputs))
        shape = session.run.graph.inputs[names[0]].shape
        if len(names) != 1 or len(shape) != 1:
            raise RecordError(session.record.where("data"), "a model of one token sequence", ", ".join(names))
        context = shape[0]
        ids = list(dataset.encode(prompt))
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
    finally:
        session.close()


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
