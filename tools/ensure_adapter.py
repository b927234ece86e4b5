"""Make sure that a WebGPU adapter is there; on Debian or Ubuntu as root, install Mesa's software driver.

With ``--browser`` headless Chromium is wanted too (for the tab's tests). Runs before the README's commands.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

DRIVER = ["mesa-vulkan-drivers", "libvulkan1"]
ADVICE = {
    "linux": "install a Vulkan driver (Fedora: mesa-vulkan-drivers; Arch: vulkan-swrast; "
    "Debian: mesa-vulkan-drivers libvulkan1)",
    "darwin": "macOS has Metal; no adapter answered, so check that this is not a virtual machine without a GPU",
    "win32": "install or update the graphics driver (DirectX 12 or Vulkan)",
}


def adapters() -> list[str]:
    """Names of the adapters found, asked for in a process of its own (a loader installed later is seen)."""
    code = "import wgpu; print('\\n'.join(a.summary for a in wgpu.gpu.enumerate_adapters_sync()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if line.strip()]


def can_apt() -> bool:
    """Whether this is Debian or a child of it, and we may install packages."""
    release = Path("/etc/os-release")
    text = release.read_text(encoding="utf-8") if release.exists() else ""
    debian = any(word in text for word in ("ID=debian", "ID=ubuntu", "ID_LIKE=debian", 'ID_LIKE="ubuntu debian"'))
    return debian and hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(packages: list[str], why: str) -> None:
    """Install Debian packages, saying so."""
    print(f"scellis: {why}; running: apt-get update && apt-get install -y {' '.join(packages)}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *packages]):
        result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if result.returncode:
            print(f"scellis: {' '.join(command)} failed:\n{result.stderr[-2000:]}", flush=True)
            return


def main() -> int:
    """Entry point."""
    found = adapters()
    if not found and can_apt():
        apt_install(DRIVER, "no Vulkan adapter here, so Mesa's software driver is installed")
        found = adapters()
    if found:
        print("scellis: adapters: " + "; ".join(found), flush=True)
    else:
        print("scellis: NO WebGPU ADAPTER; " + ADVICE.get(sys.platform, ADVICE["linux"]), flush=True)
        print("scellis: the float64 oracle will run instead where it can (slow).", flush=True)
    if "--browser" in sys.argv and not (shutil.which("chromium") or shutil.which("google-chrome")) and can_apt():
        apt_install(["chromium"], "no Chromium here, so it is installed for the browser tests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
