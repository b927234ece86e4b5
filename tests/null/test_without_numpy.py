"""The compiler runs where numpy, wgpu, cffi, safetensors and onnx are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKED = ("numpy", "wgpu", "cffi", "safetensors", "onnx", "torch", "PIL")

SCRIPT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}")

sys.meta_path.insert(0, Blocker())
for name in {blocked!r}:
    sys.modules.pop(name, None)
{body}
assert not set({blocked!r}) & {{m.split(".")[0] for m in sys.modules}}
print("compiled")
"""

COMPILE = """
from pathlib import Path
from scellis_core.catalog import Catalog
from scellis_core.compile import compile_run
from scellis_core.lower.program import Limits, StepProgram
from scellis_core.model import print_blocks, resolve_run
from scellis_core.planner import plan
from scellis_core.record import Record

record = Record.load({path!r})
run = resolve_run(record, Catalog.discover(), record.base)
size = record.spec.batch_size
compiled = compile_run(run, Limits(), train=[size, 7], evaluate=[size], predict=[1])
assert plan(compiled).total == sum(b.size for b in compiled.program.buffers.values())
assert StepProgram.from_json(compiled.program.to_json()).digest() == compiled.program.digest()
assert print_blocks(run.graph)
"""

IMPORTS = """
import scellis, scellis_core.plugin, scellis_core.store, scellis_core.autodiff
import scellis_core.compile, scellis_core.planner
import scellis_core.cli.app
"""


def blocked(body: str) -> str:
    script = SCRIPT.format(blocked=BLOCKED, body=body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("example", sorted(p.name for p in (ROOT / "examples").glob("*.sml")))
def test_compiles(example: str) -> None:
    assert blocked(COMPILE.format(path=str(ROOT / "examples" / example))) == "compiled\n"


def test_imports() -> None:
    assert blocked(IMPORTS) == "compiled\n"
