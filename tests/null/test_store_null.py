"""The store and the random numbers are imported, and runs kept, where NumPy, safetensors and wgpu are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
for name in ("numpy", "safetensors", "wgpu", "cffi", "onnx"):
    sys.modules[name] = None
from pathlib import Path
from scellis_core import rng
from scellis_core.record import Record
from scellis_core.store import Store
mlp = {"block_id": "model/mlp"}
record = Record.from_dict({"sml": 1, "model": "a/b", "architecture": mlp, "determinism_tier": "debug"})
store = Store(sys.argv[1])
run = store.create_run(record, device="none", environment={}, total=1, base=Path("."))
store.log(run, [(1, 0, "loss", 0.5)], step=1, epoch=0, skipped=0)
store.end_run(run, "finished", 1, 0)
assert store.metrics(run) == [(1, 0, "loss", 0.5)]
assert store.objects.get(store.objects.put(b"x")) == b"x"
assert store.save_model(record) == ("a/b", 1)
assert store.load_model("a/b") == record
assert rng.words((0, 0), 0, 1) == [0x6627E8D5]
"""


def test_the_store_without_numpy(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
