"""What is on disk before coop says so, on an ext4 of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount an ext4"),
]
ROOT = Path(__file__).parents[2]

# Mounted in a mount namespace that ends with the process: room for 64 MiB that a tmpfs of some MiB holds.
MOUNTED = """
import os, subprocess, sys, time
from coopfile.native import syscalls
from coopfile.rootfs.disk import sync, syncing
base, size = sys.argv[1:]
syscalls.unshare(syscalls.CLONE_NEWNS)
syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
syscalls.mount("small", base, "tmpfs", 0, f"size={size}m")
image, there = f"{base}/image", f"{base}/there"
os.mkdir(there)
with open(image, "wb") as file:
    file.truncate(64 << 20)
subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
subprocess.run(["mount", "-o", "loop", image, there], check=True)

def write(mebibytes):
    with open(f"{there}/file", "wb") as file:
        file.write(os.urandom(mebibytes << 20))

def on_disk():
    return os.stat(image).st_blocks * 512 >> 20
"""


def mounted(tmp_path: Path, size: int, script: str) -> str:
    """Run a script where such a file system is, and return what it prints."""
    process = subprocess.run(
        [sys.executable, "-c", MOUNTED + script, str(tmp_path), str(size)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_written_meanwhile(tmp_path: Path) -> None:
    """What is written is on disk before the end, long before the kernel would begin."""
    script = """
with syncing(there):
    write(20)
    deadline = time.monotonic() + 20
    while on_disk() < 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    print(on_disk() >= 20)
"""
    assert mounted(tmp_path, 60, script) == "True\n"


def test_a_failure_is_told(tmp_path: Path) -> None:
    """What cannot be written is an error at the end: a later sync need not know of it."""
    script = """
import threading
written = False
try:
    with syncing(there):
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "sync")
        write(40)
        written = True
        thread.join(20)
except OSError as error:
    print(written, type(error).__name__)
"""
    assert mounted(tmp_path, 20, script) == "True OSError\n"


def test_a_failure_of_the_last_sync_is_told(tmp_path: Path) -> None:
    """It is an error, too."""
    script = """
write(40)
try:
    sync(there)
except OSError as error:
    print(type(error).__name__)
"""
    assert mounted(tmp_path, 20, script) == "OSError\n"
