"""Wrong input of thirty kinds, as met on the command line: the whole text, the exit code, nothing left behind.

More kinds are beside what they are about: records in tests/null/test_record.py and test_sml.py, files of data in
tests/plugins/test_data_blocks.py, checkpoints in test_loop.py and test_store.py, devices in
tests/device/test_runtime_refusals.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from test_cli_train import NOT_ON_A_GPU, RECORD, TEXT, Call, Done, scellis  # noqa: F401  (a fixture)

from scellis_core.store import Store


def tree(folder: Path) -> Mapping[str, bytes]:
    """Every file below a folder and what it holds, running databases' side files apart."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not p.name.endswith(("-wal", "-shm"))
    }


CSV = RECORD.replace("data/digits,", "data/csv, path: t.csv, target: kind, task: classification,").replace(
    "outputs: 10", "outputs: 2"
)
ARRAYS = RECORD.replace("data/digits,", "data/arrays, path: t.npz,").replace("outputs: 10", "outputs: 2")
FOLDER = RECORD.replace("mlp, hidden: [4],", "cnn,").replace("data/digits,", "data/image_folder, path: pics, size: 4,")
GRAPH = RECORD.replace(
    "architecture: { block_id: model/mlp, hidden: [4], outputs: 10 }",
    "inputs: { x: { shape: [batch, 64], dtype: f32 } }\ngraph:\nNODES\noutputs: { logits: b }",
)


def graph(nodes: str) -> str:
    """A record with these nodes."""
    return GRAPH.replace("NODES", nodes)


RECORDS = {
    "unknown key": RECORD.replace("batch_size", "batchsize"),
    "unknown parameter": RECORD.replace("lr: 1.0e-2", "learning_rate: 1.0e-2"),
    "wrong type": RECORD.replace("steps: 6", "steps: many"),
    "out of range": RECORD.replace("1.0e-2", "-1"),
    "unknown block": RECORD.replace("data/digits", "data/digitz"),
    "no tier": RECORD.replace("determinism_tier: prod\n", ""),
    "key twice": RECORD + "seed: 2\n",
    "broken YAML": RECORD.replace("[4]", "[4"),
    "cycle": graph("  a: { block_id: layer/add, in: [x, b] }\n  b: { block_id: layer/relu, in: a }"),
    "unknown port": graph("  b: { block_id: layer/relu, in: { z: x } }"),
    "shapes that do not fit": graph(
        "  a: { block_id: layer/linear, in: x, features: 7 }\n  b: { block_id: layer/add, in: [a, x] }"
    ),
    "unknown node": graph("  b: { block_id: layer/relu, in: y }"),
    "too few classes": RECORD.replace("outputs: 10", "outputs: 3"),
    "split leaves nothing": RECORD.replace("val: 0.1", "val: 1.0"),
    "stored version missing": "sml: 1\nmodel: user/ada/gone@3\ndeterminism_tier: debug\n",
}


def npz(folder: Path, **changes: object) -> None:
    """The arrays of t.npz, some of them changed."""
    rng = np.random.default_rng(0)
    arrays: dict[str, object] = {"x": rng.standard_normal((20, 3)).astype(np.float32), "y": np.arange(20) % 2}
    arrays |= changes
    np.savez(folder / "t.npz", **{k: v for k, v in arrays.items() if v is not None})  # type: ignore[arg-type]


def pictures(folder: Path) -> None:
    """Two classes of four images each."""
    from PIL import Image

    for name in ("cat", "dog"):
        (folder / "pics" / name).mkdir(parents=True)
        for k in range(4):
            Image.new("RGB", (5, 5), (k * 9, 0, 0)).save(folder / "pics" / name / f"{k}.png")


def lines(*rows: str) -> Callable[[Path], object]:
    """t.csv of these rows."""
    return lambda folder: (folder / "t.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def broken_picture(folder: Path) -> None:
    pictures(folder)
    (folder / "pics" / "dog" / "2.png").write_bytes(b"not an image")


def empty_class(folder: Path) -> None:
    pictures(folder)
    (folder / "pics" / "bird").mkdir()


DATA: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no file": (CSV, lambda folder: None),
    "ragged row": (CSV, lines("a,b,kind", "1,2,x", "3,y")),
    "not a number": (CSV, lines("a,b,kind", "1,2,x", "3,four,y")),
    "no such column": (CSV, lines("a,b,sort", "1,2,x")),
    "empty table": (CSV, lines("a,b,kind")),
    "no such array": (ARRAYS, lambda folder: npz(folder, y=None)),
    "unequal lengths": (ARRAYS, lambda folder: npz(folder, y=np.zeros(19, np.int32))),
    "not a finite number": (ARRAYS, lambda folder: npz(folder, x=np.full((20, 3), np.nan, np.float32))),
    "pickled objects": (ARRAYS, lambda folder: npz(folder, y=np.array([{}] * 20, dtype=object))),
    "label past the classes": (ARRAYS, lambda folder: npz(folder, y=np.arange(20) % 3)),
    "negative label": (ARRAYS, lambda folder: npz(folder, y=np.arange(20) % 2 - 2)),
    "broken image": (FOLDER, broken_picture),
    "class without images": (FOLDER, empty_class),
    "text that is no UTF-8": (
        TEXT.replace("corpus.txt,", "corpus.txt, tokens: char,"),
        lambda folder: (folder / "corpus.txt").write_bytes(b"abc\xff\xfe" * 40),
    ),
}

SAID = {
    "unknown key": (
        "run.sml:9:1 batchsize: expected a key of the record, got 'batchsize'; try one of: batch_size"
        "\n  scellis explain record"
    ),
    "unknown parameter": (
        "run.sml:5:50 optimizer.learning_rate: expected a parameter of training/optimizer/adamw@1, got "
        "'learning_rate'; try lr"
        "\n  scellis explain record"
    ),
    "wrong type": ("run.sml:8:8 steps: expected integer >= 1 (steps), got 'many'; try 1000\n  scellis explain record"),
    "out of range": (
        "run.sml:5:54 optimizer.lr: expected number > 0.0 (1/step), got -1; try 0.001\n  scellis explain record"
    ),
    "unknown block": (
        "run.sml:4:19 data.block_id: expected the id of an installed block, got 'data/digitz'; "
        "try one of: data/digits\n  scellis explain record"
    ),
    "no tier": (
        "run.sml:1:1 determinism_tier: expected one of: debug, prod, fast, got nothing; try "
        "determinism_tier: prod"
        "\n  scellis explain record"
    ),
    "key twice": (
        "run.sml:12:1 seed: expected each key once, got it again (first at line 11); try removing one of"
        " the two"
        "\n  scellis explain record"
    ),
    "broken YAML": (
        "run.sml:3:62: expected ',' or ']', got '}'; try a comma between entries, or closing what line 3"
        " opens"
        "\n  scellis explain record"
    ),
    "cycle": (
        "run.sml:5:37 graph.a.in.1: expected a graph without cycles, got the cycle a -> b -> a; try "
        "reading another node here"
        "\n  scellis explain record"
    ),
    "unknown port": (
        "run.sml:5:36 graph.b.in.z: expected a port of layer/relu@1, got 'z'; try one of: x\n  scellis explain record"
    ),
    "shapes that do not fit": (
        "run.sml:6:6 graph.b: block b (layer/add@1): expected inputs of one type, f32[64, 7], got "
        "f32[64, 64]; try layer/reshape or layer/linear before it"
        "\n  scellis explain record"
    ),
    "unknown node": (
        "run.sml:5:34 graph.b.in: expected a node or input of the graph, got 'y'; try one of: b, x"
        "\n  scellis explain record"
    ),
    "too few classes": (
        "run.sml:6:7 loss: training/loss/cross_entropy@1: expected at least 10 classes, as ids of y run "
        "to 9, got 3 classes; try a model with 10 outputs"
        "\n  scellis explain record"
    ),
    "split leaves nothing": (
        "run.sml:4:7 data: expected parameters that fit each other, got split must hold shares between 0"
        " and 1 that sum to less than 1, not {'val': 1.0}"
        "\n  scellis explain record"
    ),
    "stored version missing": (
        "run.sml:2:8 model: expected a model stored in .scellis, got user/ada/gone@3; try scellis save "
        "of a record that has its architecture"
        "\n  scellis explain store"
    ),
    "no file": (
        "run.sml:4:7 data.path: expected a file at t.csv, got nothing there; try a path relative to ., "
        "or a full one"
        "\n  scellis explain data"
    ),
    "ragged row": (
        "t.csv:3: expected 3 values, as in the first line, got 2; try removing the row, or quotes around a value that "
        'holds ","\n  scellis explain data'
    ),
    "not a number": (
        "t.csv:3: expected a finite number in column 'b', got 'four'; try removing the row, filling in a"
        " number, or ignore: [b]"
        "\n  scellis explain data"
    ),
    "no such column": (
        "t.csv:1: expected a column named 'kind', got 3 others; try one of: a, b, sort\n  scellis explain data"
    ),
    "empty table": ("t.csv: expected rows of data after the first line, got none\n  scellis explain data"),
    "no such array": (
        "run.sml:4:7 data.y: expected an array named 'y' in t.npz, got 1 others; try one of: x\n  scellis explain data"
    ),
    "unequal lengths": (
        "run.sml:4:7 data.path: expected x and y with one example or more along axis 0, equally many, "
        "got x [20, 3], y [19]; try arrays of the same examples"
        "\n  scellis explain data"
    ),
    "not a finite number": (
        "t.npz:x[0, 0]: expected finite numbers (f32), got nan; try mending or removing the example"
        "\n  scellis explain data"
    ),
    "pickled objects": (
        "run.sml:4:7 data.y: expected numbers (float, integer or boolean), got dtype |O, pickled objects, which are "
        "never loaded; try saving it as float32 or int32"
        "\n  scellis explain data"
    ),
    "label past the classes": (
        "run.sml:4:7 data: y[2]: expected an id from 0 to 1, got 2; try mending the data, or a model "
        "with room for ids up to 2"
        "\n  scellis explain data"
    ),
    "negative label": (
        "run.sml:4:7 data: y[0]: expected an id from 0 to 1, got -2; try mending the data\n  scellis explain data"
    ),
    "broken image": (
        "pics/dog/2.png: expected an image, got none that Pillow can read; try removing or replacing the"
        " file"
        "\n  scellis explain data"
    ),
    "class without images": (
        "pics/bird: expected images, got none; try files that end in .bmp, .gif, .jpeg, .jpg, .png, "
        ".tif, .tiff, .webp"
        "\n  scellis explain data"
    ),
    "text that is no UTF-8": (
        "corpus.txt:1: expected UTF-8 text, got byte 0xff at 3; try tokens: byte\n  scellis explain data"
    ),
}
"""Kind -> what `scellis train run.sml` says."""


@pytest.mark.parametrize("kind", [*RECORDS, *DATA])
def test_records_and_files_of_data(kind: str, scellis: Call, tmp_path: Path) -> None:  # noqa: F811
    text, make = (RECORDS[kind], None) if kind in RECORDS else DATA[kind]
    (tmp_path / "run.sml").write_text(text, encoding="utf-8")
    if make is not None:
        make(Path())
    before = tree(tmp_path)
    done = scellis("train", "run.sml", "--device", "oracle")
    assert (done.code, done.out) == (1, "")
    assert done.err.removeprefix(NOT_ON_A_GPU) == f"error: {SAID[kind]}\n"
    assert tree(tmp_path) == before


def test_objects_of_a_checkpoint(scellis: Call, tmp_path: Path) -> None:  # noqa: F811
    text = RECORD.replace("steps: 6", "steps: 6\ncheckpoint: { every: 2, keep: 3 }")
    (tmp_path / "run.sml").write_text(text, encoding="utf-8")
    scellis("train", "run.sml", "--device", "oracle")
    store = Store(tmp_path / ".scellis")
    run = store.runs()[0].id
    weights = store.checkpoint(run)[1].weights
    path = store.objects.path(weights)
    data, shown = path.read_bytes(), path.relative_to(tmp_path)
    place, hint = (
        f"error: checkpoint at step 6: object {weights}: expected",
        "; try --step of another checkpoint (4, 2)",
    )
    for changed in (data[:-10], data[:-1] + bytes([data[-1] ^ 1])):
        path.chmod(0o644)
        path.write_bytes(changed)
        found = f"{len(changed)} bytes of sha256:{hashlib.sha256(changed).hexdigest()}"
        said = f"{place} bytes of that digest in {shown}, got {found}{hint}\n  scellis explain store\n"
        assert scellis("export", "-o", "w.safetensors") == Done(1, "", said)
    path.unlink()
    said = f"{place} a file {shown}, got none{hint}\n  scellis explain store\n"
    assert scellis("export", "-o", "w.safetensors") == Done(1, "", said)
    said = f"error: run {run}: expected a checkpoint of step 3, got none; try one of 6, 4, 2\n  scellis explain store\n"
    assert scellis("export", "-o", "w.safetensors", "--step", "3") == Done(1, "", said)
    said = f"error: run {run}: expected an interrupted run, got one that has finished; try scellis runs\n"
    assert scellis("resume", run) == Done(1, "", said + "  scellis explain store\n")
    assert not (tmp_path / "w.safetensors").exists()
    assert scellis("export", "-o", "w.safetensors", "--step", "4") == Done(0, "w.safetensors\n", "")


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (
            {"max_storage_bufer": 4096},
            "--limits lim.json: expected a limit, got 'max_storage_bufer'; try one of: "
            "max_storage_buffer_binding_size, max_storage_buffers_per_shader_stage, "
            "min_storage_buffer_offset_alignment\n  scellis explain data\n",
        ),
        (
            {"max_buffer_size": 1024},
            "block head: its output: expected at most 1024 bytes (the device's max-buffer-size), got 2560; "
            "try a smaller batch_size with grad_accumulation\n  scellis explain device\n",
        ),
    ],
)
def test_limits_of_a_device(limits: dict[str, int], said: str, scellis: Call, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "lim.json").write_text(json.dumps(limits), encoding="utf-8")
    before = tree(tmp_path)
    done = scellis("train", "run.sml", "--limits", "lim.json", "--device", "oracle")
    assert (done.code, done.out, done.err.removeprefix(NOT_ON_A_GPU)) == (1, "", f"error: {said}")
    assert tree(tmp_path) == before


def test_an_unknown_device(scellis: Call, tmp_path: Path, device_name: str) -> None:  # noqa: F811
    done = scellis("train", "run.sml", "--device", "nosuchgpu")
    assert (done.code, done.out) == (1, "")
    start = "error: --device: expected part of an adapter's name, auto or oracle, got 'nosuchgpu'; try one of: "
    assert done.err.startswith(start)
    assert device_name in done.err
    assert not (tmp_path / ".scellis").exists()
