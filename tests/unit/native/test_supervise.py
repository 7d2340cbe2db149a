"""What a session's spare supervisor does before it has a request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sessions in namespaces need Linux")

PRACTISE = """
import os, resource, sys, time
import _signal
from coopfile.native import signals, supervise
from coopfile.native.supervise import Inside, Served

def state():
    return {
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "directory": os.getcwd(),
        "address space": resource.getrlimit(resource.RLIMIT_AS),
        "pending": _signal.sigpending(),
        "blocked": _signal.pthread_sigmask(_signal.SIG_BLOCK, ()),
        "streams": [os.fstat(stream).st_rdev for stream in (0, 1, 2)],
        "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
    }

mask = signals.block()
workspace, told = sys.argv[1], os.dup(1)
null = os.open("/dev/null", os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(null, stream)
served = Served(told, mask, Inside("", workspace, dict(os.environ), (), {}), None)
os.chdir("/")
supervise.practise(served)  # which enters the workspace
before = state()
began = time.monotonic()
supervise.practise(served)
prompt = time.monotonic() - began < supervise._PROMPT / 2
after = state()
os.write(told, repr((before == after or (before, after), after["directory"] == workspace, prompt)).encode())
"""


def test_practising_leaves_nothing(tmp_path: Path) -> None:
    """A spare that has practised is as it was, stands in the workspace, and has waited for nobody."""
    done = subprocess.run(
        [sys.executable, "-c", PRACTISE, str(tmp_path)], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"(True, True, True)", b"")


def test_practising_fails_quietly(tmp_path: Path) -> None:
    """Where nothing can be started, in a workspace that is gone, a spare waits for requests all the same."""
    done = subprocess.run(
        [sys.executable, "-c", PRACTISE, str(tmp_path / "gone")], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"(True, False, True)", b"")
