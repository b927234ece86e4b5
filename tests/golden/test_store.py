"""The store in one process: objects, bundles, runs, metrics, pruning and collection, stored models."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from store_children import record, save, start

from scellis_core.errors import StoreError
from scellis_core.store import Checkpoint, Store, decode, encode, objects, weights_digest


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


# -- objects --------------------------------------------------------------------------------------------------
def test_put_and_get(store: Store) -> None:
    digest = store.objects.put(b"hello")
    assert digest == "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert store.objects.put([b"he", memoryview(b"llo")]) == digest
    assert store.objects.get(digest) == b"hello"
    assert digest in store.objects
    store.objects.verify(digest)
    assert list(store.objects.all()) == [digest]
    assert store.objects.path(digest).relative_to(store.root).parts[:3] == ("objects", "sha256", "2c")


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (b"hell", "4 bytes of sha256:0ebdc3317b75839f643387d783535adc360ca01f33c75f7c1e7373adcd675c0b"),
        (b"hellp", "5 bytes of sha256:"),
        (b"", "0 bytes of sha256:e3b0c442"),
    ],
)
def test_a_damaged_object_is_refused_by_name(store: Store, bad: bytes, found: str) -> None:
    digest = store.objects.put(b"hello")
    store.objects.path(digest).write_bytes(bad)
    for read in (store.objects.get, store.objects.verify):
        with pytest.raises(StoreError) as caught:
            read(digest)
        assert caught.value.where == f"object {digest}"
        assert caught.value.got.startswith(found)
    assert store.objects.put(b"hello") == digest
    assert store.objects.get(digest) == b"hello"


def test_a_missing_object_and_a_wrong_name(store: Store) -> None:
    digest = "sha256:" + "0" * 64
    with pytest.raises(StoreError, match=f"object {digest}: expected a file .*, got none"):
        store.objects.get(digest)
    for name in ("sha256:12", "md5:" + "0" * 64, digest + "\n", "sha256:../" + "0" * 61):
        with pytest.raises(StoreError, match="expected sha256: and 64 hexadecimal digits"):
            store.objects.get(name)


def test_a_failed_write_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(point: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(objects, "at", full)
    with pytest.raises(StoreError, match=r"expected a disk that takes the object, got .*No space left"):
        store.objects.put(b"hello")

    def chunks():
        yield b"he"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.objects.put(chunks())
    assert list((store.root / "objects" / "tmp").iterdir()) == []
    assert list(store.objects.all()) == []


# -- tensors --------------------------------------------------------------------------------------------------
def arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "b.weight": generator.standard_normal((3, 4)).astype(np.float32),
        "a.weight": generator.standard_normal((2, 5)).astype(np.float16),
        "global:t": np.array(7, np.float32),
        "flags": np.array([True, False, True]),
        "ids": np.arange(5, dtype=np.int32),
        "words": np.arange(3, dtype=np.uint32),
        "none": np.zeros((0, 4), np.float32),
        "odd-ü": np.array([np.nan, np.inf, -0.0]),
    }


def test_tensors_come_back_bit_for_bit() -> None:
    found = decode(encode(arrays()), "test")
    assert set(found) == set(arrays())
    for name, array in arrays().items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_equal_tensors_have_equal_bytes() -> None:
    own = arrays()
    other = {name: np.array(own[name], order="F") for name in reversed(own)}
    notes = {"b": "1", "a": "2", "c": "3"}
    assert encode(own, notes) == encode(other, dict(reversed(notes.items())))
    big = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in own.items()}
    assert encode(big) == encode(own)
    assert weights_digest(big) == weights_digest(other) == weights_digest(own)


def test_encoded_bytes_do_not_depend_on_the_process() -> None:
    code = (
        "import numpy as np, hashlib; from scellis_core.store import encode;"
        "print(hashlib.sha256(encode({n: np.ones(3, 'f4') for n in 'xyz'}, {n: n for n in 'pqrs'})).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_weights_digest_sees_each_part() -> None:
    base = {"w": np.zeros((2, 3), np.float32)}
    others = [
        {"v": np.zeros((2, 3), np.float32)},
        {"w": np.zeros((3, 2), np.float32)},
        {"w": np.zeros((2, 3), np.int32)},
        {"w": np.full((2, 3), -0.0, np.float32)},
        {"w": np.zeros((2, 3), np.float32), "e": np.zeros(0, np.float32)},
    ]
    assert len({weights_digest(t) for t in [base, *others]}) == 6
    assert weights_digest(base) == "sha256:" + hashlib.sha256(b'["w", "F32", [2, 3]]\n' + bytes(24)).hexdigest()


def test_refused_tensors(store: Store) -> None:
    with pytest.raises(StoreError, match="tensor w: expected a dtype of safetensors, got complex128; try f32"):
        encode({"w": np.zeros(2, np.complex128)})
    whole = encode(arrays())
    for bad in (whole[:-1], whole[:20], b"", b"\xff" * 40, whole + b"0"):
        digest = store.objects.put(bad)
        with pytest.raises(StoreError, match=f"object {digest}: expected weights in the safetensors format"):
            store.tensors(digest)
    header = b'{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    digest = store.objects.put(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(StoreError, match=f"object {digest}: expected dtypes of NumPy"):
        store.tensors(digest)


# -- runs -----------------------------------------------------------------------------------------------------
def test_the_life_of_a_run(store: Store) -> None:
    run = store.create_run(
        record(seed=3), device="Lava", environment={"driver": "1"}, total=20, base=Path("."), command="scellis train"
    )
    row = store.find_run(run[:10])
    assert (row.id, row.state, row.model, row.device, row.tier) == (run, "running", "user/ada/net", "Lava", "debug")
    assert (row.record_digest, row.total, row.command) == (record(seed=3).digest, 20, "scellis train")
    assert row.environment == {"driver": "1"}
    store.log(run, [(4, 1, "loss", 2.0)], step=4, epoch=1, skipped=1)
    row = store.find_run(run)
    assert (row.step, row.epoch, row.skipped, row.applied) == (4, 1, 1, 3)
    store.end_run(run, "failed", 5, 1, "DataError: gone")
    row = store.find_run(run)
    assert (row.state, row.error, row.step) == ("failed", "DataError: gone", 5)
    store.resume_run(run, 4, "Other", {"driver": "2"})
    row = store.find_run(run)
    assert (row.state, row.error, row.device, row.environment) == ("running", "", "Other", {"driver": "2"})
    assert store.environments(run) == [(0, {"driver": "1"}), (4, {"driver": "2"})]
    store.end_run(run, "finished", 20, 1)
    with pytest.raises(StoreError, match="expected an interrupted run, got one that has finished"):
        store.resume_run(run, 20, "Lava")


def test_a_run_whose_store_is_dropped_is_interrupted(store: Store) -> None:
    other = Store(store.root)
    run = start(other)
    assert store.find_run(run).state == "running"
    del other
    assert store.find_run(run).state == "interrupted"


def test_a_held_run_is_nobody_elses(store: Store) -> None:
    other = Store(store.root)
    run = start(other)
    busy = f"run {run}: expected a run that is not running, got running in another process"
    for user in (store, other):
        with pytest.raises(StoreError, match=busy):
            user.hold(run)
    other.release(run)
    store.hold(run)  # its row still says running
    store.hold(run)
    assert store.find_run(run).state == "interrupted"
    with pytest.raises(StoreError, match=busy):
        Store(store.root).resume_run(run, 0, "none")
    store.resume_run(run, 2, "none", epoch=1, skipped=1)
    row = store.find_run(run)
    assert (row.state, row.step, row.epoch, row.applied) == ("running", 2, 1, 1)
    store.release(run)
    store.release(run)
    assert store.find_run(run).state == "interrupted"
    Store(store.root).hold(run)


def test_finding_runs(store: Store) -> None:
    with pytest.raises(StoreError, match="expected an interrupted run, got none; try scellis runs"):
        store.find_run()
    first, second = start(store), start(store)
    assert first != second
    assert [r.id for r in store.runs()] == [second, first]
    with pytest.raises(StoreError) as caught:
        store.find_run("2")
    assert caught.value.where == "run 2"
    assert caught.value.got == f"2: {second}, {first}"
    with pytest.raises(StoreError, match="run zzz: expected a run that begins so, got none"):
        store.find_run("zzz")
    store.end_run(second, "failed", 0, 0, "boom")
    with pytest.raises(StoreError, match=f"got none; .* is running; try scellis resume {second}"):
        store.find_run()
    store.end_run(first, "interrupted", 0, 0)
    assert store.find_run().id == first


def test_an_unknown_run_is_refused(store: Store) -> None:
    start(store)
    calls = [
        lambda: store.log("nope", [(1, 0, "loss", 1.0)], step=1, epoch=0, skipped=0),
        lambda: store.end_run("nope", "finished", 1, 0),
        lambda: store.resume_run("nope", 0, "none"),
        lambda: store.set_dataset("nope", "d", "data/text@1", "{}", {}),
        lambda: save(store, "nope", 1),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"run nope: expected a run of .*, got none; try scellis runs"):
            call()


def test_metrics_have_one_row_a_step(store: Store) -> None:
    run = start(store)
    store.log(run, [(s, 0, "loss", float(s)) for s in (1, 2, 3)], step=3, epoch=0, skipped=0)
    store.log(run, [(3, 0, "loss", float("nan")), (3, 0, "lr", float("inf"))], step=3, epoch=0, skipped=0)
    assert [r[:3] for r in store.metrics(run)] == [(1, 0, "loss"), (2, 0, "loss"), (3, 0, "loss"), (3, 0, "lr")]
    newest = store.newest_metrics(run)
    assert np.isnan(newest["loss"])
    assert newest["lr"] == float("inf")
    store.end_run(run, "interrupted", 3, 0)
    store.resume_run(run, 1, "none")
    assert store.metrics(run) == [(1, 0, "loss", 1.0)]
    assert store.metrics(run, "lr") == []


def test_datasets_are_kept_for_each_run(store: Store) -> None:
    runs = [start(store), start(store)]
    for run, size in zip(runs, (8, 9), strict=True):
        store.set_dataset(run, "sha256:d", "data/text@1", json.dumps({"context": size}), {"train": size})
    assert [store.datasets(r)[0]["params"] for r in runs] == [{"context": 8}, {"context": 9}]
    assert store.datasets(runs[1]) == [
        {"digest": "sha256:d", "block": "data/text@1", "params": {"context": 9}, "sizes": {"train": 9}}
    ]
    assert store.find_run(runs[0]).dataset == "sha256:d"


# -- checkpoints ----------------------------------------------------------------------------------------------
def test_a_checkpoint_is_a_bundle_of_objects(store: Store) -> None:
    run = start(store)
    saved = save(store, run, 3)
    found, bundle = store.checkpoint(run)
    assert found == saved
    assert bundle.weights_digest == saved.weights == weights_digest(store.tensors(bundle.weights))
    data = json.loads(store.objects.get(saved.bundle))
    assert data["weights"].startswith("sha256:")
    assert data["optimizer_state"].startswith("sha256:")
    assert data["rng_state"] == {"algorithm": "philox4x32", "counter": 30}
    assert (data["epoch"], data["step"], data["metrics"]) == (0, 3, {"loss": 1 / 3})


def test_bundles_keep_numbers_that_json_has_not() -> None:
    state = {"best": {"stop": float("nan")}, "list": [float("-inf"), -0.0, 1, "nan"]}
    rng_state = {"algorithm": "philox4x32", "counter": 2**60}
    bundle = Checkpoint("a", "b", "c", rng_state, 1, 2, 3, "d", {"loss": float("inf")}, loop=state)
    data = bundle.to_bytes()
    json.loads(data, parse_constant=pytest.fail)
    found = Checkpoint.from_bytes(data, "here")
    assert repr(found) == repr(bundle)


def test_refused_bundles() -> None:
    whole = json.loads(
        Checkpoint("a", "b", "c", {"algorithm": "philox4x32", "counter": 1}, 1, 2, 3, "d", {}).to_bytes()
    )
    cases = [
        (b"[", "here: expected a checkpoint bundle"),
        (b"[]", "here: expected a checkpoint bundle"),
        ({**whole, "checkpoint": 2}, "here: expected a checkpoint of format 1, got 2; try the Scellis that wrote it"),
        ({**whole, "more": 1}, "here: expected the keys of a checkpoint"),
        ({**whole, "rng_state": {"algorithm": "pcg64"}}, "here: expected rng_state of philox4x32, got 'pcg64'"),
    ]
    for data, message in cases:
        with pytest.raises(StoreError) as caught:
            Checkpoint.from_bytes(data if isinstance(data, bytes) else json.dumps(data).encode(), "here")
        assert str(caught.value).startswith(message)


def test_a_damaged_checkpoint_is_refused_not_replaced_by_an_older_one(store: Store) -> None:
    run = start(store)
    save(store, run, 1, keep=3)
    saved = save(store, run, 2, keep=3)
    _, bundle = store.checkpoint(run)
    path = store.objects.path(bundle.weights)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match=f"object {bundle.weights}: expected bytes of that digest"):
        store.tensors(bundle.weights)
    store.objects.path(saved.bundle).unlink()
    with pytest.raises(StoreError, match=f"object {saved.bundle}: expected a file"):
        store.checkpoint(run)


def test_pruning_keeps_the_newest_and_the_best(store: Store) -> None:
    run = start(store)
    for step in range(1, 7):
        save(store, run, step, keep=2, best=step in (1, 2))
    assert [(c.step, c.best) for c in store.checkpoints(run)] == [(6, False), (5, False), (2, True)]
    assert store.checkpoint(run, best=True)[0].step == 2
    assert len(list(store.objects.all())) == 9
    with pytest.raises(StoreError, match="run x: expected a checkpoint marked best, got none yet"):
        store.checkpoint("x", best=True)


def test_saving_a_step_again_keeps_its_mark(store: Store) -> None:
    run = start(store)
    save(store, run, 2, best=True)
    again = save(store, run, 2)
    assert again.best
    assert len(store.checkpoints(run)) == 1
    assert not save(store, run, 2, seed=99).best


def test_resuming_from_a_step_drops_later_checkpoints(store: Store) -> None:
    run = start(store)
    for step in (1, 2, 3):
        save(store, run, step, keep=9)
    store.end_run(run, "interrupted", 3, 0)
    store.resume_run(run, 2, "none")
    assert [c.step for c in store.checkpoints(run)] == [2, 1]


def test_collection_spares_what_is_referred_to(store: Store) -> None:
    pinned, loose = store.pin(b"pinned", "imported"), store.objects.put(b"loose")
    named, modelled = store.objects.put(b"named"), store.objects.put(b"modelled")
    start(store, init={"from": f"object:{named}"})
    store.save_model(record(init={"from": f"object:{modelled}"}))
    assert store.collect(dry_run=True) == [loose]
    assert loose in store.objects
    assert store.collect() == [loose]
    assert set(store.objects.all()) == {pinned, named, modelled}


def test_old_temporary_files_are_cleared(store: Store) -> None:
    store.objects.put(b"x")
    folder = store.root / "objects" / "tmp"
    (folder / "new").write_bytes(b"1")
    (folder / "old").write_bytes(b"1")
    os.utime(folder / "old", (time.time() - 4000, time.time() - 4000))
    store.collect()
    assert [p.name for p in folder.iterdir()] == ["new"]


def test_an_object_collected_before_its_row_is_written_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(store)
    put = store.objects.put
    left = [3]

    def put_and_lose(data):
        digest = put(data)
        left[0] -= 1
        if left[0] >= 0:
            Store(store.root).collect()
            assert digest not in store.objects
        return digest

    monkeypatch.setattr(store.objects, "put", put_and_lose)
    save(store, run, 1)
    assert left[0] == -3
    _, bundle = store.checkpoint(run)
    assert store.tensors(bundle.optimizer_state)["global:t"] == 1
    assert store.tensors(bundle.weights)["w"].shape == (5, 7)


# -- models ---------------------------------------------------------------------------------------------------
def test_model_versions(store: Store) -> None:
    assert store.save_model(record()) == ("user/ada/net", 1)
    assert store.save_model(record()) == ("user/ada/net", 1)
    assert store.save_model(record(seed=5)) == ("user/ada/net", 2)
    assert store.save_model(record(model="user/ada/net@1")) == ("user/ada/net", 1)
    assert store.save_model(record(model="user/ada/net@3", seed=6)) == ("user/ada/net", 3)
    assert store.models() == [("user/ada/net", 1), ("user/ada/net", 2), ("user/ada/net", 3)]
    assert store.load_model("user/ada/net", 2) == record(seed=5)
    assert store.load_model("user/ada/net").get("seed") == 6
    with pytest.raises(StoreError, match=r"user/ada/net@9: expected a stored model in .*, got none; try one of: "):
        store.load_model("user/ada/net", 9)


def test_refused_models(store: Store) -> None:
    store.save_model(record())
    cases = [
        (
            record(model="user/ada/net@1", seed=9),
            "expected version 2, the next of user/ada/net, got 1: another content",
        ),
        (record(model="user/ada/net@7"), "expected version 2, the next of user/ada/net, got 7: no such version yet"),
    ]
    for bad, message in cases:
        with pytest.raises(StoreError) as caught:
            store.save_model(bad)
        assert message in str(caught.value)
        assert str(caught.value).endswith("; try model: user/ada/net")
    nameless = record().without("model")
    with pytest.raises(StoreError, match="expected a model name to save under, got none"):
        store.save_model(nameless)
    only = type(nameless).from_dict({"sml": 1, "model": "user/ada/net@1", "determinism_tier": "debug"})
    with pytest.raises(StoreError, match="expected an architecture to save, got only the name of user/ada/net@1"):
        store.save_model(only)
    assert store.models() == [("user/ada/net", 1)]


# -- the database's file --------------------------------------------------------------------------------------
def test_reading_makes_no_files(store: Store) -> None:
    assert store.runs() == []
    assert store.checkpoints("x") == []
    assert store.metrics("x") == []
    assert store.models() == []
    assert not store.root.exists()


def test_refused_databases(store: Store) -> None:
    path = store.database.path
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="expected a provenance database, got file is not a database"):
        store.runs()
    path.unlink()
    for statement, message in [
        ("CREATE TABLE cookies (a)", "expected a provenance database, got another program's"),
        ("PRAGMA user_version = 2", "expected a database of version 1 or older, got 2; try a newer Scellis"),
    ]:
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.close()
        before = path.read_bytes()
        for use in (store.runs, lambda: start(store)):
            with pytest.raises(StoreError, match=message):
                use()
        assert path.read_bytes() == before
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match=r"provenance\.sqlite: expected a provenance database"):
        store.runs()


def test_a_busy_database_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    start(store)
    monkeypatch.setattr("scellis_core.store.database.PATIENCE", 0.05)
    with store.database.write():
        with pytest.raises(StoreError, match=r"expected the database free within 0.05 s, got database is locked"):
            start(Store(store.root))
        assert store.metrics("x") == []


def test_the_database_waits_safely(store: Store) -> None:
    start(store)
    with store.database.read() as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA foreign_keys").fetchone()[0] == 1
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
